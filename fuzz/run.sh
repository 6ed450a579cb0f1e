#!/bin/bash
# Builds the fuzzer and runs it: fuzz/run.sh SECONDS, or with 0 (the default) until it finds something.
# A failing input is left in build/fuzz/findings; run it again with build/fuzz/fuzz/fuzz_problem FILE.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-0}
fuzz/build.sh fuzz_problem

mkdir -p build/fuzz/corpus build/fuzz/findings
limit=()
if [ "$seconds" != 0 ]; then limit=("-max_total_time=$seconds"); fi
# New inputs that reach new code are written to the first folder, so that a later run begins where this one ended.
exec build/fuzz/fuzz/fuzz_problem "${limit[@]}" -max_len=1024 -timeout=20 -rss_limit_mb=2048 -dict=fuzz/words.dict \
  -artifact_prefix=build/fuzz/findings/ -print_final_stats=1 -print_funcs=0 build/fuzz/corpus fuzz/corpus
