#!/usr/bin/env bash
# Everything the JavaScript package promises, from a fresh checkout: installs, builds both engines, runs all tests.
# Needs the packages of tools/packages/js.txt and the npm registry.
set -euo pipefail
cd "$(dirname "$0")"

./build.sh
# Where Node's headers are, the native engine must have been built: then its absence is an error, not a skipped test.
if [ -f "$(node -p "require('path').resolve(process.execPath, '../../include/node/node_api.h')")" ]; then
  export POOLGRAD_EXPECT_NATIVE=1
fi
npm test --silent
