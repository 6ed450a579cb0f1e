#!/bin/bash
# The shared library built by clang, without its vector kernels, which take long: what it exports, how it is linked, and that a
# host may unload it while its threads wait. GCC's build survives some of what clang's does not.
#   tests/install/clang.sh DLOPEN_TEST WORK_FOLDER
set -euo pipefail
program=$(realpath "$1")
work=$2
source=$(realpath "$(dirname "$0")/../..")
compiler=$(command -v clang++-19 || command -v clang++-14 || command -v clang++ || true)
if [ -z "$compiler" ]; then
  echo "no clang++ here; install the packages of tools/packages/fuzz.txt"
  exit 77
fi
mkdir -p "$work"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if ! { cmake -S "$source" -B "$work" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_CXX_COMPILER="$compiler" \
         -DCMAKE_C_COMPILER="${compiler/clang++/clang}" -DPOOLGRAD_SIMD=OFF -DPOOLGRAD_CLI=OFF -DPOOLGRAD_TESTS=OFF "${launcher[@]}" &&
       cmake --build "$work" --target poolgrad; } >"$work.log" 2>&1; then
  cat "$work.log"
  exit 1
fi
"$source/tests/install/exports.sh" "$work/libpoolgrad.so"
"$program" "$work/libpoolgrad.so"
