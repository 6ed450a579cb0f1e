"""Adaptive pooling: the cells and PyTorch's functions of `bench/gpu/compare.py --adaptive`.

Maxima and averages of the sizes that networks use, signals as images of one row. Where windows come out alike and equally far apart they
are ordinary ones, and get those kernels.
"""
import math

import torch
import torch.nn.functional as F

# name: batch, channels, sizes, output sizes
CASES = {
    "alexnet6": (512, 256, (13, 13), (6, 6)),
    "vgg7": (256, 512, (14, 14), (7, 7)),
    "vgg7_256": (256, 512, (8, 8), (7, 7)),
    "spp3": (512, 256, (13, 13), (3, 3)),
    "spp6": (512, 256, (14, 14), (6, 6)),
    "psp1": (16, 1024, (60, 60), (1, 1)),
    "psp2": (16, 1024, (60, 60), (2, 2)),
    "psp3": (16, 1024, (60, 60), (3, 3)),
    "psp6": (16, 1024, (60, 60), (6, 6)),
    "psp7": (16, 1024, (60, 60), (7, 7)),
    "large7": (32, 64, (224, 224), (7, 7)),
    "large6": (32, 64, (224, 224), (6, 6)),
    "half32": (64, 64, (100, 100), (32, 32)),
    "gap": (1024, 1024, (7, 7), (1, 1)),
    "grow": (512, 128, (7, 7), (10, 10)),
    "signal": (64, 256, (1, 2000), (1, 128)),
    "video": (16, 128, (16, 28, 28), (4, 7, 7)),
    "video_odd": (16, 128, (15, 25, 25), (4, 7, 7)),
}
MAX = {2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
AVERAGE = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def draw(random, elements):
    """kind, batch, channels, sizes, output sizes, drawn at random; about `elements` inputs. Now and then more outputs than inputs."""
    rank = random.choices((1, 2, 3), (2, 6, 2))[0]
    channels = random.choice((1, 3, 8 * random.randint(1, 64), 16 * random.randint(1, 32), random.randint(1, 512)))
    low, high = {1: (64, 4096), 2: (7, 224), 3: (6, 48)}[rank]
    sizes = [random.randint(low, high)] * rank if random.random() < 0.6 else [random.randint(low, high) for _ in range(rank)]
    most = lambda n: max(1, round(n * random.choice((0.05, 0.2, 0.5, 0.5, 1, 1.5))))
    outputs = [random.randint(1, most(n)) for n in sizes]
    if rank == 1:
        sizes, outputs = [1] + sizes, [1] + outputs
    batch = max(1, round(elements / (channels * math.prod(sizes))))
    return random.choice(("max", "avg")), batch, channels, tuple(sizes), tuple(outputs)


def cases(kind):
    return {f"{kind}_{name}": (kind, *case) for name, case in CASES.items()}


class Cell:
    """One case in one type and layout: its tensors, in `sets` copies."""

    sets = 3

    def __init__(self, name, case, dtype, layout, torch_type, layouts):
        self.kind, batch, channels, sizes, self.outputs = case
        self.name, self.dtype, self.layout, self.rank = name, dtype, layout, len(sizes)
        self.kernel = [math.ceil(n / out) for n, out in zip(sizes, self.outputs)]  # about
        memory_format = torch.contiguous_format
        if layout == "last":
            memory_format = torch.channels_last if self.rank == 2 else torch.channels_last_3d
        make = lambda shape: torch.randn(batch, channels, *shape, device="cuda", dtype=torch_type).contiguous(
            memory_format=memory_format
        )
        self.x = [make(sizes) for _ in range(self.sets)]
        self.dy = [make(self.outputs) for _ in range(self.sets)]
        shape = (batch, channels, *sizes) if layout == "first" else (batch, *sizes, channels)
        numbers = lambda values: "x".join(map(str, values))
        self.text = f"{self.kind} {dtype} {layouts[self.rank, layout]} {numbers(shape)} adaptive={numbers(self.outputs)} torch cuda"

    def least_bytes(self, op, route_bytes):
        both = (self.x[0].numel() + self.dy[0].numel()) * self.x[0].element_size()
        return both + (0 if op == "fwd" else route_bytes)


class Eager:
    name = "torch"

    def __call__(self, cell):
        aten = torch.ops.aten
        if cell.kind == "avg":
            pool = AVERAGE[cell.rank]
            backward = {2: aten._adaptive_avg_pool2d_backward, 3: aten._adaptive_avg_pool3d_backward}[cell.rank]
            return {"fwd": lambda s: pool(cell.x[s], cell.outputs), "bwd": lambda s: backward(cell.dy[s], cell.x[s])}
        pool = MAX[cell.rank]
        backward = {2: aten.adaptive_max_pool2d_backward, 3: aten.adaptive_max_pool3d_backward}[cell.rank]
        indices = [pool(cell.x[s], cell.outputs, return_indices=True)[1] for s in range(cell.sets)]
        return {
            "fwd": lambda s: pool(cell.x[s], cell.outputs),
            "train": lambda s: pool(cell.x[s], cell.outputs, return_indices=True)[0],
            "bwd": lambda s: backward(cell.dy[s], cell.x[s], indices[s]),
        }
