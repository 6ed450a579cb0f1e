#!/bin/bash
# Builds the peers' drivers, fetches ONNX Runtime, measures everybody (bench/peers/run.py; its options may follow) and
# reports.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=build/peers
mkdir -p "$built/node"
cmake -S bench/peers -B "$built/drivers" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$built/drivers" --parallel >/dev/null
cp bench/peers/package.json "$built/node/"
(cd "$built/node" && npm install --silent --no-audit --no-fund) ||
  echo "ONNX Runtime could not be fetched; its column will be missing" >&2
/usr/bin/python3 bench/peers/run.py --out "$built/results.jsonl" "$@"
/usr/bin/python3 bench/report.py "$built/results.jsonl" --svg "$built/peers.svg"
echo "The lines are in $built/results.jsonl, the chart in $built/peers.svg."
