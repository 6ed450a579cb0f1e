#!/bin/bash
# Short runs under sanitizers: tests/sanitize.sh SECONDS (of drawn problems, per sanitizer; default 10).
#   AddressSanitizer and UBSan: the differential driver, and everything that goes through the C ABI.
#   ThreadSanitizer: the differential driver, and the tests that share plans between threads.
# The presets are asan-ubsan and tsan. Where clang has the fuzzer's runtime the first is built together with the fuzzer, so
# that the library is compiled with these sanitizers only once.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
mkdir -p build

# build PRESET [CMAKE ARGUMENT...]: the programs to run, quietly unless it fails.
build() {
  local launcher=()
  if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  if ! { cmake --preset "$1" -DPOOLGRAD_CLI=OFF "${launcher[@]}" "${@:2}" && cmake --build "build/$1" --target differential api_tests; } \
    >"build/$1.log" 2>&1; then
    cat "build/$1.log"
    exit 1
  fi
}

asan=build/fuzz
status=0
fuzz/build.sh differential api_tests 2>/dev/null || status=$?
if [ $status -eq 2 ]; then
  asan=build/asan-ubsan
  build asan-ubsan
elif [ $status -ne 0 ]; then
  exit $status
fi
echo "AddressSanitizer and UBSan"
"$asan/tests/differential" "$seconds" 1
"$asan/tests/api_tests" --gtest_brief=1

# Kernels run on one thread each; what threads share is in the floors around them.
build tsan -DPOOLGRAD_SIMD=OFF
# GCC 12's does not start where the kernel spreads addresses as far as Ubuntu 24.04's does.
fixed=()
if setarch --addr-no-randomize true 2>/dev/null; then fixed=(setarch --addr-no-randomize); fi
echo "ThreadSanitizer"
"${fixed[@]}" build/tsan/tests/differential "$seconds" 1
"${fixed[@]}" build/tsan/tests/api_tests --gtest_brief=1
