#!/bin/bash
# Everything the Python package owes on a machine with a GPU, torch 2.4 or later and JAX, in one go: builds the library there,
# runs the tests (CPU and CUDA, opcheck, gradcheck, torch.compile, JAX FFI) side by side, then measures alone, and prints a
# short summary last. Nothing is installed: the package is run from the tree.
#
#   POOLGRAD_LIBRARY      a built libpoolgrad.so with CUDA; then nothing is built
#   POOLGRAD_CMAKE_ARGS   further arguments for CMake; Highway, where the machine lacks it, is switched off by itself
#   POOLGRAD_PYTEST       a folder to find pytest in, where Python has none
#   PYTHON                the interpreter (python3)
#   OUT                   a folder for the full logs (build/device-python)
set -uo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
python=${PYTHON:-python3}
logs=${OUT:-$root/build/device-python}
mkdir -p "$logs"
started=$SECONDS

if [ -z "${POOLGRAD_LIBRARY:-}" ]; then
  arguments=()
  has_header() { echo "#include <$1>" | g++ -E -x c++ - >/dev/null 2>&1; }
  has_header hwy/highway.h || arguments+=(-DPOOLGRAD_SIMD=OFF)
  build=$root/build/device-python-lib
  # shellcheck disable=SC2086
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOOLGRAD_TESTS=OFF -DPOOLGRAD_CLI=OFF -DPOOLGRAD_CUDA=ON \
    "${arguments[@]}" ${POOLGRAD_CMAKE_ARGS:-} >"$logs/build.log" 2>&1 &&
    cmake --build "$build" --target poolgrad --parallel >>"$logs/build.log" 2>&1 ||
    { tail -30 "$logs/build.log"; echo "device_check: the build failed"; exit 1; }
  export POOLGRAD_LIBRARY=$build/libpoolgrad.so
fi
echo "library ready after $((SECONDS - started)) s"

export PYTHONPATH=$root/bindings/python${POOLGRAD_PYTEST:+:$POOLGRAD_PYTEST}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false POOLGRAD_CACHE=$logs/cache
"$python" - <<'EOF' || exit 1
import numpy, poolgrad
print("poolgrad", poolgrad.version(), poolgrad.simd_target(), "CUDA" if poolgrad.has_cuda() else "no CUDA", "| numpy", numpy.__version__)
for name in ("torch", "jax", "ml_dtypes", "pytest"):
    try:
        print(name, __import__(name).__version__)
    except ImportError as error:
        print(name, "is missing:", error)
EOF

cd "$logs" || exit 1
jobs_started=()
check() {  # check NAME PYTEST-ARGUMENTS...
  local name=$1
  shift
  timeout 200 "$python" -W ignore -m pytest -q -p no:cacheprovider -o console_output_style=classic --tb=short "$@" >"$name.log" 2>&1 &
  jobs_started+=("$!")
}
tests=$root/bindings/python/tests
check numpy "$tests/test_numpy.py"
check torch-cpu "$tests/test_torch.py" -k "not cuda"
check torch-cuda-thousand "$tests/test_torch.py" -k "cuda and thousand"
check torch-cuda "$tests/test_torch.py" -k "cuda and not thousand"
check torch-compile "$tests/test_torch_compile.py" -k "not cuda"
check torch-compile-cuda "$tests/test_torch_compile.py" -k "cuda"
check torch-dispatch "$tests/test_torch_dispatch.py"
check torch-pooling "$tests/test_torch_pooling.py" "$tests/test_torch_everywhere.py" "$tests/test_torch_fuse.py"
check torch-distributed "$tests/test_torch_distributed.py"
check jax "$tests/test_jax.py" "$tests/test_cache.py"
check jax-sharding "$tests/test_jax_sharding.py" "$tests/test_halo.py"
wait "${jobs_started[@]}"
echo "tests done after $((SECONDS - started)) s"

timeout 60 "$python" -W ignore "$root/bindings/python/bench/overhead.py" >overhead.log 2>&1
timeout 60 "$python" -W ignore "$root/bindings/python/bench/models.py" --device cuda --batch 256 --rounds 9 >models-cuda.log 2>&1
timeout 60 "$python" -W ignore "$root/bindings/python/bench/models.py" --device cpu --batch 8 --rounds 5 >models-cpu.log 2>&1

for log in overhead models-cuda models-cpu; do
  echo "== $log"
  tail -12 "$log.log" | cut -c1-240
done
for log in numpy torch-cpu torch-cuda-thousand torch-cuda torch-compile torch-compile-cuda torch-dispatch torch-pooling torch-distributed jax jax-sharding; do
  echo "== $log: $(tail -1 "$log.log")"
  grep -E "^(FAILED|ERROR|E  )|not tested here" "$log.log" | cut -c1-240 | head -14
done
echo "device_check: $((SECONDS - started)) s in all"
