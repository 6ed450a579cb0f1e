#!/usr/bin/env bash
# Builds the documentation site into dist/site: Doxygen reads the headers, TypeDoc the JavaScript sources, Sphinx the pages and the
# Python package; the explorer lies in it at explorer/. A warning is an error, and so is a dead link. `make test-site` has a browser
# read it.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
build=$PWD/build/docs
site=$PWD/dist/site
mkdir -p "$build/doxygen" dist

# The explorer and the reference of JavaScript take a processor each; neither needs the other.
explorer/build.sh >"$build/explorer.log" 2>&1 &
explorer=$!

(cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $build/doxygen"; echo "WARN_AS_ERROR = FAIL_ON_WARNINGS") | doxygen -

# The pages, with the JavaScript reference that TypeDoc writes among them. Sphinx follows no links to folders, hence a copy.
rm -rf "$build/pages" && mkdir -p "$build/pages"
tar -c --exclude=node_modules docs README.md HACKING.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE cases bench/results examples \
  bindings/python/README.md bindings/js/README.md explorer/README.md src/cuda/NOTES.md | tar -x -C "$build/pages"
# Files of the root are shown under notes/: what they link to is there, or one floor up; the bindings' READMEs are under packages/.
(cd "$build/pages" && sed -i -E 's,\]\((HACKING|CONTRIBUTING|SECURITY|CHANGELOG)\.md,](\L\1.md,g; s,\]\(src/cuda/NOTES\.md,](cuda.md,g; s,\]\(docs/,](../,g' \
  HACKING.md CHANGELOG.md CONTRIBUTING.md SECURITY.md && sed -i -E 's,\]\((\.\./)+docs/,](../,g' bindings/*/README.md explorer/README.md &&
  sed -i -E 's,\]\(\.\./bindings/(python|js)/README\.md,](packages/\1.md,g; s,\]\(packages/js\.md,](packages/javascript.md,g' docs/*.md)
if ! cmp -s docs/typedoc/package-lock.json docs/typedoc/node_modules/.installed-lock.json; then
  (cd docs/typedoc && npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel=error)
  cp docs/typedoc/package-lock.json docs/typedoc/node_modules/.installed-lock.json
fi
javascript=$build/pages/docs/api/javascript
(cd docs/typedoc && node_modules/.bin/typedoc --options typedoc.json --logLevel Error --out "$javascript")
"$python" docs/typedoc/anchors.py "$javascript/index-1.md"
rm "$javascript/index.md" && mv "$javascript/index-1.md" "$javascript/poolgrad.md"  # named as they are imported
sed -i '1s,.*,# JavaScript: poolgrad,' "$javascript/poolgrad.md" && sed -i '1s,.*,# JavaScript: poolgrad/tfjs,; s,index-1\.md,poolgrad.md,g' "$javascript/tfjs.md"

# The Python pages import the package, which loads its library only when it is called: none is needed.
rm -rf "$site"
POOLGRAD_DOCS_BUILD=$build PYTHONPATH=$PWD/bindings/python PYTHONDONTWRITEBYTECODE=1 \
  "$python" -m sphinx -q -W --keep-going -b html -d "$build/doctrees" "$build/pages/docs" "$site"
"$python" docs/mend_furo.py "$site"
wait $explorer || { cat "$build/explorer.log"; exit 1; }
mkdir "$site/explorer" && cp explorer/dist/index.html "$site/explorer/"
"$python" tests/docs/links.py --site "$site"
echo "dist/site/index.html: $(find "$site" -name '*.html' | wc -l) pages"
