#!/usr/bin/env bash
# Everything the JavaScript package promises, from a fresh checkout: installs, builds both engines, runs all tests.
# Needs the packages of tools/packages/js.txt and the npm registry.
set -euo pipefail
cd "$(dirname "$0")"

# The lock file decides what is installed; a folder that already matches it is left alone.
if ! cmp -s package-lock.json node_modules/.installed-lock.json; then
  npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --silent
  cp package-lock.json node_modules/.installed-lock.json
fi
npm run --silent build
# Where Node's headers are, the native engine must have been built: then its absence is an error, not a skipped test.
if [ -f "$(node -p "require('path').resolve(process.execPath, '../../include/node/node_api.h')")" ]; then
  export POOLGRAD_EXPECT_NATIVE=1
fi
npm test --silent
