#!/usr/bin/env bash
# Serves the built explorer on this machine: explorer/serve.sh [port]
set -euo pipefail
exec node "$(dirname "$0")/serve.mjs" "$@"
