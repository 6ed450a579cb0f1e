#!/usr/bin/env bash
# Builds the explorer into explorer/dist/index.html: the library's WebAssembly module first (only what changed), then the page.
set -euo pipefail
cd "$(dirname "$0")"

bash ../bindings/js/build-wasm.sh dist/poolgrad.wasm
# The lock file decides what is installed; a folder that already matches it is left alone.
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
  npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --silent
  cp package-lock.json node_modules/.installed-lock.json
fi
npm run --silent build
echo "explorer/dist/index.html: $(stat -c %s dist/index.html) bytes"
