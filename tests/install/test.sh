#!/bin/bash
# Installs a build tree into an empty prefix, moves the prefix, and builds separate projects against it: a CMake consumer,
# shared and static, and a C program through pkg-config, shared and static. All four are run.
#   tests/install/test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "${1:?usage: tests/install/test.sh BUILD_FOLDER}")
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"  # an installed tree may be moved
prefix=$work/moved

cmake -S "$source/examples/consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/consumer" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/consumer/consumer"
"$work/consumer/consumer_static"
if ldd "$work/consumer/consumer_static" | grep -q libpoolgrad; then
  echo "consumer_static links the shared libpoolgrad; it must hold the library itself" >&2
  exit 1
fi

libdir=$(dirname "$(find "$prefix" -name 'libpoolgrad.a')")
export PKG_CONFIG_PATH=$libdir/pkgconfig
main=$source/examples/consumer/main.c
read -ra shared_flags <<<"$(pkg-config --cflags --libs poolgrad)"
read -ra static_flags <<<"$(pkg-config --static --cflags --libs poolgrad)"
cc -std=c99 -Wall -Wextra -Werror "$main" -o "$work/c_shared" "${shared_flags[@]}"
LD_LIBRARY_PATH=$libdir "$work/c_shared"
mkdir "$work/only_static"  # where the linker finds no shared library to prefer
cp "$libdir/libpoolgrad.a" "$work/only_static"
for i in "${!static_flags[@]}"; do
  case ${static_flags[$i]} in -L*) static_flags[i]=-L$work/only_static ;; esac
done
cc -std=c99 -Wall -Wextra -Werror "$main" -o "$work/c_static" "${static_flags[@]}"
"$work/c_static"

[ "$(pkg-config --modversion poolgrad)" = "$(sed -n 's/^project(poolgrad VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")" ]
soname=$(readelf -d "$libdir/libpoolgrad.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$soname" = libpoolgrad.so.1 ] || { echo "the soname is '$soname'; it must be libpoolgrad.so.1" >&2; exit 1; }
"$source/tests/install/exports.sh" "$libdir/libpoolgrad.so"
