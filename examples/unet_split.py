"""A training step of a small 3-D U-Net, the volume cut in depth among ranks, against the same step in one process.

    python3 examples/unet_split.py [--ranks 2] [--size 32] [--dtype float32]

Pooling is poolgrad.torch.distributed's, and has the bits of one process. Convolutions exchange a plane with each neighbour (Border, below);
their sums, and so loss and gradients, are only nearly the same, since torch's convolution adds in an order that depends on the shape.
Prints how far they are off, and what each rank saves for backward and needs at its peak; fails if they are off by more than rounding.
"""

from __future__ import annotations

import argparse
import datetime
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd import Function

import poolgrad.torch
import poolgrad.torch.distributed

CHANNELS = 8


class Border(Function):
    """x between a plane of each neighbour, or of zeros at the volume's border; the gradient of those planes goes back to their owners."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        low, high = swap(x[:, :, :1], x[:, :, -1:])
        return torch.cat((low, x, high), 2)

    @staticmethod
    def backward(ctx: Any, dx: torch.Tensor) -> torch.Tensor:
        low, high = swap(dx[:, :, :1], dx[:, :, -1:])
        dx = dx[:, :, 1:-1].clone()
        dx[:, :, :1] += low
        dx[:, :, -1:] += high
        return dx


def swap(low: torch.Tensor, high: torch.Tensor) -> List[torch.Tensor]:
    """Gives the neighbours these planes, and returns theirs."""
    rank, found, works = dist.get_rank(), [], []
    for neighbour, plane in ((rank - 1, low.contiguous()), (rank + 1, high.contiguous())):
        found.append(torch.zeros_like(plane))
        if 0 <= neighbour < dist.get_world_size():
            works += [dist.irecv(found[-1], neighbour), dist.isend(plane, neighbour)]
    for work in works:
        work.wait()
    return found


def weights(dtype: torch.dtype) -> List[torch.Tensor]:
    generator, c = torch.Generator().manual_seed(1), CHANNELS
    shapes = [(c, 1, 3, 3, 3), (c, c, 3, 3, 3), (2 * c, c, 3, 3, 3), (c, 3 * c, 3, 3, 3), (1, c, 1, 1, 1)]
    return [(torch.randn(shape, generator=generator) / 6).to(dtype).requires_grad_() for shape in shapes]


def unet(x: torch.Tensor, w: List[torch.Tensor], split: bool) -> torch.Tensor:
    pool: Any = poolgrad.torch.distributed if split else poolgrad.torch

    def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv3d(Border.apply(x), w, padding=(0, 1, 1)) if split else F.conv3d(x, w, padding=1)

    stem = pool.relu_max_pool3d(conv(x, w[0]), 3, 2, 1)  # whose windows reach over the cut
    skip = conv(stem, w[1]).relu()
    deep = conv(pool.max_pool3d(skip, 2), w[2]).relu()
    up = F.interpolate(deep, scale_factor=2.0)
    return F.conv3d(conv(torch.cat((skip, up), 1), w[3]).relu(), w[4])


def cuts(size: int, ranks: int) -> List[int]:
    """Where the depth is cut. A window belongs to the rank that has its first input, and the stem's begin at -1, 1, 3, ...: two planes before
    a multiple of 4 the pieces behind the stem are even, and the second pool and the skip connection fit."""
    return [0, *(size // 4 * rank // ranks * 4 - 2 for rank in range(1, ranks)), size]


def step(size: int, dtype: torch.dtype, split: bool) -> Dict[str, Any]:
    """One step on this process' piece: loss, gradients of the weights and of its x, and memory."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, size, size, size, generator=generator).to(dtype)
    goal = F.avg_pool3d(x, 2)
    places = size // 2  # of y, in depth
    if split:
        rank, where = dist.get_rank(), cuts(size, dist.get_world_size())
        x = x[:, :, where[rank] : where[rank + 1]].clone()
        where = [(cut + 2) // 2 if 0 < cut < size else cut // 2 for cut in where]
        goal = goal[:, :, where[rank] : where[rank + 1]].clone()
    x.requires_grad_()
    w = weights(dtype)
    saved: Dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.storage().data_ptr()] = tensor.storage().nbytes()
        return tensor

    before = memory("VmRSS")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = (unet(x, w, split) - goal).square().sum() / places**3
    loss.backward()
    gradients = [one.grad for one in w]
    loss = loss.detach()
    if split:
        for one in (loss, *gradients):
            dist.all_reduce(one)
    return {
        "loss": loss, "weights": gradients, "x": x.grad, "saved": sum(saved.values()), "peak": max(0, memory("VmHWM") - before),
    }  # fmt: skip


def memory(name: str) -> int:
    """Bytes of this process, as Linux counts them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    return 0


def run_rank(number: int, ranks: int, folder: str, size: int, dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    if ranks > 1:
        wait = datetime.timedelta(seconds=60)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=ranks, timeout=wait)
    torch.save(step(size, dtype, ranks > 1), f"{folder}/{ranks}-{number}")


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest, against the largest entry."""
    return float((one - other).abs().max() / one.abs().max())


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--size", type=int, default=32)
    options.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    given = options.parse_args()
    if given.size % 4 or given.size // 4 < given.ranks:
        options.error(f"--size is {given.size}; it must be a multiple of 4, at least {4 * given.ranks}")
    dtype = getattr(torch, given.dtype)
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for ranks in (1, given.ranks):  # one after the other, each in processes of its own, so that their memory can be compared
            torch.multiprocessing.start_processes(run_rank, (ranks, folder, given.size, dtype), ranks, start_method="fork")
            found[ranks] = [torch.load(f"{folder}/{ranks}-{number}") for number in range(ranks)]
    (one,), split = found[1], found[given.ranks]
    worst = max(difference(a, b) for a, b in zip(one["weights"], split[0]["weights"]))
    worst_x = difference(one["x"], torch.cat([rank["x"] for rank in split], 2))
    loss = difference(one["loss"], split[0]["loss"])
    print(f"loss {float(one['loss']):.6f}, off by {loss:.0e}; gradients of the weights by {worst:.0e}, of x by {worst_x:.0e}")
    print(f"one process: {one['saved'] / 1e6:.1f} MB saved for backward, {one['peak'] / 1e6:.0f} MB at its peak")
    for number, rank in enumerate(split):
        print(f"rank {number} of {given.ranks}: {rank['saved'] / 1e6:.1f} MB saved for backward, {rank['peak'] / 1e6:.0f} MB at its peak")
    bound = 1e-4 if dtype is torch.float32 else 1e-12
    assert max(loss, worst, worst_x) < bound, f"off by more than {bound}"


if __name__ == "__main__":
    main()
