#!/usr/bin/env bash
# Builds the library with CUDA and the GPU programs for the GPU of this machine, checks them and times them, in one go:
#   tests/cuda/device_check.sh [check|sanitize|time|compare|random|adaptive]...    (default: check sanitize time)
# Needs nvcc, CMake and ninja, and no other package: the CPU's vector kernels and threads are left out of this build.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build/device}
steps=("$@")
[ ${#steps[@]} -eq 0 ] && steps=(check sanitize time)

mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOOLGRAD_SIMD=OFF -DPOOLGRAD_THREADS=OFF -DPOOLGRAD_CUDA=ON \
  -DPOOLGRAD_TESTS=OFF -DPOOLGRAD_CLI=OFF -DPOOLGRAD_CUDA_CHECKS=ON -DPOOLGRAD_CUDA_ARCHITECTURES="${CUDA_ARCH:-90}-real" > "$build.log" 2>&1 ||
  { tail -30 "$build.log"; exit 1; }
start=$SECONDS
cmake --build "$build" >> "$build.log" 2>&1 || { grep -E -A5 "error|FAILED" "$build.log" | tail -60; exit 1; }
echo "built in $((SECONDS - start)) s"
checker=$(find "$build" -name cuda_check -type f)
timer=$(find "$build" -name cuda_time -type f)
result=0
for step in "${steps[@]}"; do
  start=$SECONDS
  echo "== $step"
  case $step in
    check)  # other problems every time; SEED=... draws those of an earlier run
      seed=${SEED:-$(date +%s)}
      echo "seed $seed"
      timeout 150 "$checker" "${PROBLEMS:-3000}" "$seed" 12 || result=1 ;;
    sanitize)
      for tool in memcheck racecheck; do
        # Calls that the checks make the runtime refuse are no errors of memory.
        refused=()
        [ "$tool" = memcheck ] && refused=(--report-api-errors no)
        timeout 100 compute-sanitizer --tool "$tool" "${refused[@]}" --error-exitcode 9 "$checker" "${SANITIZE_PROBLEMS:-60}" 5 1 \
          > "$build/$tool.log" 2>&1 || result=1
        tail -3 "$build/$tool.log"
        grep -qE "SUMMARY: 0 " "$build/$tool.log" || result=1
      done ;;
    time) timeout 60 "$timer" || result=1 ;;
    compare) timeout "${COMPARE_SECONDS:-280}" python3 bench/gpu/compare.py --library "$(find "$build" -name 'libpoolgrad.so')" \
      --json "${OUT:-$build}/gpu.json" --chart "${OUT:-$build}/gpu.svg" --table "${OUT:-$build}/gpu.md" ${COMPARE_ARGS:-} || result=1 ;;
    random) timeout "${COMPARE_SECONDS:-280}" python3 bench/gpu/compare.py --library "$(find "$build" -name 'libpoolgrad.so')" \
      --random "${DRAWS:-60}" --seed "${SEED:-1}" --json "${OUT:-$build}/gpu_random.json" || result=1 ;;
    adaptive) timeout "${COMPARE_SECONDS:-280}" python3 bench/gpu/compare.py --library "$(find "$build" -name 'libpoolgrad.so')" \
      --adaptive --json "${OUT:-$build}/gpu_adaptive.json" || result=1 ;;
    *) echo "unknown step $step"; result=1 ;;
  esac
  echo "   $((SECONDS - start)) s"
done
exit $result
