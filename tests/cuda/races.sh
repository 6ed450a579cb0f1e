#!/usr/bin/env bash
# Looks for races in the CUDA kernels, without a GPU: tests/cuda/races.sh [PROBLEMS] [SEED]. ThreadSanitizer watches the threads of
# every block on the device in software (soft_device/device.cc). Kernels compiled while the program runs are watched, too.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/cuda-races
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 -DPOOLGRAD_SANITIZE=thread -DPOOLGRAD_SIMD=OFF \
  -DPOOLGRAD_THREADS=OFF -DPOOLGRAD_CUDA_SOFT=ON -DPOOLGRAD_TESTS=OFF -DPOOLGRAD_CLI=OFF > /dev/null
cmake --build "$build" --target cuda_check soft_nvrtc
export POOLGRAD_NVRTC=$PWD/$build/tests/cuda/soft_device/libsoft_nvrtc.so POOLGRAD_SOFT_DEVICE_FOLDER=$PWD/$build/compiled
XDG_CACHE_HOME=$(mktemp -d) TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" \
  setarch --addr-no-randomize "$build/tests/cuda/cuda_check" "${1:-50}" "${2:-1}" 1
