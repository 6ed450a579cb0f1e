"""Even pieces in space, as jax.shard_map gives them: devices simulated with NumPy have the bits of the whole, forward and backward."""

from __future__ import annotations

import random
from itertools import product
from typing import Any, Sequence

import numpy as np
import pytest

from poolgrad import Plan, _halo
from poolgrad._abi import DTYPES
from poolgrad._core import CorePlan, make_problem


def _bordered(whole: np.ndarray, own: Sequence[int], sizes: Sequence[int], border: Any) -> np.ndarray:
    """A piece with its borders; beyond the ends of the whole are values that nobody may read."""
    before, after = border
    pads = [(0, 0), *zip(before, after), *[(0, 0)] * (whole.ndim - 1 - len(sizes))]
    padded = np.pad(whole, pads, constant_values=np.nan if whole.dtype.kind == "f" else 3)
    return _cut(padded, own, [b + s + a for b, s, a in zip(before, sizes, after)])


def _cut(array: np.ndarray, at: Sequence[int], size: Sequence[int]) -> np.ndarray:
    assert all(0 <= a and a + s <= n for a, s, n in zip(at, size, array.shape[1:])), (at, size, array.shape)
    return np.ascontiguousarray(array[(slice(None), *(slice(a, a + s) for a, s in zip(at, size)))])


def _bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _draw(rng: random.Random) -> Any:
    """(problem, parts): channels last, so that routes are cut like y."""
    rank = rng.choice((1, 1, 2, 3))
    parts = tuple(rng.choice((1, 2, 3, 4) if rank < 3 else (1, 2)) for _ in range(rank))
    spatial = [rng.randint(1, 12 // rank) * count for count in parts]
    kernel = [rng.randint(1, 5) for _ in range(rank)]
    average = rng.random() < 0.3
    problem = make_problem(
        (2, *spatial, 3), DTYPES["f32"], kernel, [rng.randint(1, 4) for _ in range(rank)],
        rng.choice(("same", "valid", [(rng.randint(-1, 4), rng.randint(-1, 4)) for _ in range(rank)])),
        [rng.choice((1, 1, 2)) for _ in range(rank)], kind="avg" if average else "max", layout="channels_last", dialect="jax",
        ties="first" if average else rng.choice(("first", "last", "split")), relu=not average and rng.random() < 0.3,
    )  # fmt: skip
    return problem, parts


def test_even_pieces_have_the_bits_of_the_whole(rng: random.Random) -> None:
    tried = 0
    while tried < 120:
        problem, parts = _draw(rng)
        plan = CorePlan(problem)
        outs = plan.y_shape[1:-1]
        if any(out == 0 or out % count for out, count in zip(outs, parts)):
            with pytest.raises(ValueError, match=r"spatial axis \d has \d+ outputs; shard_map cuts them evenly"):
                _halo.layout_of(plan.text, parts)
            continue
        tried += 1
        layout = _halo.layout_of(plan.text, parts)
        whole = Plan.parse(plan.text)
        random_ = np.random.default_rng(tried)
        x = random_.integers(-3, 4, plan.x_shape).astype(np.float32)
        dy = random_.standard_normal(plan.y_shape).astype(np.float32)
        y, dx = np.empty_like(dy), np.empty_like(x)
        routes = np.empty((*dy.shape[:-1], dy.shape[-1] * layout.route_bytes), np.uint8)
        places = list(product(*map(range, parts)))
        owned = [tuple(slice(i * n, i * n + n) for i, n in zip(place, layout.outputs)) for place in places]
        for place, job, own in zip(places, layout.forward, owned):
            piece = _bordered(x, [i * n for i, n in zip(place, layout.inputs)], layout.inputs, layout.x_border)
            read, local = _cut(piece, job.at, job.size), Plan.parse(job.text)
            if layout.route_bytes:
                made, kept = local.forward_routes(read)
                routes[(slice(None), *own)] = _cut(kept.data.reshape((*made.shape[:-1], -1)), job.keep, layout.outputs)
            else:
                made = local.forward(read)
            y[(slice(None), *own)] = _cut(made, job.keep, layout.outputs)
        for place, job in zip(places, layout.backward):
            own = [i * n for i, n in zip(place, layout.outputs)]
            into = (slice(None), *(slice(i * n, i * n + n) for i, n in zip(place, layout.inputs)))
            if job.text is None:
                dx[into] = 0
                continue
            parts_of = [_cut(_bordered(one, own, layout.outputs, layout.dy_border), job.at, job.size) for one in (dy, routes)]
            local = Plan.parse(job.text)
            dx[into] = local.backward(parts_of[0], parts_of[1].reshape(-1) if layout.route_bytes else None)
        if layout.route_bytes:
            one_y, one_routes = whole.forward_routes(x)
            one_dx = whole.backward(dy, one_routes)
        else:
            one_y, one_dx = whole.forward(x), whole.backward(dy)
        assert _bits(y) == _bits(one_y), (plan.text, parts)
        assert _bits(dx) == _bits(one_dx), (plan.text, parts)


def test_borders_are_no_wider_than_windows_reach() -> None:
    problem = make_problem((1, 64, 8, 1), 0, (3, 3), (2, 2), "same", layout="channels_last", dialect="jax")
    layout = _halo.layout_of(CorePlan(problem).text, (8, 1))
    assert layout.x_border == ((0, 0), (1, 0)) and layout.dy_border == ((1, 0), (0, 0))
    assert layout.outputs == (4, 4) and len(layout.forward) == 8
    problem = make_problem((1, 64, 1), 0, 2, 2, 0, layout="channels_last", dialect="jax")
    layout = _halo.layout_of(CorePlan(problem).text, (8,))
    assert layout.x_border == layout.dy_border == ((0,), (0,))
