#!/usr/bin/env bash
# Builds dist/poolgrad.wasm from the core's sources with clang and Debian's WebAssembly libraries: SIMD, one thread, no imports.
# Fails when the module grows past 300 kB or starts to need anything from its host. Packages: tools/packages/js.txt.
#   build-wasm.sh           that and the one for TensorFlow.js's heap
#   build-wasm.sh TARGET... some of wasm/Makefile's
set -euo pipefail
cd "$(dirname "$0")"

# Exactly the functions that the header declares, what it takes to give them memory, and a choice that tests make. Not those of a
# bias, which JavaScript does not take.
exports=$(grep -o 'poolgrad_[a-z_0-9]*(' ../../include/poolgrad/poolgrad.h | tr -d '(' | sort -u | grep -v bias)
make -s -f wasm/Makefile -j"$(nproc)" EXPORTS="malloc free poolgrad_wasm_max_passes_nan $(echo $exports)" "$@"

size=$(stat -c %s dist/poolgrad.wasm)
if [ "$size" -gt 300000 ]; then
  echo "dist/poolgrad.wasm has $size bytes; it must stay under 300000" >&2
  exit 1
fi
node -e '
  const module = new WebAssembly.Module(require("fs").readFileSync("dist/poolgrad.wasm"));
  const imports = WebAssembly.Module.imports(module).map((i) => `${i.module}.${i.name}`);
  if (imports.length) throw new Error(`dist/poolgrad.wasm imports ${imports.join(", ")}; it must import nothing`);'
echo "dist/poolgrad.wasm: $size bytes"
