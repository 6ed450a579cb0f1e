#!/usr/bin/env bash
# Builds the explorer and runs its tests: state and programs in Node, the page in headless Chromium.
# UPDATE_SCREENSHOTS=1 also writes the README's pictures into docs/images.
set -euo pipefail
cd "$(dirname "$0")"

bash build.sh
npm test --silent
