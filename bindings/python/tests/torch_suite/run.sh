#!/bin/bash
# PyTorch's own tests of pooling, twice (in_place_of_torchs.py): those of max pooling with poolgrad's functions and modules in the place of
# torch's, then those of all pooling under poolgrad.torch.everywhere, averages included; there without those of TorchScript, which is to be
# called outside, and those of which types are refused, as poolgrad takes more; and functorch's of vmap over gradients. They are the
# installed version's: from the folder TORCH_SOURCE names, or else from Debian's source package, which is fetched into build/torch-suite
# once. Where neither can be had, nothing is run, and a line says why. expected_failures*.txt have the few that cannot pass. Further
# arguments go to pytest. Half an hour.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
python=${PYTHON:-/usr/bin/python3}
work=$root/build/torch-suite
both=(nn/test_pooling.py test_ops.py test_ops_gradients.py test_modules.py test_proxy_tensor.py)
in_place=(test_ops_jit.py)
everywhere=(test_nn.py)
files=("${both[@]}" "${in_place[@]}" "${everywhere[@]}")
functorch=(test_ops.py common_utils.py functorch_additional_op_db.py)  # test/functorch, a link to functorch/test
export POOLGRAD_LIBRARY=${POOLGRAD_LIBRARY:-$root/build/release/libpoolgrad.so}
export PYTHONPATH=$root/bindings/python:$here PYTHONDONTWRITEBYTECODE=1

not_run() { echo "test-torch-suite: not run: $1"; exit 0; }

# Debian's source package, by lists of our own: the machine's may name no sources, and stay as they are.
fetch() {
  local version apt=$work/apt
  version=$(dpkg-query -W -f '${source:Upstream-Version}' python3-torch 2>/dev/null) || not_run "python3-torch is not Debian's"
  archive=$(find "$work" -maxdepth 1 -name "pytorch_$version.orig.tar.*" 2>/dev/null | head -1)
  [ -z "$archive" ] || return 0
  mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
  for list in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list; do
    [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$list" >"$apt/sources/$(basename "$list")"
  done
  [ ! -f "$apt/sources/sources.list" ] || mv "$apt/sources/sources.list" "$apt/sources/main.list"
  local options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/sources" -o "Dir::State::lists=$apt/lists"
    -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=)
  (cd "$work" && apt-get "${options[@]}" update && apt-get "${options[@]}" source --tar-only pytorch) >"$work/fetch.log" 2>&1 ||
    not_run "Debian's source package pytorch could not be fetched ($work/fetch.log)"
  archive=$(find "$work" -maxdepth 1 -name "pytorch_$version.orig.tar.*" | head -1)
  [ -n "$archive" ] || not_run "Debian's source package is not of the installed version, $version"
}

"$python" -c "import torch" 2>/dev/null || not_run "torch is not installed"
[ -f "$POOLGRAD_LIBRARY" ] || not_run "$POOLGRAD_LIBRARY does not exist; make build makes it"
rm -rf "$work/test" && mkdir -p "$work/test/functorch"
if [ -n "${TORCH_SOURCE:-}" ]; then
  (cd "$TORCH_SOURCE/test" && cp --parents "${files[@]}" "${functorch[@]/#/functorch/}" "$work/test")
else
  fetch
  tar -xf "$archive" -C "$work/test" --strip-components=2 --wildcards "${files[@]/#/*/test/}"
  tar -xf "$archive" -C "$work/test/functorch" --strip-components=3 --wildcards "${functorch[@]/#/*/functorch/test/}"
fi

cd "$work/test"
run() { "$python" -W ignore -m pytest -q --tb=line -p no:cacheprovider -p in_place_of_torchs "$@"; }
status=0
run -k "(max_pool1d or max_pool2d or max_pool3d or max_pool_nan or MaxPool or maxpool) and not daptive and not ractional" \
  "${both[@]}" "${in_place[@]}" "$@" || status=1
export POOLGRAD_SUITE=everywhere
run -k "(pool or Pool) and not test_dtypes" "${both[@]}" "${everywhere[@]}" "$@" || status=1
run -k "test_vmap_autograd_grad and pool" functorch/test_ops.py "$@" || status=1
exit $status
