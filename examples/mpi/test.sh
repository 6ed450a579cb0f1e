#!/usr/bin/env bash
# Builds the MPI example against a built library and runs it with 1, 2, 4 and 8 ranks: examples/mpi/test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")"
mpicc -std=c11 -O2 -Wall -Wextra -Werror -I../../include split_volume.c -L"$build" -lpoolgrad -Wl,-rpath,"$build" -o "$build/split_volume"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_base_warn_component_unused=0
for ranks in 1 2 4 8; do
  for problem in "max f32 ncdhw 1x4x20x24x28 k3 s2 p1" "max f32 ncdhw 2x3x9x8x7 k4x2x5 s1x3x2 d2x1x1 p2x1x2 ceil"; do
    timeout 60 mpirun --oversubscribe -np $ranks "$build/split_volume" "$problem"
  done
done
