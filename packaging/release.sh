#!/usr/bin/env bash
# What must be true before a version is tagged; `make release` has built and tried the packages before. Prints every reason against it;
# where there is none, dist/SHA256SUMS lists what to hand out.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
version=$(sed -n 's/^project(poolgrad VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
against=0
complain() { echo "not yet: $1"; against=1; }

[ -z "${POOLGRAD_CMAKE_ARGS:-}" ] || complain "POOLGRAD_CMAKE_ARGS is '$POOLGRAD_CMAKE_ARGS', so the packages are not the usual ones"

# One version everywhere, metadata and ABI: the same tests as in `make test`, on the wheel's library.
/usr/bin/python3 tests/packaging/backend_test.py build/wheel/libpoolgrad.so || complain "the metadata are not right"
/usr/bin/python3 tests/abi/table.py build/wheel/libpoolgrad.so || complain "the ABI is not the one of tests/abi/abi.txt"

grep -qE "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md || complain "CHANGELOG.md has no '## $version (YYYY-MM-DD)'"
date=$(sed -n "s/^## $version (\([0-9-]*\))$/\1/p" CHANGELOG.md)
grep -q "^date-released: $date$" CITATION.cff || complain "CITATION.cff does not say date-released: $date, as CHANGELOG.md does"
sed -n "1s/^poolgrad (\(.*\)) .*/\1/p" debian/changelog | grep -qx "$version" || complain "debian/changelog does not begin with $version"

rm -f dist/SHA256SUMS
packages=()
for pattern in "poolgrad-$version-py3-none-manylinux*.whl" "poolgrad-$version.tar.gz" "poolgrad-$version-source.tar.gz" "poolgrad-$version.tgz" \
  "libpoolgrad1_${version}_*.deb" "libpoolgrad-dev_${version}_*.deb" "poolgrad_${version}_*.deb" "python3-poolgrad_${version}_*.deb"; do
  mapfile -t found < <(compgen -G "dist/$pattern")
  [ ${#found[@]} -eq 1 ] || complain "dist/ has ${#found[@]} files $pattern; there must be one"
  packages+=("${found[@]##*/}")
done
mapfile -t found < <(compgen -G "dist/poolgrad-$version+cuda*.whl")  # where nvcc is
packages+=("${found[@]##*/}")

if git rev-parse --git-dir >/dev/null 2>&1; then
  [ -z "$(git status --porcelain)" ] || complain "the working tree has changes that are not committed"
  ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || complain "the tag v$version exists already"
fi
[ "$against" -eq 0 ] || exit 1
(cd dist && sha256sum -- "${packages[@]}" >SHA256SUMS)
echo "$version can be released: git tag v$version, and hand out dist/SHA256SUMS with what it lists"
