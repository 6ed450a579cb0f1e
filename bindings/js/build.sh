#!/usr/bin/env bash
# Builds the package: the modules that its lock file names, where they are not there yet, then both engines and what is imported.
set -euo pipefail
cd "$(dirname "$0")"

# The lock file decides what is installed; a folder that already matches it is left alone.
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
  npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --silent
  cp package-lock.json node_modules/.installed-lock.json
fi
npm run --silent build
