"""Windows by table (adaptive pooling among them) and relu, through the NumPy functions, against plain NumPy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import poolgrad


def adaptive_table(size, outputs):
    starts = [o * size // outputs for o in range(outputs)]
    return starts, [-(-(o + 1) * size // outputs) - start for o, start in enumerate(starts)]


def random_table(rng, size):
    outputs = int(rng.integers(1, 6))
    starts = sorted(int(n) for n in rng.integers(0, size, outputs))
    return starts, [int(rng.integers(1, size - start + 1)) for start in starts]


def plain(x, tables, dy=None, average=False, relu=False):
    """(y, dx) of x of shape (N, C, ...), one window at a time; dx goes to the first maximum."""
    starts, sizes = zip(*tables)
    y = np.empty((*x.shape[:2], *map(len, starts)), x.dtype)
    dx = np.zeros_like(x)
    for o in np.ndindex(y.shape):
        box = tuple(slice(s[i], s[i] + n[i]) for s, n, i in zip(starts, sizes, o[2:]))
        window = x[o[:2]][box]
        if average:
            total = x.dtype.type(0)
            for value in window.ravel():
                total += value
            y[o] = total / x.dtype.type(window.size)
            if dy is not None:
                dx[o[:2]][box] += dy[o] / x.dtype.type(window.size)
            continue
        at = np.unravel_index(np.argmax(window), window.shape)
        y[o] = max(window[at], 0) if relu else window[at]
        if dy is not None and not (relu and window[at] <= 0):
            dx[o[:2]][box][at] += dy[o]
    return y, dx


def to_last(array):
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
def test_tables_equal_plain_numpy(rank, layout):
    rng = np.random.default_rng(rank)
    laid = to_last if layout == "channels_last" else np.ascontiguousarray
    for number in range(60):
        spatial = tuple(int(n) for n in rng.integers(1, 12 if rank < 3 else 7, rank))
        x = rng.integers(-3, 4, (2, 3, *spatial)).astype(rng.choice([np.float32, np.float64]))
        outputs = None
        if number % 2:
            outputs = tuple(int(n) for n in rng.integers(1, 8, rank))
            tables = [adaptive_table(*pair) for pair in zip(spatial, outputs)]
        else:
            tables = [random_table(rng, size) for size in spatial]
        starts, sizes = zip(*tables)
        relu = bool(number % 3 == 0)
        dy = rng.integers(-9, 10, (2, 3, *map(len, starts))).astype(x.dtype)
        told = f"{spatial} {tables} {x.dtype}"
        y, dx = plain(x, tables, dy, relu=relu)
        if outputs:
            found, routes = poolgrad.adaptive_max_pool(laid(x), outputs, layout=layout, relu=relu, return_routes=True)
        else:
            rules = dict(layout=layout, relu=relu, starts=starts, sizes=sizes)
            found, routes = poolgrad.max_pool(laid(x), None, return_routes=True, **rules)
            assert np.array_equal(poolgrad.max_pool_grad(laid(dy), x=laid(x), **rules), laid(dx)), told
        assert np.array_equal(found, laid(y)), told
        assert np.array_equal(poolgrad.max_pool_grad(laid(dy), routes), laid(dx)), told
        y, dx = plain(x, tables, dy, average=True)
        if outputs:
            found = poolgrad.adaptive_avg_pool(laid(x), outputs, layout=layout)
            gradient = poolgrad.adaptive_avg_pool_grad(laid(dy), laid(x).shape, layout=layout)
        else:
            rules = dict(layout=layout, starts=starts, sizes=sizes)
            found = poolgrad.avg_pool(laid(x), None, **rules)
            gradient = poolgrad.avg_pool_grad(laid(dy), laid(x).shape, None, **rules)
        assert np.array_equal(found, laid(y)), told
        assert np.allclose(gradient, laid(dx), rtol=1e-5, atol=1e-5), told


def test_fractional_tables_and_axes_without_one():
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 10), np.float32)
    y = poolgrad.max_pool(x, 3, starts=[[0, 2, 6], [0, 3, 5, 7]])
    assert np.array_equal(y, plain(x, [([0, 2, 6], [3] * 3), ([0, 3, 5, 7], [3] * 4)])[0])
    y = poolgrad.max_pool(x, (3, 5), starts=[[0, 2, 6], None])  # the second axis has windows of 5, one after the other
    assert np.array_equal(y, plain(x, [([0, 2, 6], [3] * 3), ([0, 5], [5, 5])])[0])


@pytest.mark.parametrize("ties", ["first", "last", "split", "all"])
def test_relu_is_relu_then_max(ties):
    rng = np.random.default_rng(7)
    x = rng.integers(-4, 3, (2, 5, 9, 11)).astype(np.float32)
    x[0, 0] = -1
    y, routes = poolgrad.max_pool(x, 3, 2, 1, relu=True, ties=ties, return_routes=True)
    rectified = np.maximum(x, 0)
    assert np.array_equal(y, poolgrad.max_pool(rectified, 3, 2, 1))
    dy = rng.integers(-9, 10, y.shape).astype(np.float32)
    expected = np.where(x > 0, poolgrad.max_pool_grad(dy, x=rectified, kernel=3, stride=2, padding=1, ties=ties), 0)
    assert np.array_equal(poolgrad.max_pool_grad(dy, routes), expected)
    assert np.array_equal(poolgrad.max_pool_grad(dy, x=x, kernel=3, stride=2, padding=1, ties=ties, relu=True), expected)
    if ties in ("first", "last"):
        indices = poolgrad.max_pool(x, 3, 2, 1, relu=True, ties=ties, return_indices="torch")[1]
        assert np.array_equal(indices == -1, y == 0)
    _, ty = poolgrad.jvp(x, np.ones_like(x), 3, 2, 1, relu=True)
    assert np.array_equal(ty, (y > 0).astype(np.float32))


def test_relu_keeps_nan():
    x = np.array([[[-1, np.nan, 2, -3, -4, -5]]], np.float32)
    y, routes = poolgrad.max_pool(x, 3, relu=True, return_routes=True)
    assert np.isnan(y[0, 0, 0]) and y[0, 0, 1] == 0
    assert np.array_equal(poolgrad.max_pool_grad(np.ones_like(y), routes), [[[0, 1, 0, 0, 0, 0]]])


def test_plans_with_tables_are_values():
    """Equal tables are the same windows wherever they lie; a plan can be pickled, and serves another type."""
    x = np.random.default_rng(1).standard_normal((1, 2, 9)).astype(np.float32)
    first, second = (poolgrad.Plan(x.shape, None, starts=[[0, 4]], sizes=[[5, 4]]) for _ in range(2))
    y, routes = first.forward_routes(x)
    dx = first.backward(y, routes)
    assert np.array_equal(second.backward(y, routes), dx)
    with pytest.raises(ValueError, match="routes belong to the problem"):
        poolgrad.Plan(x.shape, None, starts=[[0, 4]], sizes=[[4, 5]]).backward(y, routes)
    again = pickle.loads(pickle.dumps(routes))
    assert np.array_equal(poolgrad.max_pool_grad(y, again), dx)
    assert np.array_equal(poolgrad.max_pool_grad(y.astype(np.float64), routes), dx)
    adaptive = pickle.loads(pickle.dumps(poolgrad.Plan(x.shape, None, outputs=4)))
    assert np.array_equal(adaptive.forward(x), poolgrad.adaptive_max_pool(x, 4))


def test_arrays_of_tables_may_go():
    """The tables are the plan's own: what the caller does with its lists and arrays afterwards changes nothing."""
    starts = np.array([0, 2, 5])
    plan = poolgrad.Plan((1, 1, 8), 3, starts=[starts])
    starts[:] = 99
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    assert np.array_equal(plan.forward(x), [[[2, 4, 7]]])
    assert np.array_equal(plan.with_dtype(np.float64).forward(x.astype(np.float64)), [[[2, 4, 7]]])


