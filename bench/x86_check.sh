#!/bin/bash
# Builds, checks and measures on an x86-64 machine that has g++ (or clang), CMake and PyTorch but not Debian's packages;
# Highway, pthreadpool and CLI11 come from the folder that bench/x86_deps.sh made, named by X86_DEPS (default
# build/x86_deps). In about four minutes: the library and command line, the differential test on each SIMD target that
# the machine has, then poolgrad beside PyTorch, and the table of ratios last. Results also go to $OUT when that is set.
#   CASES, DTYPES, SECONDS_EACH, CHECK_SECONDS change what is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
deps=$(realpath "${X86_DEPS:-build/x86_deps}")
build=build/x86_native
out=${OUT:-$build}
cases=${CASES:-resnet_stem,vgg1,inception_s1,sppf5,spp13,unet3d,alexnet,audio1d,global}
started=$SECONDS
mkdir -p "$build" "$out"

lib=$deps/usr/lib/x86_64-linux-gnu
include=$deps/usr/include
export LD_LIBRARY_PATH=$lib
threads=ON
[ -e "$lib/libpthreadpool.so" ] || threads=OFF
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DPOOLGRAD_TESTS=OFF -DPOOLGRAD_THREADS=$threads \
  -DCMAKE_PREFIX_PATH="$deps/usr" -DHWY_INCLUDE="$include" -DHWY_LIBRARY="$lib/libhwy.so" \
  -DPTHREADPOOL_INCLUDE="$include" -DPTHREADPOOL_LIBRARY="$lib/libpthreadpool.so" \
  -DCLI11_DIR="$(dirname "$(find "$deps" -name CLI11Config.cmake | head -1)")" >/dev/null
cmake --build "$build" --target poolgrad_cli --parallel "$(nproc)" >"$out/build.txt" 2>&1 ||
  { grep error -A3 "$out/build.txt" | head -40; exit 1; }
poolgrad=$build/cli/poolgrad
"$poolgrad" --version
echo "built after $((SECONDS - started)) s"

if [ -e tests/differential.cc ]; then
  needs=("$lib/libhwy.so")
  [ $threads = ON ] && needs+=("$lib/libpthreadpool.so")
  "${CXX:-g++}" -std=c++20 -O1 -ffp-contract=off -DPOOLGRAD_HAVE_SIMD -Iinclude -Isrc -Itests -I"$include" \
    tests/differential.cc tests/support/*.cc "$build/libpoolgrad.a" "${needs[@]}" -pthread -o "$build/differential"
  "$build/differential" --targets | tee "$out/targets.txt"
  pids=()
  for target in $(awk '{print $1}' "$out/targets.txt"); do
    log=$out/differential_$target.txt
    (POOLGRAD_SIMD=$target timeout 120 "$build/differential" "${CHECK_SECONDS:-20}" 1 >"$log" 2>&1
     echo "$target: $(tail -1 "$log")") &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || echo "a differential test ended with a failure"; done
  echo "checked after $((SECONDS - started)) s"
fi

python3 bench/peers/run.py --poolgrad "$poolgrad" --peer torch,torch_out --case "$cases" --dtype "${DTYPES:-f32,bf16}" \
  --seconds "${SECONDS_EACH:-0.1}" --threads "$(nproc)" --out "$out/x86.jsonl" 2>"$out/x86_errors.txt" ||
  tail -5 "$out/x86_errors.txt"
python3 bench/report.py "$out/x86.jsonl"
echo "finished after $((SECONDS - started)) s"
