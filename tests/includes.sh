#!/bin/bash
# Includes go down only: every #include "..." of src/ must name a floor below its own, and the floors beside one another
# (reference, cpu, cuda) never meet. Bindings, command line, explorer, examples and the public headers see include/ alone.
# Prints every line that climbs; the exit status is 0 when none does.
set -euo pipefail
cd "$(dirname "$0")/.."

# floor FOLDER: the folders it may include from, itself among them.
allowed() {
  case $1 in
    base) echo "poolgrad base" ;;
    spec) echo "poolgrad base spec" ;;
    reference) echo "poolgrad base spec reference" ;;
    cpu) echo "poolgrad base spec cpu hwy" ;;
    cuda) echo "poolgrad base spec cuda" ;;
    plan) echo "poolgrad base spec reference cpu cuda plan" ;;
    capi) echo "poolgrad base spec reference cpu cuda plan capi" ;;
    *) echo "" ;;
  esac
}

climbing=0
complain() {
  echo "$1"
  climbing=1
}

for folder in src/*/; do
  floor=$(basename "$folder")
  floors=$(allowed "$floor")
  [ -n "$floors" ] || complain "src/$floor is not a floor of the house; name it in tests/includes.sh"
  while IFS=: read -r file line text; do
    [ -n "$file" ] || continue
    path=$(sed -E 's/^[^"]*"([^"]*)".*/\1/' <<<"$text")
    top=${path%%/*}
    case " $floors " in
      *" $top "*) ;;
      *) complain "$file:$line: $floor includes \"$path\"; it may include from: $floors" ;;
    esac
  done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$folder" --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' || true)
done

# Outside src/, our own headers are those of include/: anything that names a floor is looking through the floorboards. One
# folder is excepted: bindings/js/wasm compiles the library itself for WebAssembly, with fewer kernels to keep it small.
for folder in include cli bindings explorer examples; do
  [ -d "$folder" ] || continue
  while IFS=: read -r file line text; do
    [ -n "$file" ] || continue
    complain "$file:$line: $folder may include only from include/: $text"
  done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<](\.\./)*(src/)?(base|spec|reference|cpu|cuda|plan|capi)/' "$folder" \
             --include='*.h' --include='*.hpp' --include='*.cc' --include='*.c' --include='*.cpp' --exclude-dir=node_modules --exclude-dir=wasm || true)
done

exit $climbing
