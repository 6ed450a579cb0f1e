#!/bin/bash
# What a shared library shows and how it is linked: only the C ABI is exported, it stays when it is closed, its addresses
# are settled when it is loaded, and what is not a kernel guards its stack.
#   tests/install/exports.sh LIBRARY
set -euo pipefail
library=$1
if leaks=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -v -e '^poolgrad_' -e '^POOLGRAD_1$'); then
  echo "$library exports more than the C ABI: $(head -c 400 <<<"$leaks")" >&2
  exit 1
fi
flags=$(readelf -dW "$library" | grep FLAGS_1 || true)
for flag in NOW NODELETE; do
  grep -qw "$flag" <<<"$flags" || { echo "$library is not linked with -z ${flag,,}" >&2; exit 1; }
done
readelf -lW "$library" | grep -q GNU_RELRO || { echo "$library is not linked with -z relro" >&2; exit 1; }
nm -D --undefined-only "$library" | grep -q __stack_chk_fail || { echo "$library is compiled without -fstack-protector-strong" >&2; exit 1; }
