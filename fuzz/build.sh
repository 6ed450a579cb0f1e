#!/bin/bash
# Builds TARGET... with clang, AddressSanitizer, UBSan and the fuzzer's instrumentation in build/fuzz. The fuzzer and the
# sanitizer tests share this build. Exit status 2: no clang here has those runtimes (tools/packages/fuzz.txt names one that has).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build

compiler=""
for candidate in clang++-19 clang++-14 clang++; do
  if command -v "$candidate" >/dev/null && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$candidate" -x c++ - -fsanitize=fuzzer,address,undefined -o /dev/null 2>/dev/null; then
    compiler=$candidate
    break
  fi
done
if [ -z "$compiler" ]; then
  echo "no clang++ with libFuzzer's runtime was found; install the packages of tools/packages/fuzz.txt" >&2
  exit 2
fi

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
# Kernels of the narrowest instruction set, which has the general ones, and of the widest, which has them all.
sets="-O1 -DHWY_DISABLED_TARGETS='(~(HWY_SSE4|HWY_AVX3|HWY_NEON|HWY_SCALAR))'"
if ! { cmake --preset asan-ubsan -B build/fuzz "-DCMAKE_CXX_FLAGS=$sets" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="${compiler/clang++/clang}" \
         -DPOOLGRAD_SANITIZE=fuzzer-no-link,address,undefined -DPOOLGRAD_CLI=OFF "${launcher[@]}" &&
       cmake --build build/fuzz --target "$@"; } >build/fuzz.log 2>&1; then
  cat build/fuzz.log
  exit 1
fi
