#!/bin/bash
# Builds projects that take poolgrad as sources: by FetchContent and by add_subdirectory, shared and static. The library is built with the
# reference alone and without optimizing, since only the way in is tried; the second project links the objects of the first.
set -euo pipefail
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_BASEDIR=/  # or the folder's name, which is new every time, would make every object new
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

objects=
for way in fetch_content add_subdirectory; do
  mkdir "$work/$way"
  cp "$source"/examples/consumer/main.c* "$work/$way"
  {
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(consumer LANGUAGES C CXX)\n'
    case $way in
      fetch_content) printf 'include(FetchContent)\nFetchContent_Declare(poolgrad SOURCE_DIR %s)\nFetchContent_MakeAvailable(poolgrad)\n' "$source" ;;
      add_subdirectory) printf 'add_subdirectory(%s poolgrad)\n' "$source" ;;
    esac
    for kind in poolgrad poolgrad_static; do
      printf 'add_executable(with_%s main.cc)\ntarget_link_libraries(with_%s PRIVATE poolgrad::%s)\n' $kind $kind $kind
      printf 'target_compile_features(with_%s PRIVATE cxx_std_20)\n' $kind
    done
    printf 'add_executable(in_c main.c)\ntarget_link_libraries(in_c PRIVATE poolgrad::poolgrad)\n'
  } >"$work/$way/CMakeLists.txt"
  build=$work/$way/build
  cmake -S "$work/$way" -B "$work/$way/simd" -G Ninja >"$work/log" 2>&1 || { tail -40 "$work/log"; exit 1; }  # Highway is found through us
  cmake -S "$work/$way" -B "$build" -G Ninja -DPOOLGRAD_SIMD=OFF -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O0 -DPOOLGRAD_OBJECTS="$objects" "${launcher[@]}" >"$work/log" 2>&1 && cmake --build "$build" >"$work/log" 2>&1 ||
    { tail -40 "$work/log"; exit 1; }
  for program in with_poolgrad with_poolgrad_static in_c; do "$build/$program"; done
  # A project that only uses the library builds neither tests nor command line.
  if find "$build" -name poolgrad_cli -o -name core_tests -o -name c_test | grep -q .; then
    echo "$way builds more than the library" >&2
    exit 1
  fi
  objects=$build/_deps/poolgrad-build
done
