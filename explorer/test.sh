#!/usr/bin/env bash
# Builds the explorer and runs its tests: state and programs in Node, the page in headless Chromium.
# UPDATE_SCREENSHOTS=1 also writes the README's pictures into docs/images.
set -euo pipefail
cd "$(dirname "$0")"

if ! node -e 'const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'; then
  echo "skipped: the page's bundler needs Node 20.19 or later; this is $(node --version)"
  exit 0
fi
bash build.sh
node --test --test-reporter=spec tests/*.test.mjs
