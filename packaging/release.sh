#!/usr/bin/env bash
# What must be true before a version is tagged; `make release` has built and tried the packages before. Prints every reason against it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
version=$(sed -n 's/^project(poolgrad VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
against=0
complain() { echo "not yet: $1"; against=1; }

# One version everywhere, metadata and ABI: the same tests as in `make test`, on the wheel's library.
/usr/bin/python3 tests/packaging/backend_test.py build/wheel/libpoolgrad.so || complain "the metadata are not right"
/usr/bin/python3 tests/abi/table.py build/wheel/libpoolgrad.so || complain "the ABI is not the one of tests/abi/abi.txt"

grep -qE "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md || complain "CHANGELOG.md has no '## $version (YYYY-MM-DD)'"
date=$(sed -n "s/^## $version (\([0-9-]*\))$/\1/p" CHANGELOG.md)
grep -q "^date-released: $date$" CITATION.cff || complain "CITATION.cff does not say date-released: $date, as CHANGELOG.md does"
sed -n "1s/^poolgrad (\(.*\)) .*/\1/p" debian/changelog | grep -qx "$version" || complain "debian/changelog does not begin with $version"

for pattern in "poolgrad-$version-py3-none-manylinux*.whl" "poolgrad-$version.tar.gz" "poolgrad-$version-source.tar.gz" "poolgrad-$version.tgz" \
  "libpoolgrad1_${version}_*.deb" "libpoolgrad-dev_${version}_*.deb" "poolgrad_${version}_*.deb" "python3-poolgrad_${version}_*.deb"; do
  compgen -G "dist/$pattern" >/dev/null || complain "dist/ has no $pattern"
done

if git rev-parse --git-dir >/dev/null 2>&1; then
  [ -z "$(git status --porcelain)" ] || complain "the working tree has changes that are not committed"
  ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || complain "the tag v$version exists already"
fi
[ "$against" -eq 0 ] && echo "$version can be released: git tag v$version, and hand out what is in dist/"
exit "$against"
