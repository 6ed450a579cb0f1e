#!/usr/bin/env bash
# Tests the CUDA kernels: on a GPU in software (soft_device), and with nvcc, where that is: builds the library and its checks
# for one architecture and runs those that need a GPU where there is one. What is missing is said and is no failure. A warning is one.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
quietly() {
  "$@" > "$build/build.log" 2>&1 || { tail -60 "$build/build.log"; exit 1; }
}

build=build/cuda-soft
mkdir -p "$build"
quietly cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DPOOLGRAD_SIMD=OFF -DPOOLGRAD_THREADS=OFF \
  -DPOOLGRAD_CUDA_SOFT=ON -DPOOLGRAD_TESTS=OFF -DPOOLGRAD_CLI=OFF "${launcher[@]}"
quietly cmake --build "$build" --target cuda_check soft_nvrtc soft_device_test
export XDG_CACHE_HOME=$PWD/$build/cache  # of this build's compiled kernels
rm -rf "$XDG_CACHE_HOME" && mkdir "$XDG_CACHE_HOME"
quietly ctest --test-dir "$build" -V
grep -oE "[0-9]+ problems, .*" "$build/build.log" | sed 's/$/, on a device in software/'
unset XDG_CACHE_HOME

if ! command -v nvcc > /dev/null; then
  echo "skipped: no nvcc"
  exit 0
fi
build=build/cuda-test
mkdir -p "$build"
# Without a GPU the code is only compiled, so that it need not be optimised to the last; and there are few cores.
flags=()
[ -e /dev/nvidiactl ] || flags=("-DCMAKE_CUDA_FLAGS=-Xptxas -O0 -Xcicc -O1" -DPOOLGRAD_CUDA_TOGETHER=ON)
quietly cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOOLGRAD_SIMD=OFF -DPOOLGRAD_THREADS=OFF -DPOOLGRAD_CUDA=ON \
  -DPOOLGRAD_TESTS=OFF -DPOOLGRAD_CLI=OFF -DPOOLGRAD_CUDA_CHECKS=ON -DPOOLGRAD_CUDA_ARCHITECTURES=90-real "${flags[@]}" "${launcher[@]}"
quietly cmake --build "$build"
! grep -E "warning[ :#]" "$build/build.log" || exit 1
quietly ctest --test-dir "$build" -L gpu -V
grep -oE "skipped: no CUDA device|[0-9]+ problems, .*|[0-9]+ forms, .*" "$build/build.log"
