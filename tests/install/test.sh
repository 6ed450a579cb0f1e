#!/bin/bash
# Installs a build tree into an empty prefix, moves the prefix, and builds separate projects against it: a CMake consumer,
# shared and static and shared without Highway, and a C program through pkg-config, shared and static. All five are run.
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

# Where Highway is not installed the shared library is still offered, and the missing static one gets a reason.
mkdir "$work/shared" && cp "$source/examples/consumer/main.cc" "$work/shared"
printf 'cmake_minimum_required(VERSION 3.16)\nproject(shared LANGUAGES CXX)\nfind_package(poolgrad 1.0 REQUIRED)\nadd_executable(shared main.cc)
target_compile_features(shared PRIVATE cxx_std_20)\ntarget_link_libraries(shared PRIVATE poolgrad::poolgrad)\n' >"$work/shared/CMakeLists.txt"
cmake -S "$work/shared" -B "$work/shared/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON >"$work/configure.log" &&
  cmake --build "$work/shared/build" >>"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
"$work/shared/build/shared"
if grep -q '^POOLGRAD_SIMD:BOOL=ON' "$build/CMakeCache.txt" && ! grep -q 'poolgrad_static is left out: linking it needs Highway' "$work/configure.log"; then
  echo "find_package(poolgrad) does not say why the static library is left out" >&2
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

# Compilers that are not told take C++17: the first error must say what is wrong.
c++ -std=c++17 -fsyntax-only "$source/examples/consumer/main.cc" "${shared_flags[@]}" 2>"$work/cxx17.log" || true
grep -m 1 error: "$work/cxx17.log" | grep -q 'poolgrad.hpp is C++20: compile with -std=c++20' ||
  { echo "in C++17 poolgrad.hpp does not say first that it is C++20" >&2; exit 1; }

[ "$(pkg-config --modversion poolgrad)" = "$(sed -n 's/^project(poolgrad VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")" ]
soname=$(readelf -d "$libdir/libpoolgrad.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$soname" = libpoolgrad.so.1 ] || { echo "the soname is '$soname'; it must be libpoolgrad.so.1" >&2; exit 1; }

# What users see: of the shared library the C ABI alone, of the static one no plain C name that could meet one of theirs.
"$source/tests/install/exports.sh" "$libdir/libpoolgrad.so"
if plain=$(nm -g --defined-only "$libdir/libpoolgrad.a" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -v -e '^_Z' -e '^poolgrad_' -e '^DW\.ref\.'); then
  echo "libpoolgrad.a defines names outside poolgrad_: $(head -c 400 <<<"$plain")" >&2
  exit 1
fi

# In parts: each component holds what it should and nothing of the others (tests/abi looks at what the library exports).
listing() { # listing COMPONENT: the files that it installs, without versions and folders
  rm -rf "$work/part"
  cmake --install "$build" --prefix "$work/part" --component "$1" >"$work/part.log"
  (cd "$work/part" && find . ! -type d -printf '%f\n' | sort | tr '\n' ' ')
}
version=$(pkg-config --modversion poolgrad)
runtime=$(listing runtime)
[ "$runtime" = "libpoolgrad.so.${version%%.*} libpoolgrad.so.$version " ] || { echo "the component runtime holds $runtime" >&2; exit 1; }
development=$(listing development)
for file in libpoolgrad.a libpoolgrad.so poolgrad.h poolgrad.hpp poolgrad.pc poolgradConfig.cmake poolgradTargets.cmake poolgradStaticTargets.cmake; do
  case " $development" in *" $file "*) ;; *) echo "the component development lacks $file; it holds $development" >&2; exit 1 ;; esac
done
case " $development" in *" libpoolgrad.so.$version "* | *" poolgrad "*) echo "the component development holds $development" >&2; exit 1 ;; esac
if [ -x "$build/cli/poolgrad" ]; then
  command=$(listing command)
  [ "$command" = "poolgrad " ] || { echo "the component command holds $command" >&2; exit 1; }
fi
