#!/usr/bin/env bash
# Installs each package of dist/ into an empty place and uses it there:
#   packaging/test.sh [PART...]    source sdist wheel deb npm; none named: all of them, and wheel-cuda where it was made
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
version=$(sed -n 's/^project(poolgrad VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python=${PYTHON:-/usr/bin/python3}
unset PYTHONPATH POOLGRAD_LIBRARY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The folders are new every time; what is compiled in them need not be.
! command -v ccache >/dev/null || export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=/

the_one() { # the_one PATTERN: the only file of dist/ that matches
  local found
  mapfile -t found < <(compgen -G "$root/dist/$1")
  [ ${#found[@]} -eq 1 ] || { echo "dist/ holds ${#found[@]} files $1; there must be one: make package" >&2; return 1; }
  echo "${found[0]}"
}

at_most() { # at_most LIMIT BYTES WHAT
  echo "$3: $2 bytes, at most $1"
  [ "$2" -le "$1" ] || { echo "$3 is larger than its budget" >&2; return 1; }
}

# A fresh environment that sees NumPy (there is no index to fetch it from) and nothing else of the system's.
environment() { # environment FOLDER
  "$python" -m venv "$1"
  local site
  site=$(echo "$1"/lib/python3*/site-packages)
  for name in numpy numpy.libs; do
    local from
    from=$("$python" -c 'import numpy, pathlib; print(pathlib.Path(numpy.__path__[0]).parent)')/$name
    [ ! -d "$from" ] || ln -s "$from" "$site/$name"
  done
}
pip_install() { # pip_install ENVIRONMENT FILE: without network
  "$1/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$2"
}

test_wheel() { # test_wheel [FILE]
  local wheel
  wheel=${1:-$(the_one "poolgrad-$version-py3-none-manylinux*.whl")}
  "$python" packaging/check_wheel.py "$wheel"
  if [ $# -eq 0 ]; then
    at_most 1300000 "$(stat -c %s "$wheel")" "the wheel"
    at_most 3000000 "$("$python" -c 'import sys, zipfile; print(sum(e.file_size for e in zipfile.ZipFile(sys.argv[1]).infolist()))' "$wheel")" "the wheel, unpacked"
  fi
  rm -rf "$work/venv" && environment "$work/venv"
  local TIMEFORMAT='from pip install to the first gradient: %R s by the clock, %U + %S s of the processor'
  time {
    pip_install "$work/venv" "$wheel"
    (cd "$work" && "$work/venv/bin/python" "$root/packaging/first_gradient.py")
  }
}
# The same with the GPU's kernels: it pools on the CPU where there is no GPU, and says what is missing when asked for one.
test_wheel_cuda() {
  test_wheel "$(the_one "poolgrad-$version+cuda*.whl")"
  (cd "$work" && CUDA_VISIBLE_DEVICES='' "$work/venv/bin/python" -c '
import poolgrad
from poolgrad._core import CorePlan, parse_problem
assert poolgrad.has_cuda(), "the wheel has no CUDA kernels"
try:
    CorePlan(parse_problem("max f32 nchw 1x1x3x3 k2 s1 cuda"))
except Exception as error:
    print(f"without a GPU: {error}")
    assert "CUDA" in str(error)
else:
    raise AssertionError("a plan for a GPU was made without one")')
}

# The vector kernels would only take time here; the wheel has them.
test_sdist() {
  environment "$work/sdist"
  POOLGRAD_CMAKE_ARGS=-DPOOLGRAD_SIMD=OFF pip_install "$work/sdist" "$(the_one "poolgrad-$version.tar.gz")"
  (cd "$work" && "$work/sdist/bin/python" "$root/packaging/first_gradient.py")
}

test_source() {
  mkdir "$work/source"
  tar -xzf "$(the_one 'poolgrad-*-source.tar.gz')" -C "$work/source" --strip-components=1
  for name in LICENSE README.md Makefile tests docs debian bindings/js/package.json; do
    [ -e "$work/source/$name" ] || { echo "the source tarball lacks $name" >&2; return 1; }
  done
  cmake -S "$work/source" -B "$work/source/build" -G Ninja -DPOOLGRAD_SIMD=OFF -DPOOLGRAD_TESTS=OFF >"$work/log" 2>&1 &&
    cmake --build "$work/source/build" >"$work/log" 2>&1 || { tail -30 "$work/log"; return 1; }
  "$work/source/build/cli/poolgrad" check "max f64 nchw 2x3x9x9 k3 s2 p1"
}

# In a root of its own: this machine's below, whatever is installed above it, thrown away afterwards. Where that cannot be
# mounted (no root, or a container that forbids it) the packages are unpacked into a folder and used from there.
test_deb() {
  lintian --fail-on error "$root"/dist/*.deb
  mkdir -p "$work/upper" "$work/scratch" "$work/debroot"
  if unshare --mount sh -c "mount -t overlay overlay -o lowerdir=/,upperdir=$work/upper,workdir=$work/scratch $work/debroot" 2>/dev/null; then
    mkdir -p "$work/sources" && cp -r debian examples packaging dist "$work/sources"
    # shellcheck disable=SC2016  # the inner shell expands it
    unshare --mount bash -c '
      set -euo pipefail
      mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/scratch" "$1/debroot"
      mkdir -p "$1/debroot/tmp/poolgrad" && cp -r "$1/sources/." "$1/debroot/tmp/poolgrad"
      chroot "$1/debroot" bash -euo pipefail -c "
        export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
        cd /tmp/poolgrad
        dpkg --install dist/*.deb >/dev/null
        for test in library command python; do echo \"-- \$test\"; debian/tests/\$test; done
        dpkg --purge python3-poolgrad poolgrad libpoolgrad-dev libpoolgrad1 >/dev/null
        left=\$(find /usr -path /usr/share/doc -prune -o -name \"*poolgrad*\" -print | head -3)
        [ -z \"\$left\" ] || { echo \"purging the packages leaves \$left\" >&2; exit 1; }"' - "$work"
  else
    echo "no root of its own can be mounted here; the packages are only unpacked"
    for package in "$root"/dist/*.deb; do dpkg -x "$package" "$work/debroot"; done
    local libraries
    libraries=$(dirname "$(find "$work/debroot" -name libpoolgrad.so.1)")
    "$work/debroot/usr/bin/poolgrad" check "max f64 nchw 2x3x9x9 k3 s2 p1"
    POOLGRAD_LIBRARY=$libraries/libpoolgrad.so.1 PYTHONPATH=$work/debroot/usr/lib/python3/dist-packages \
      /usr/bin/python3 packaging/first_gradient.py
    cc -std=c99 examples/consumer/main.c -I"$work/debroot/usr/include" -L"$libraries" -lpoolgrad -o "$work/c"
    LD_LIBRARY_PATH=$libraries "$work/c"
  fi
}

test_npm() {
  mkdir "$work/npm"
  cp packaging/first_gradient.mjs "$work/npm"
  (cd "$work/npm" && npm init --yes >/dev/null &&
    npm install --silent --offline --no-audit --no-fund "$(the_one 'poolgrad-*.tgz')" && node first_gradient.mjs)
  at_most 8000000 "$(du -sb "$work/npm/node_modules/poolgrad" | cut -f1)" "the npm package, unpacked"
}

parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then
  "$python" packaging/check_readme.py
  parts=(source sdist wheel deb npm)
  ! compgen -G 'dist/*+cuda*.whl' >/dev/null || parts+=(wheel-cuda)
fi
for part in "${parts[@]}"; do
  case $part in
    source | sdist | wheel | deb | npm | wheel-cuda) echo "== $part" && "test_${part//-/_}" ;;
    *) echo "'$part' is no part; the parts are source, sdist, wheel, wheel-cuda, deb and npm" >&2; exit 1 ;;
  esac
done
echo "every package installs and works"
