#!/bin/bash
# Cross-compiles for x86-64 on a Debian machine of another kind: bench/x86_build.sh FOLDER TARGET... [-- CMAKE_OPTION...].
# Highway and CLI11 come from bench/x86_deps.sh (X86_DEPS, default build/x86_deps; fetched when missing).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift
targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
[ $# -gt 0 ] && shift
deps=${X86_DEPS:-build/x86_deps}
[ -d "$deps/usr/lib/x86_64-linux-gnu" ] || bench/x86_deps.sh "$deps" >/dev/null
deps=$(realpath "$deps")
lib=$deps/usr/lib/x86_64-linux-gnu
mkdir -p "$(dirname "$folder")"
log=$folder.log

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake --preset x86 -B "$folder" "${launcher[@]}" -Dhwy_DIR="$lib/cmake/hwy" \
  -DCLI11_DIR="$(dirname "$(find "$deps" -name CLI11Config.cmake | head -1)")" \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$lib" "$@" >"$log" 2>&1 || { cat "$log"; exit 1; }
cmake --build "$folder" --target "${targets[@]}" >"$log" 2>&1 || { grep -E 'error|FAILED' -A3 "$log"; exit 1; }