@pytest.mark.parametrize(
    "arguments, options, sentence",
    [
        ((None,), {}, "kernel is None; it must be an integer"),
        ((None,), dict(starts=[[0, 4]]), "kernel is None; axis 0 has no sizes of its own"),
        ((None,), dict(sizes=[[2, 2]]), r"sizes\[0\] is given without starts\[0\]; give both"),
        ((None,), dict(starts=[[0, 4]], sizes=[[2]]), r"sizes\[0\] has 1 entries and starts\[0\] has 2"),
        ((None,), dict(starts=[[0, 9]], sizes=[[2, 2]]), r"starts\[0\]\[1\] is 9; a window of 2 taps inside 8 inputs"),
        ((None,), dict(starts=[[3, 1]], sizes=[[2, 2]]), r"starts\[0\]\[1\] is 1; starts never fall, and the one before is 3"),
        ((2, 2), dict(starts=[[0, 4]]), "stride is 2; windows by table start where the table says"),
        ((2, None, 1), dict(starts=[[0, 4]]), r"padding\[0\] is 1; windows by table lie inside a whole input"),
        ((2,), dict(starts=[[0, 4]], sizes=[[2, 2]]), "kernel is 2; every axis has windows of sizes of its own"),
        ((2,), dict(starts=[[0], [4]]), "starts has 2 entries; give one sequence, or None, per spatial axis: 1"),
        ((2,), dict(starts=[]), "starts has 0 entries"),
        ((2,), dict(starts=[[]]), r"starts\[0\] has no entries"),
    ],
)
def test_bad_tables(arguments, options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        poolgrad.max_pool(np.zeros((1, 1, 8), np.float32), *arguments, **options)


def test_bad_tables_of_other_forms():
    x = np.zeros((1, 1, 8), np.float32)
    with pytest.raises(TypeError, match="starts is 3; it must have one sequence of integers per spatial axis"):
        poolgrad.max_pool(x, 2, starts=3)
    with pytest.raises(TypeError, match=r"starts\[0\]\[1\] is 1.5; it must be an integer"):
        poolgrad.max_pool(x, 2, starts=[[0, 1.5]])
    with pytest.raises(ValueError, match=r"output_size\[0\] is 0; it must be at least 1"):
        poolgrad.adaptive_max_pool(x, 0)
    with pytest.raises(ValueError, match=r"^output_size\[0\] is 16777217; a table has 1 to 2\^24 windows"):
        poolgrad.adaptive_max_pool(x, 2**24 + 1)
    with pytest.raises(ValueError, match="output_size has 2 entries"):
        poolgrad.adaptive_avg_pool(x, (2, 2))
    with pytest.raises(ValueError, match="relu is 1; only max pooling rectifies"):
        poolgrad.Plan(x.shape, 2, kind="avg", relu=True)
