#!/bin/bash
# PyTorch's tests against the torch that is installed, whatever its version, on its GPU or else on the CPU, under poolgrad.torch.everywhere with
# averages: the inputs of its OpInfos (op_infos.py), and, where TORCH_SOURCE names a folder that has test/nn/test_pooling.py, of any version,
# those tests, with and without poolgrad; what fails in both is not poolgrad's. Two minutes; the last lines are a summary.
#
#   POOLGRAD_LIBRARY   the library, with CUDA for a GPU
#   TORCH_SOURCE       PyTorch's source, or a folder with that one file (build/torch-source)
#   PYTHON             the interpreter (python3)
#   LIMIT              seconds for each of the runs side by side (600)
#   OUT                a folder for the logs (build/torch-suite-other)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
python=${PYTHON:-python3}
logs=${OUT:-$root/build/torch-suite-other}
tests=${TORCH_SOURCE:-$root/build/torch-source}/test/nn/test_pooling.py
parts=$(($(nproc) > 8 ? 6 : 2)) limit=${LIMIT:-600}
mkdir -p "$logs/run"
export POOLGRAD_LIBRARY=${POOLGRAD_LIBRARY:-$root/build/release/libpoolgrad.so}
export PYTHONPATH=$root/bindings/python:$here PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=2 POOLGRAD_SUITE_PLAIN=$logs/plain.txt
export POOLGRAD_JIT=${POOLGRAD_JIT:-0}  # thousands of windows, each for one call: kernels made for each would take hours
device=$("$python" -c "import poolgrad, torch; print('cuda' if torch.cuda.is_available() and poolgrad.has_cuda() else 'cpu')") || exit 1
export PYTORCH_TESTING_DEVICE_ONLY_FOR=$device
cd "$logs/run" || exit 1

started=() late="" status=0
for part in $(seq 0 $((parts - 1))); do
  timeout "$limit" "$python" -W ignore "$here/op_infos.py" --device "$device" --part "$part/$parts" >"$logs/op_infos_$part.log" 2>&1 &
  started+=("$!")
done
if [ -f "$tests" ]; then
  cp "$tests" .
  suite() { POOLGRAD_SUITE=$1 timeout "$limit" "$python" -W ignore -m pytest -q --tb=line -p no:cacheprovider -p in_place_of_torchs -k "not large" test_pooling.py >"$logs/$1.log" 2>&1; }
  suite plain
  [ $? != 124 ] || late+=" plain"
  suite everywhere
  case $? in 0) ;; 124) late+=" everywhere" ;; *) status=1 ;; esac
fi
for job in "${started[@]}"; do
  wait "$job"
  case $? in 0) ;; 124) late+=" op_infos" ;; *) status=1 ;; esac
done

echo "== OpInfos on $device"
grep -hv "samples compared\|^all agree" "$logs"/op_infos_*.log | head -30
cat "$logs"/op_infos_*.log | awk '/samples compared/ { ops[$1]; samples += $4; checks += $7 } END { print length(ops), "operators,", samples, "samples,", checks, "checked gradients" }'
echo "== test_pooling.py on $device"
if [ -f "$tests" ]; then
  grep -h "PyTorch's own tests\|failed, and is not\|^E .*Error" "$logs/plain.log" "$logs/everywhere.log" | head -30
else
  echo "not run: $tests does not exist"
fi
[ "$status" = 0 ] && echo "torch_suite: all that was run agrees" || echo "torch_suite: not all agree"
[ -z "$late" ] || { echo "torch_suite: past the limit of $limit s and not finished:$late"; status=1; }
exit "$status"
