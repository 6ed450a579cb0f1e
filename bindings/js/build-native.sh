#!/usr/bin/env bash
# Builds prebuilds/<platform>-<arch>/poolgrad.node where Node's headers are installed; elsewhere says so and leaves the package
# with its WebAssembly engine. The addon speaks Node-API, so one build serves all Node versions from 18 on.
# POOLGRAD_OBJECTS names a build of the library whose objects are linked; without it they are compiled here.
set -euo pipefail
cd "$(dirname "$0")"

build=../../build/node  # as deep as the library's own builds, whose objects ccache then takes
mkdir -p $build
headers=$(node -p "require('path').resolve(process.execPath, '../../include/node')")
if [ ! -f "$headers/node_api.h" ]; then
  echo "no native engine: Node's headers are not in $headers; the package will use WebAssembly"
  exit 0
fi
folder=prebuilds/$(node -p "process.platform + '-' + process.arch")

# shellcheck disable=SC2046  # no word where there is no ccache
cmake -S native -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DNODE_INCLUDE="$headers" \
  -DNODE_ADDON_API_INCLUDE="$PWD/node_modules/node-addon-api" -DPOOLGRAD_OBJECTS="${POOLGRAD_OBJECTS:-}" \
  $(command -v ccache >/dev/null && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) >$build/log 2>&1 || { cat $build/log; exit 1; }
cmake --build $build --target poolgrad_node
mkdir -p "$folder"
cp $build/poolgrad.node "$folder/poolgrad.node"
echo "$folder/poolgrad.node: $(stat -c %s "$folder/poolgrad.node") bytes"
