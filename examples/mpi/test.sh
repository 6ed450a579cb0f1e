#!/usr/bin/env bash
# Builds the MPI example against a built library and runs it with 2, 4 and 8 ranks: examples/mpi/test.sh BUILD_DIR
# It fails where a byte differs from one process, and where it exchanges other bytes than bench/scale.py computes.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")"
mpicc -std=c11 -O2 -Wall -Wextra -Werror -I../../include split_volume.c -L"$build" -lpoolgrad -Wl,-rpath,"$build" -o "$build/split_volume"
# More ranks than cores, as root, and in a container, whose processes may not read each other's memory.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0
for ranks in 2 4; do
  timeout 60 mpirun -np $ranks "$build/split_volume" "max f32 ncdhw 2x3x9x8x7 k4x2x5 s1x3x2 d2x1x1 p2x1x2 ceil"
done
timeout 120 python3 ../../bench/scale.py --check "$build/split_volume"
