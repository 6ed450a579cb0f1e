#!/bin/bash
# Short runs under sanitizers: tests/sanitize.sh SECONDS (of drawn problems, per sanitizer).
#   AddressSanitizer and UBSan: the differential driver, and everything that goes through the C ABI.
#   ThreadSanitizer: the differential driver, and the tests that share plans between threads.
# The presets are asan-ubsan and tsan. The first is built with the fuzzer's compiler in the fuzzer's folder, when there is one,
# so that `make test` compiles the library with these sanitizers only once.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
mkdir -p build

# build PRESET FOLDER: quietly, unless it fails.
build() {
  if [ ! -f "$2/build.ninja" ]; then
    cmake --preset "$1" -B "$2" -DPOOLGRAD_CLI=OFF "${launcher[@]}" >"build/$1.log" 2>&1 || { cat "build/$1.log"; exit 1; }
  fi
  cmake --build "$2" --target differential api_tests >"build/$1.log" 2>&1 || { cat "build/$1.log"; exit 1; }
}

asan=build/asan-ubsan
if [ -f build/fuzz/build.ninja ]; then asan=build/fuzz; fi
build asan-ubsan "$asan"
echo "AddressSanitizer and UBSan ($asan)"
"$asan/tests/differential" "$seconds" "$(date +%s)"
"$asan/tests/api_tests" --gtest_brief=1

build tsan build/tsan
echo "ThreadSanitizer (build/tsan)"
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS:-}"
build/tsan/tests/differential "$seconds" "$(date +%s)"
build/tsan/tests/api_tests --gtest_brief=1 --gtest_filter='Threads.*'
