"""Pooling split among real processes: ranks.py holds the checks, and every one of them is a test here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import random_window

torch = pytest.importorskip("torch", reason="torch is not installed")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("torch was built without gloo", allow_module_level=True)

import torch.nn.functional as F  # noqa: E402

import poolgrad  # noqa: E402
import poolgrad.torch as P  # noqa: E402
import ranks  # noqa: E402
from poolgrad._core import parse_problem  # noqa: E402
from poolgrad._shard import Split, inside  # noqa: E402
from poolgrad.torch import _dtensor  # noqa: E402
from poolgrad.torch import distributed as split  # noqa: E402


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    path = f"{Path(poolgrad.__file__).resolve().parents[1]}:{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", ranks.__file__, str(folder)], env={**os.environ, "PYTHONPATH": path}, timeout=300,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {
        (size, rank): json.loads((folder / f"{size}-{rank}.json").read_text()) for size in ranks.SIZES for rank in range(size)
    }


@pytest.mark.parametrize("size", ranks.SIZES)
@pytest.mark.parametrize("name", ranks.CHECKS)
def test_ranks(found, size, name):
    for rank in range(size):
        told = found[size, rank].get(name, "it did not come so far")
        assert not told, f"rank {rank} of {size}: {told}"


def test_the_interior_waits_for_nobody(rng):
    """Pieces of a rank's outputs tile them; the first reads what the rank has, wherever some windows lie inside it."""
    for _ in range(60):
        dimensions = rng.randint(1, 3)
        spatial, (kernel, stride, padding, dilation, ceil) = random_window(rng, dimensions)
        cuts = [(0, *sorted(rng.randint(0, n) for _ in range(rng.randint(0, 3))), n) for n in spatial]
        text = "max f32 {} {} k{} s{} p{} d{}{}".format(
            ("ncw", "nchw", "ncdhw")[dimensions - 1], *("x".join(map(str, n)) for n in ([1, 1, *spatial], kernel, stride, padding, dilation)),
            " ceil" * ceil,
        )  # fmt: skip
        split = Split(parse_problem(text), cuts)
        for at in product(*(range(len(axis) - 1) for axis in cuts)):
            shard, pieces = split.shard(at), split.pieces(at)
            found = [place for piece, _ in pieces for place in product(*(range(*axis) for axis in piece.outputs))]
            assert len(found) == len(set(found)) and set(found) == set(product(*(range(*axis) for axis in shard.outputs))), (text, cuts)
            assert all(waits or inside(piece.read, shard.inputs) for piece, waits in pieces), (text, cuts)
    split = Split(parse_problem("max f32 nchw 1x1x16x16 k3 s2 p1"), [(0, 8, 16), (0, 8, 16)])
    told = [([end - begin for begin, end in piece.outputs], waits) for piece, waits in split.pieces((0, 0))]
    assert told == [([4, 4], False), ([1, 5], True), ([4, 1], True)]


def test_over_nccl_ranks_agree_in_memory_of_a_gpu_whatever_they_were_given(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    nccl = SimpleNamespace(by_cpu=False, by_gpu=True, calls=0)
    found = [split._Wire(None, nccl, torch.device(device)).device for device in ("cpu", "meta", "cuda:0")]
    assert found == [torch.device(device) for device in ("cuda:1", "cuda:1", "cuda:0")]
    monkeypatch.setattr(split.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(split.dist, "get_rank", lambda group: 0)
    monkeypatch.setattr(split, "_ranks_of", lambda group: nccl)
    monkeypatch.setattr(split._Wire, "agree", lambda self, call: (call,))
    with pytest.raises(ValueError, match="x_local is on cpu; the group's backend is nccl, which moves memory of GPUs only"):
        split.max_pool2d(torch.ones(1, 1, 4, 4), 2, group=object())


def test_outside_a_process_group():
    with pytest.raises(RuntimeError, match="call torch.distributed.init_process_group first"):
        split.max_pool2d(torch.ones(1, 1, 4, 4), 2)


# ---- DTensor, which came long after torch 1.13: a stand-in with what is used of it; the real one is a check of ranks.py ---------------


class Placement:
    def __init__(self, dim=None, partial=False):
        self.dim, self.partial = dim, partial

    def is_shard(self):
        return self.dim is not None

    def is_partial(self):
        return self.partial


class DTensor:
    """Half of a tensor."""

    device_mesh = None

    def __init__(self, whole, placements):
        self.whole, self.shape, self.placements = whole, whole.shape, placements

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self.whole.stride()

    def to_local(self):
        return self.whole[: len(self.whole) // 2]

    @staticmethod
    def from_local(piece, mesh, placements, run_check, shape, stride):
        return piece, tuple(shape), stride


def test_what_a_dtensor_is_given(monkeypatch):
    x = torch.randn(5, 3, 9, 8)
    with pytest.raises(TypeError, match=r"max_pool2d takes those from torch 2.4 on, and this is .*: give it x.to_local\(\)"):
        monkeypatch.setattr(_dtensor, "_VERSION", (2, 3))
        P.max_pool2d(DTensor(x, (Placement(0),)), 3)
    monkeypatch.setattr(_dtensor, "_VERSION", (2, 4))
    with pytest.raises(ValueError, match=r"sharded in dimension 3, a spatial one; adaptive_avg_pool2d has no windows of different sizes there"):
        P.adaptive_avg_pool2d(DTensor(x, (Placement(0), Placement(-1))), 3)
    with pytest.raises(ValueError, match=r"sharded in dimension 2, a spatial one; max_pool2d has no indices there"):
        P.max_pool2d(DTensor(x, (Placement(2),)), 3, return_indices=True)
    with pytest.raises(ValueError, match=r"sharded in dimension 2, 2, a spatial one by the placements .*; give each such dimension one"):
        P.max_pool2d(DTensor(x, (Placement(2), Placement(2))), 3)
    with pytest.raises(ValueError, match="DTensor of partial sums; call redistribute on it first"):
        P.relu_max_pool2d(DTensor(x, (Placement(partial=True),)), 3)
    y, shape, stride = P.max_pool2d(DTensor(x, (Placement(0),)), 3)
    assert torch.equal(y, P.max_pool2d(x[:2], 3)) and shape == (5, 3, 3, 2) and stride == (18, 6, 2, 1)
    (y, shape, stride), (indices, _, _) = P.max_pool2d(
        DTensor(x.contiguous(memory_format=torch.channels_last), (Placement(), Placement(1))), 3, return_indices=True
    )
    assert shape == (5, 3, 3, 2) and stride == (18, 1, 6, 3) and torch.equal(indices, F.max_pool2d(x[:2], 3, return_indices=True)[1])


@pytest.mark.skipif(not ranks.HAS_DTENSOR, reason="DTensor is pooled with torch 2.4 and later")
def test_dtensors_of_torch():
    assert {"dtensors_are_pooled_where_they_lie", "dtensors_of_two_mesh_dimensions"} <= ranks.CHECKS.keys()
