#!/bin/bash
# Builds the fuzzer with clang and runs it: fuzz/run.sh SECONDS, or without a number until it finds something.
# A failing input is left in build/fuzz/findings; run it again with build/fuzz/fuzz/fuzz_problem FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-0}

compiler=""
for candidate in clang++-19 clang++-14 clang++; do
  if command -v "$candidate" >/dev/null && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$candidate" -x c++ - -fsanitize=fuzzer,address,undefined -o /dev/null 2>/dev/null; then
    compiler=$candidate
    break
  fi
done
if [ -z "$compiler" ]; then
  echo "no clang++ with a libFuzzer runtime was found; install the packages of tools/packages/fuzz.txt" >&2
  exit 1
fi

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_C_COMPILER="${compiler/clang++/clang}" -DPOOLGRAD_SANITIZE=fuzzer-no-link,address,undefined -DPOOLGRAD_CLI=OFF \
  "${launcher[@]}" >build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }
cmake --build build/fuzz --target fuzz_problem -- -k 0 >>build/fuzz.log 2>&1 || { cat build/fuzz.log; exit 1; }

mkdir -p build/fuzz/corpus build/fuzz/findings
limit=()
if [ "$seconds" != 0 ]; then limit=("-max_total_time=$seconds"); fi
# A corpus that grew in an earlier run is used again; the seeds come last, so that only new inputs are written beside it.
exec build/fuzz/fuzz/fuzz_problem "${limit[@]}" -max_len=1024 -timeout=20 -rss_limit_mb=2048 -dict=fuzz/words.dict \
  -artifact_prefix=build/fuzz/findings/ -print_final_stats=1 -verbosity=1 build/fuzz/corpus fuzz/corpus
