#!/bin/bash
# Builds the fuzzers and runs them: fuzz/run.sh SECONDS, or with 0 (the default) the problems' until it finds something.
# A failing input is left in build/fuzz/findings; run it again with build/fuzz/fuzz/TARGET FILE.
# New inputs that reach new code are kept in build/fuzz/corpus, so that a later run begins where this one ended; to keep the best
# of them for good:  build/fuzz/fuzz/TARGET -merge=1 fuzz/corpus/NAME build/fuzz/corpus/NAME
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-0}
fuzz/build.sh fuzz_problem fuzz_npy
mkdir -p build/fuzz/findings build/fuzz/corpus/problem build/fuzz/corpus/npy build/fuzz/cases

# Every case that once failed is a seed.
number=0
while IFS= read -r line; do
  case $line in '' | '#'*) continue ;; esac
  number=$((number + 1))
  printf '%s\n\x01\x80\xff' "${line#*: }" >"build/fuzz/cases/$number"
done <cases/regressions.txt

# fuzz NAME SECONDS OPTION...
fuzz() {
  local name=$1 limit=$2
  shift 2
  "build/fuzz/fuzz/fuzz_$name" "-max_total_time=$limit" -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/findings/ \
    -print_final_stats=1 -print_funcs=0 "$@" "build/fuzz/corpus/$name" "fuzz/corpus/$name"
}
fuzz npy $((seconds == 0 ? 60 : (seconds + 4) / 5)) -max_len=512 >build/fuzz/npy.log 2>&1 &
fuzz problem "$seconds" -max_len=1024 -dict=fuzz/words.dict build/fuzz/cases
wait $! || { cat build/fuzz/npy.log; exit 1; }
