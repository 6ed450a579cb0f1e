"""A problem split in space among ranks: poolgrad_shard_of and poolgrad_shard_halo in Python's words.

The library does all the arithmetic of windows; what is not asked of it here is only where boxes overlap. Knows neither NumPy, torch
nor a transport.
"""

from __future__ import annotations

from ctypes import POINTER, byref, c_int64, cast, sizeof
from typing import Any, Callable, List, Optional, Sequence, Tuple

from . import _abi
from ._core import Words

Box = Tuple[Tuple[int, int], ...]  # (begin, end) on every axis, counted in the whole
At = Tuple[int, ...]  # which piece of every axis a rank has


def overlap(a: Box, b: Box) -> Optional[Box]:
    both = tuple((max(one[0], other[0]), min(one[1], other[1])) for one, other in zip(a, b))
    return both if all(begin < end for begin, end in both) else None


def inside(a: Box, b: Box) -> bool:
    return all(other[0] <= one[0] and one[1] <= other[1] for one, other in zip(a, b))


def sizes_of(box: Box) -> Tuple[int, ...]:
    return tuple(end - begin for begin, end in box)


class Shard:
    """What one rank has to do: boxes, and its two problems, or None where it has nothing to compute."""

    def __init__(self, found: _abi.Shard, forward: _abi.Problem, backward: _abi.Problem, rank: int) -> None:
        def box(name: str) -> Box:
            return tuple(zip(getattr(found, f"{name}_begin")[:rank], getattr(found, f"{name}_end")[:rank]))

        self.inputs, self.outputs, self.read, self.over = map(box, ("in", "out", "read", "over"))
        self.forward = forward if found.has_forward else None
        self.backward = backward if found.has_backward else None


class Split:
    """A whole problem, and where each of its axes is cut: numbers from 0 to the axis' size that never fall."""

    def __init__(self, problem: _abi.Problem, cuts: Sequence[Tuple[int, ...]], words: Words = ()) -> None:
        self.problem, self.cuts, self.words = problem, tuple(cuts), words
        self.rank: int = problem.rank
        self._parts = (c_int64 * 3)(*(len(axis) - 1 for axis in cuts))
        self._kept = [(c_int64 * len(axis))(*axis) for axis in cuts]
        self._cuts = (POINTER(c_int64) * 3)(*(cast(axis, POINTER(c_int64)) for axis in self._kept))

    def shard(self, at: At) -> Shard:
        found = _abi.Shard(struct_size=sizeof(_abi.Shard))
        forward, backward = _abi.Problem(), _abi.Problem()
        place = (c_int64 * 3)(*at)
        self._ask(_abi.library().poolgrad_shard_of, place, byref(found), byref(forward), byref(backward))
        return Shard(found, forward, backward, self.rank)

    def halo(self, giver: At, taker: At, what: str) -> Box:
        """What `giver` sends to `taker`: a box of inputs ("x") or of outputs ("dy"); empty on some axis: nothing."""
        begin, end = (c_int64 * 3)(), (c_int64 * 3)()
        ask = _abi.library().poolgrad_shard_halo
        self._ask(ask, (c_int64 * 3)(*giver), (c_int64 * 3)(*taker), _abi.HALOS[what], begin, end)
        return tuple(zip(begin[: self.rank], end[: self.rank]))

    def _ask(self, function: Any, *arguments: Any) -> None:
        status = function(byref(self.problem), self._parts, self._cuts, *arguments)
        if status:
            _abi.raise_status(status, self.words)

    def pieces(self, at: At) -> List[Tuple[Shard, bool]]:
        """A rank's outputs in pieces, and whether each waits for others' inputs: the interior first, which does not, then one more
        for every axis on which some windows reach beyond what the rank owns. Where there is no interior, all of it at once."""
        whole, split, found = self.shard(at), self, []
        if whole.forward is None:
            return []
        for axis in range(self.rank):
            begin, end = whole.inputs[axis]
            if whole.read[axis][1] > end:
                split = split._cut_again(axis, at, split._last_inside(axis, at, begin, end))
                found.append(split.shard((*at[:axis], at[axis] + 1, *at[axis + 1 :])))
        interior = split.shard(at)
        if interior.forward is None or not inside(interior.read, whole.inputs):
            return [(whole, True)]
        return [(interior, False), *((piece, True) for piece in found if piece.forward is not None)]

    def _last_inside(self, axis: int, at: At, begin: int, end: int) -> int:
        """The last place such that the windows that begin before it read nothing at `end` or beyond."""
        return _last(begin, end, lambda cut: self._cut_again(axis, at, cut).shard(at).read[axis][1] <= end)

    def _cut_again(self, axis: int, at: At, cut: int) -> "Split":
        here = self.cuts[axis]
        again = (*here[: at[axis] + 1], cut, *here[at[axis] + 1 :])
        return Split(self.problem, (*self.cuts[:axis], again, *self.cuts[axis + 1 :]), self.words)


def around(problem: _abi.Problem, outputs: Box, words: Words = ()) -> Optional[Shard]:
    """The smallest shard that owns at least these outputs, whoever has their inputs; None where there are none."""
    if not all(begin < end for begin, end in outputs):
        return None
    sizes = tuple(problem.in_[: problem.rank])
    cuts = []
    for axis, (size, (begin, end)) in enumerate(zip(sizes, outputs)):

        def starts_before(cut: int) -> int:
            """How many windows of the axis begin before an input."""
            whole = [(0, cut, n) if i == axis else (0, n) for i, n in enumerate(sizes)]  # noqa: B023
            return Split(problem, whole, words).shard(tuple(int(i == axis) for i in range(len(sizes)))).outputs[axis][0]  # noqa: B023

        first = _last(0, size, lambda cut: starts_before(cut) <= begin)  # noqa: B023
        cuts.append((0, first, _last(first, size, lambda cut: starts_before(cut) < end) + 1, size))  # noqa: B023
    return Split(problem, cuts, words).shard((1,) * problem.rank)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last number from `low`, where it holds, to before `high`, where it need not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
