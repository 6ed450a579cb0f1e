#!/bin/bash
# The x86 kernels on a machine that is none: cross-compiles the library and the differential driver, and runs them for SECONDS
# (default 20) under QEMU, on SSE4 and AVX2 (QEMU knows no AVX-512). On an x86 machine the ordinary tests do this already.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
if [ "$(uname -m)" = x86_64 ]; then
  echo "this machine is x86-64: its own tests run these kernels"
  exit 0
fi
build=build/x86_emulated
# Only the targets that can be run here are compiled: the kernels are large.
disabled='(HWY_SSSE3|HWY_AVX3|HWY_AVX3_DL)'
bench/x86_build.sh "$build" differential -- -DCMAKE_CXX_FLAGS="-O1 -DHWY_DISABLED_TARGETS='$disabled'" -DCMAKE_BUILD_TYPE=None -DPOOLGRAD_CLI=OFF

lib=$(realpath "${X86_DEPS:-build/x86_deps}")/usr/lib/x86_64-linux-gnu
emulate() { qemu-x86_64-static -L /usr/x86_64-linux-gnu -cpu max -E LD_LIBRARY_PATH="$lib" "$@"; }
emulate "$build/tests/differential" --targets | tee "$build.log"
for target in SSE4 AVX2; do
  grep -qx "$target" "$build.log" || { echo "the target $target was not run; the emulated processor should have it" >&2; exit 1; }
done
emulate "$build/tests/differential" "$seconds" 1 quick
