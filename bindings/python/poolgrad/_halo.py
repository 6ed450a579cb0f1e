"""A problem split in space among devices that all run one program on pieces of one size, as under jax.shard_map.

There x is cut evenly and so must y be: device i owns the i-th of `parts` equal runs of outputs, wherever their windows begin. Which
inputs those read, which outputs lie over a device's inputs, and the problems to run come from the library (_shard), with cuts chosen so
that it gives a device at least its own outputs. All devices exchange borders as wide as the widest any of them needs.
"""

from __future__ import annotations

from ctypes import byref
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, Optional, Tuple

from . import _abi
from ._core import CorePlan, Words, parse_problem
from ._shard import Split, around, sizes_of

Sizes = Tuple[int, ...]


class Job(NamedTuple):
    """What one device does in one direction: the problem, what it reads of the piece with its borders, what it keeps of the result."""

    text: Optional[str]  # None: no window reaches its inputs, and its dx is 0
    at: Sizes
    size: Sizes
    keep: Sizes


class Layout(NamedTuple):
    x_border: Tuple[Sizes, Sizes]  # before and after a piece, on every axis
    dy_border: Tuple[Sizes, Sizes]
    inputs: Sizes  # of a piece
    outputs: Sizes
    route_bytes: int  # of an output; 0 for averages
    forward: Tuple[Job, ...]  # of every device, in row-major order
    backward: Tuple[Job, ...]


def _text_of(problem: Any) -> str:
    return _abi.read_text(_abi.library().poolgrad_problem_format, byref(problem))


@lru_cache(maxsize=256)
def layout_of(text: str, parts: Sizes, words: Words = ()) -> Layout:
    """The layout of the whole problem `text`, whose axes are cut into so many parts."""
    problem = parse_problem(text)
    plan = CorePlan(problem)
    rank = plan.rank
    outs = plan.y_shape[1:-1] if plan.channels_last else plan.y_shape[2:]
    for axis, (out, count) in enumerate(zip(outs, parts)):
        if out % count or not out:
            raise ValueError(
                f"spatial axis {axis} has {out} outputs; shard_map cuts them evenly among its {count} devices, so they must be a multiple of that"
            )
    inputs = tuple(size // count for size, count in zip(problem.in_, parts))
    outputs = tuple(out // count for out, count in zip(outs, parts))
    even = [tuple(size * i for i in range(count + 1)) for size, count in zip(inputs, parts)]
    found = []
    for place in product(*map(range, parts)):
        forward = around(problem, tuple((i * out, i * out + out) for i, out in zip(place, outputs)), words)
        backward = Split(problem, even, words).shard(place)
        own_x = tuple(i * size for i, size in zip(place, inputs))
        own_y = tuple(i * size for i, size in zip(place, outputs))
        found.append((forward, backward, own_x, own_y))

    def border(boxes: Any, sizes: Sizes) -> Tuple[Sizes, Sizes]:
        before = tuple(max([0, *(own[a] - box[a][0] for box, own in boxes)]) for a in range(rank))
        after = tuple(max([0, *(box[a][1] - own[a] - sizes[a] for box, own in boxes)]) for a in range(rank))
        return before, after

    x_border = border([(forward.read, own_x) for forward, _, own_x, _ in found], inputs)
    dy_border = border([(backward.over, own_y) for _, backward, _, own_y in found if backward.backward], outputs)

    def at(box: Any, own: Sizes, before: Sizes) -> Sizes:
        return tuple(box[a][0] - own[a] + before[a] for a in range(rank))

    forwards, backwards = [], []
    for forward, backward, own_x, own_y in found:
        keep = tuple(own_y[a] - forward.outputs[a][0] for a in range(rank))
        forwards.append(Job(_text_of(forward.forward), at(forward.read, own_x, x_border[0]), sizes_of(forward.read), keep))
        if backward.backward is None:
            backwards.append(Job(None, (0,) * rank, (0,) * rank, (0,) * rank))
        else:
            text = _text_of(backward.backward)
            backwards.append(Job(text, at(backward.over, own_y, dy_border[0]), sizes_of(backward.over), (0,) * rank))
    route_bytes = CorePlan(found[0][0].forward).route_bits // 8
    return Layout(x_border, dy_border, inputs, outputs, route_bytes, tuple(forwards), tuple(backwards))
