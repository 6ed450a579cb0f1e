#!/usr/bin/env bash
# Makes the packages, from a clean clone or a source tarball, into dist/:
#   packaging/package.sh [PART...]    source sdist wheel deb npm; none named: all of them, and wheel-cuda where nvcc is
# POOLGRAD_CMAKE_ARGS adds arguments for CMake to wheel and deb. What a part needs to be installed is in tools/packages/.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
dist=$root/dist
version=$(sed -n 's/^project(poolgrad VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python=${PYTHON:-/usr/bin/python3}
mkdir -p "$dist" build
PATH=$PATH:/usr/local/cuda/bin  # where NVIDIA's packages put nvcc
# Paths as seen from the build folder, so that the packages, which compile the same code, share what ccache keeps.
export CCACHE_BASEDIR=$root

# The names of the files that belong to the project, each ended by a NUL.
files() {
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard --deduplicate | while IFS= read -r -d '' file; do
      [ ! -e "$file" ] || printf '%s\0' "$file"
    done
  else
    find . -type d \( -name build -o -name dist -o -name node_modules -o -name __pycache__ -o -name prebuilds \) -prune \
      -o -type f -printf '%P\0'
  fi
}

package_source() {
  epoch=$(git log -1 --format=%ct 2>/dev/null || date +%s)
  files | LC_ALL=C sort -z |
    tar --null --no-recursion --files-from=- --transform "s,^,poolgrad-$version/," --owner=root:0 --group=root:0 \
      --mtime="@$epoch" -cf - | gzip -9n >"$dist/poolgrad-$version-source.tar.gz"
}

backend() { # backend FUNCTION: calls the Python backend as pip would, and prints what it made
  PYTHONPATH=bindings/python PYTHONDONTWRITEBYTECODE=1 \
    "$python" -c "import build_backend; print(build_backend.$1('$dist'))"
}
package_sdist() { backend build_sdist; }
package_wheel() { backend build_wheel; }
package_wheel_cuda() { POOLGRAD_CMAKE_ARGS="-DPOOLGRAD_CUDA=ON ${POOLGRAD_CMAKE_ARGS:-}" backend build_wheel; }

# In a copy, so that nothing of the build stays in the tree; of the copy only CMake's folder is kept, to build faster next time.
package_deb() {
  tree=$root/build/deb/poolgrad-$version
  mkdir -p "$tree"
  find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  rm -f "$tree/build/deb/CMakeCache.txt"  # or an earlier build's POOLGRAD_CMAKE_ARGS would stay
  files | tar --null --no-recursion --files-from=- -cf - | tar -xf - -C "$tree"
  rm -f "$root"/build/deb/*.deb
  if command -v ccache >/dev/null; then  # debhelper changes HOME, where ccache would look for these
    CCACHE_DIR=$(ccache --get-config cache_dir) CCACHE_MAXSIZE=$(ccache --get-config max_size)
    export CCACHE_DIR CCACHE_MAXSIZE
  fi
  (cd "$tree" && dpkg-buildpackage --build=binary --no-sign --no-pre-clean) >"$root/build/deb/log" 2>&1 ||
    { tail -40 "$root/build/deb/log" >&2; echo "dpkg-buildpackage failed; all of it is in build/deb/log" >&2; return 1; }
  rm -f "$dist"/*.deb
  cp "$root"/build/deb/*.deb "$dist"
}

package_npm() {
  bindings/js/build.sh && (cd bindings/js && npm pack --silent --ignore-scripts --pack-destination "$dist")
}

parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then
  parts=(source sdist wheel deb npm)
  ! command -v nvcc >/dev/null || parts+=(wheel-cuda)
fi
for part in "${parts[@]}"; do
  case $part in
    source | sdist | wheel | deb | npm | wheel-cuda) echo "== $part" && "package_${part//-/_}" ;;
    *) echo "'$part' is no part; the parts are source, sdist, wheel, wheel-cuda, deb and npm" >&2; exit 1 ;;
  esac
done
echo "== dist" && (cd "$dist" && find . -maxdepth 1 -type f -printf '%f  %s bytes\n' | sort)
