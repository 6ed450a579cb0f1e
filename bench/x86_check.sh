#!/bin/bash
# Checks and measures on an x86-64 machine that has PyTorch but not Debian's packages. Carry there what another machine built:
#   bench/x86_build.sh build/x86_cross poolgrad_cli differential      leaves build/x86_cross and build/x86_deps
# Runs the differential test on each SIMD target that the machine has, then poolgrad beside PyTorch, and prints the table of
# ratios last. Results also go to $OUT when that is set.
#   CASES, DTYPES, SECONDS_EACH, CHECK_SECONDS, RUN_SECONDS change what is measured and for how long.
set -euo pipefail
cd "$(dirname "$0")/.."
built=${X86_BUILT:-build/x86_cross}
out=${OUT:-$built}
export LD_LIBRARY_PATH=${X86_DEPS:-build/x86_deps}/usr/lib/x86_64-linux-gnu
chmod +x "$built/cli/poolgrad" "$built/tests/differential"
"$built/cli/poolgrad" --version

"$built/tests/differential" --targets | tee "$out/targets.txt"
pids=()
for target in $(awk '{print $1}' "$out/targets.txt"); do
  log=$out/differential_$target.txt
  (POOLGRAD_SIMD=$target timeout 120 "$built/tests/differential" "${CHECK_SECONDS:-20}" 1 >"$log" 2>&1
   echo "$target: $(tail -1 "$log")") &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || echo "a differential test ended with a failure"; done
echo "checked after $SECONDS s"

timeout "${RUN_SECONDS:-400}" python3 bench/peers/run.py --poolgrad "$built/cli/poolgrad" --peer torch,torch_out \
  ${CASES:+--case "$CASES"} --dtype "${DTYPES:-f32,bf16}" --seconds "${SECONDS_EACH:-0.1}" --threads "$(nproc)" --out "$out/x86.jsonl" \
  2>"$out/x86_errors.txt" || tail -5 "$out/x86_errors.txt"
python3 bench/report.py "$out/x86.jsonl"
echo "finished after $SECONDS s"
