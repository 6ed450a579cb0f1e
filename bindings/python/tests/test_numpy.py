"""The NumPy functions against a definition written with loops, on every rule and layout, and the plumbing around them."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import Any, List, Tuple

import numpy as np
import pytest

import poolgrad


def define(x: np.ndarray, kernel, stride, pads, dilation, ties: str, nan: str) -> Tuple[np.ndarray, List[Any]]:
    """(y, winners): y of channels-first x with floor rounding, and per output the flat x positions of its winners."""
    spatial = x.shape[2:]
    outs = [(n + lo + hi - (k - 1) * d - 1) // s + 1 for n, k, s, d, (lo, hi) in zip(spatial, kernel, stride, dilation, pads)]
    y = np.empty((*x.shape[:2], *outs), x.dtype)
    winners = []
    for at in np.ndindex(*y.shape):
        best, who = None, []
        for tap in itertools.product(*(range(k) for k in kernel)):
            place = tuple(o * s - lo + t * d for o, s, (lo, _), t, d in zip(at[2:], stride, pads, tap, dilation))
            if not all(0 <= p < n for p, n in zip(place, spatial)):
                continue
            v = x[(*at[:2], *place)]
            flat = np.ravel_multi_index((*at[:2], *place), x.shape)
            if best is None and nan == "ignore":
                best = -np.inf
            if best is None or _beats(v, best, nan):
                best, who = v, [flat]
            elif v == best and not np.isnan(v):
                who = {"first": who, "last": [flat], "split": who + [flat], "all": who + [flat]}[ties]
        y[at] = best
        winners.append(who)
    return y, winners


def _beats(v: float, best: float, nan: str) -> bool:
    if np.isnan(v) or np.isnan(best):
        return {
            "propagate_first": np.isnan(v) and not np.isnan(best),
            "propagate_last": np.isnan(v),
            "first_place": False,
            "greater_equal": True,
            "ignore": False,
        }[nan]
    return v > best


def spread(dy: np.ndarray, winners: List[Any], shape, ties: str) -> np.ndarray:
    dx = np.zeros(int(np.prod(shape)), dy.dtype)
    for value, who in zip(dy.ravel(), winners):
        for flat in who:
            dx[flat] += value / len(who) if ties == "split" else value
    return dx.reshape(shape)


def values(rng, shape, with_nan: bool) -> np.ndarray:
    x = np.array([rng.choice([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0]) for _ in range(int(np.prod(shape)))], np.float32)
    if with_nan:
        x[[rng.randrange(x.size) for _ in range(max(1, x.size // 6))]] = np.nan
    return x.reshape(shape)


@pytest.mark.parametrize("nan", ["propagate_first", "propagate_last", "first_place", "greater_equal", "ignore"])
@pytest.mark.parametrize("ties", ["first", "last", "split", "all"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rule_equals_the_definition(rng, rank, ties, nan):
    for _ in range(4):
        kernel = [rng.randint(1, 3) for _ in range(rank)]
        stride = [rng.randint(1, 3) for _ in range(rank)]
        dilation = [rng.randint(1, 2) for _ in range(rank)]
        pads = [(rng.randint(0, k // 2), rng.randint(0, k // 2)) for k in kernel]
        spatial = [rng.randint((k - 1) * d + 1, 7) for k, d in zip(kernel, dilation)]
        x = values(rng, (2, 3, *spatial), with_nan=ties in ("first", "last"))
        y, winners = define(x, kernel, stride, pads, dilation, ties, nan)
        got, routes = poolgrad.max_pool(x, kernel, stride, pads, dilation, ties=ties, nan=nan, return_routes=True)
        assert np.array_equal(got, y, equal_nan=True)
        dy = np.array([rng.choice([-2.0, 1.0, 4.0]) for _ in range(y.size)], np.float32).reshape(y.shape)
        dx = spread(dy, winners, x.shape, ties)
        np.testing.assert_allclose(poolgrad.max_pool_grad(dy, routes), dx, rtol=1e-5, atol=1e-5)
        window = dict(kernel=kernel, stride=stride, padding=pads, dilation=dilation, ties=ties, nan=nan)
        assert np.array_equal(poolgrad.max_pool_grad(dy, x=x, **window), poolgrad.max_pool_grad(dy, routes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32])
def test_types_and_layouts_agree(rng, dtype):
    x = np.array([rng.randint(0, 9) for _ in range(2 * 3 * 7 * 6)], dtype).reshape(2, 3, 7, 6)
    y = poolgrad.max_pool(x, 3, 2, 1)
    assert y.dtype == x.dtype
    assert np.array_equal(y, poolgrad.max_pool(x.astype(np.float32), 3, 2, 1))
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    assert np.array_equal(np.moveaxis(poolgrad.max_pool(last, 3, 2, 1, layout="channels_last"), -1, 1), y)


def test_routes_of_integers_serve_floats():
    x = np.arange(64, dtype=np.int32).reshape(1, 1, 8, 8)
    y, routes = poolgrad.max_pool(x, 2, return_routes=True)
    dx = poolgrad.max_pool_grad(np.ones(y.shape, np.float64), routes)
    assert dx.dtype == np.float64 and dx.sum() == y.size
    with pytest.raises(ValueError, match="integer types have no gradient"):
        poolgrad.max_pool_grad(np.ones(y.shape, np.int32), routes)


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes, which gives NumPy a bfloat16, is not installed")
    x = np.arange(64).reshape(1, 1, 8, 8).astype(ml_dtypes.bfloat16)
    y, routes = poolgrad.max_pool(x, 2, return_routes=True)
    assert y.dtype == x.dtype and y[0, 0, 0, 0] == 9
    assert poolgrad.max_pool_grad(y, routes).dtype == x.dtype
    assert poolgrad.Plan(x.shape, 2, dtype="bfloat16").forward(x)[0, 0, 3, 3] == 63


def test_padding_words():
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 9)).astype(np.float32)
    assert poolgrad.max_pool(x, 3, 2, "same").shape == (1, 2, 4, 5)
    assert poolgrad.max_pool(x, 3, 2, "valid").shape == (1, 2, 3, 4)
    low = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 0)), constant_values=-np.inf)
    assert np.array_equal(poolgrad.max_pool(x, (3, 2), (2, 2), "same_lower"), poolgrad.max_pool(low, (3, 2), (2, 2)))
    assert np.array_equal(
        poolgrad.max_pool(x, 2, 1, [(1, 0), (0, 1)]),
        poolgrad.max_pool(np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)), constant_values=-np.inf), 2, 1),
    )


def test_rounding_and_dialects():
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    assert poolgrad.max_pool(x, 3, 2).shape == (1, 1, 3)
    assert poolgrad.max_pool(x, 3, 2, rounding="ceil").shape == (1, 1, 4)
    nans = np.array([np.nan, np.nan, 1, 2], np.float32).reshape(1, 1, 4)
    first = poolgrad.max_pool(nans, 2, return_indices="torch")[1]
    torch = poolgrad.max_pool(nans, 2, dialect="torch", return_indices="torch")[1]
    forced = poolgrad.max_pool(nans, 2, dialect="torch", nan="propagate_first", return_indices="torch")[1]
    assert first.ravel().tolist() == [0, 3] and torch.ravel().tolist() == [1, 3] and forced.ravel().tolist() == [0, 3]
    assert poolgrad.max_pool(nans, 2, dialect="tfjs").ravel().tolist() == [-np.inf, 2]


def test_numberings():
    x = np.arange(2 * 2 * 4 * 4, dtype=np.float32).reshape(2, 2, 4, 4)
    _, routes, torch = poolgrad.max_pool(x, 2, return_routes=True, return_indices="torch")
    assert torch[1, 1].ravel().tolist() == [5, 7, 13, 15] and torch.dtype == np.int64
    assert np.array_equal(routes.indices("onnx").ravel(), x.ravel()[routes.indices("onnx").ravel()])
    plan = routes.plan
    assert np.array_equal(plan.routes_from_indices(torch, "torch").data, routes.data)
    with pytest.raises(ValueError, match="ind"):
        plan.routes_from_indices(torch + 2, "torch")
    y = plan.forward(x)
    assert np.array_equal(plan.unpool_indices(y, torch), poolgrad.unpool(y, routes))


def test_average(rng):
    x = np.array([rng.random() for _ in range(2 * 3 * 6 * 5)]).reshape(2, 3, 6, 5)
    y = poolgrad.avg_pool(x, 2)
    np.testing.assert_allclose(y, x[:, :, :6, :4].reshape(2, 3, 3, 2, 2, 2).mean((3, 5)))
    dy = np.ones_like(y)
    dx = poolgrad.avg_pool_grad(dy, x.shape, 2)
    np.testing.assert_allclose((dx * x).sum(), (dy * y).sum())
    counted = poolgrad.avg_pool(x, 3, 1, 1, count_padding=True)
    np.testing.assert_allclose(counted, poolgrad.avg_pool(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), 3, 1))
    np.testing.assert_allclose(poolgrad.avg_pool(x, 2, divisor=8), y / 2)
    np.testing.assert_allclose(poolgrad.avg_pool(x, 3, 1, 1, dialect="torch"), counted)
    with pytest.raises(ValueError, match="divisor is 0"):
        poolgrad.avg_pool(x, 2, divisor=0)
    with pytest.raises(ValueError, match="no routes"):
        poolgrad.Plan(x.shape, 2, dtype=np.float64, kind="avg").forward_routes(x)


def test_derivatives_are_one_matrix(rng):
    x = np.array([rng.random() for _ in range(2 * 2 * 7 * 6)]).reshape(2, 2, 7, 6)
    tx, dy_seed = np.cos(x * 9), np.sin(x * 7)
    y, back = poolgrad.vjp(x, 3, 2, 1)
    _, ty = poolgrad.jvp(x, tx, 3, 2, 1)
    dy = dy_seed.ravel()[: y.size].reshape(y.shape)
    jacobian = poolgrad.jacobian(x, 3, 2, 1)
    np.testing.assert_array_equal((jacobian @ tx.ravel()).reshape(y.shape), ty)
    np.testing.assert_allclose((jacobian.T @ dy.ravel()).reshape(x.shape), back(dy))
    np.testing.assert_allclose((dy * ty).sum(), (back(dy) * tx).sum())
    assert jacobian.shape == (y.size, x.size) and jacobian.nnz == y.size


def test_jacobian_without_scipy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.sparse", None)
    values_, columns, row_start = poolgrad.jacobian(np.arange(4.0).reshape(1, 1, 4), 2)
    assert values_.tolist() == [1, 1] and columns.tolist() == [1, 3] and row_start.tolist() == [0, 1, 2]


def test_plan_with_out():
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)
    plan = poolgrad.Plan(x.shape, 3, 2, 1)
    y, dx = np.empty(plan.y_shape, np.float32), np.empty(plan.x_shape, np.float32)
    kept = np.empty(plan.route_bytes, np.uint8)
    got, routes = plan.forward_routes(x, out=y, routes_out=kept)
    assert got is y and routes.data is kept
    assert plan.backward(y, routes, out=dx) is dx
    assert np.array_equal(plan.backward(y, kept), dx)
    assert np.array_equal(plan.backward_x(y, x), dx)
    assert np.array_equal(plan.gather(x, routes), y)
    one = poolgrad.Plan.parse("max f32 nchw 2x3x8x8 k3 s2 p1", threads=1)
    assert np.array_equal(one.forward(x), y) and one.text == plan.text
    assert "forward" in plan.explain() and plan.algorithm("backward")
    assert poolgrad.Plan(x.shape, 3, 2, 1, algorithm="reference").algorithm("forward") == "reference"


def test_pickle():
    x = np.random.default_rng(2).standard_normal((1, 2, 9, 9)).astype(np.float32)
    y, routes = poolgrad.max_pool(x, 3, 2, return_routes=True)
    again = pickle.loads(pickle.dumps(routes))
    assert again.plan.text == routes.plan.text
    assert np.array_equal(poolgrad.max_pool_grad(y, again), poolgrad.max_pool_grad(y, routes))


def test_strided_and_read_only_inputs():
    base = np.random.default_rng(3).standard_normal((2, 3, 16, 16)).astype(np.float32)
    view = base[:, :, ::2, 1::2]
    assert np.array_equal(poolgrad.max_pool(view, 2), poolgrad.max_pool(view.copy(), 2))
    frozen = base.copy()
    frozen.flags.writeable = False
    assert np.array_equal(poolgrad.max_pool(frozen, 2), poolgrad.max_pool(base, 2))
    assert poolgrad.max_pool([[[1.0, 3.0, 2.0]]], 3).tolist() == [[[3.0]]]


def test_empty_batch():
    y, routes = poolgrad.max_pool(np.empty((0, 3, 8, 8), np.float32), 2, return_routes=True)
    assert y.shape == (0, 3, 4, 4) and poolgrad.max_pool_grad(y, routes).shape == (0, 3, 8, 8)


class Exporter:
    """Anything with DLPack: here an array that hides its other protocols."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return (self.device, 0)


def test_dlpack_without_a_copy():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    assert np.shares_memory(poolgrad._arrays.as_array(Exporter(x), "x"), x)
    assert poolgrad.max_pool(Exporter(x), 2).ravel().tolist() == [5, 7, 13, 15]
    with pytest.raises(TypeError, match="x lies on DLPack device 2; the NumPy functions take CPU memory"):
        poolgrad.max_pool(Exporter(x, device=2), 2)


def test_torch_tensors_whose_memory_is_not_their_values():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.randn(1, 1, 2, 2)
    with pytest.raises(TypeError, match=r"x is a torch tensor whose sign is still to be changed; call resolve_neg\(\) on it first"):
        poolgrad.max_pool(torch.complex(x, x).conj().imag, 2)
    with pytest.raises(TypeError, match="x is a Tensor that cannot be read through DLPack: .*detach"):
        poolgrad.max_pool(x.requires_grad_(), 2)


def test_bad_input_is_refused_and_nothing_is_written():
    x = np.zeros((1, 2, 6, 6), np.float32)
    cases = [
        (ValueError, "dimensions", lambda: poolgrad.max_pool(x[0, 0], 2)),
        (ValueError, r"stride\[0\] is -1; every stride must be at least 1", lambda: poolgrad.max_pool(x, 2, -1)),
        (ValueError, r"kernel\[0\] is 0", lambda: poolgrad.max_pool(x, 0)),
        (ValueError, "longer than the padded input", lambda: poolgrad.max_pool(x, 7)),
        (ValueError, "kernel has 3 entries", lambda: poolgrad.max_pool(x, (2, 2, 2))),
        (ValueError, "padding is 'full'", lambda: poolgrad.max_pool(x, 2, padding="full")),
        (ValueError, "padding has 1 entries", lambda: poolgrad.max_pool(x, 2, padding=[(1, 1)])),
        (ValueError, "ties is 'most'", lambda: poolgrad.max_pool(x, 2, ties="most")),
        (ValueError, "dialect is 'caffe'", lambda: poolgrad.max_pool(x, 2, dialect="caffe")),
        (ValueError, "return_indices is 'caffe'", lambda: poolgrad.max_pool(x, 2, return_indices="caffe")),
        (TypeError, "kernel is 2.5; it must be an integer", lambda: poolgrad.max_pool(x, 2.5)),
        (TypeError, "kernel is None; it must be an integer", lambda: poolgrad.max_pool(x, None)),
        (TypeError, "x has the type object", lambda: poolgrad.max_pool(np.array([[[None] * 4]]), 2)),
        (TypeError, "x has the type int64", lambda: poolgrad.max_pool(np.zeros((1, 1, 4), np.int64), 2)),
        (TypeError, "x has the type >f4", lambda: poolgrad.max_pool(x.astype(">f4"), 2)),
        (TypeError, "routes is a str", lambda: poolgrad.max_pool_grad(x, "routes")),
        (ValueError, "needs routes, or x and kernel", lambda: poolgrad.max_pool_grad(x)),
        (TypeError, "unexpected keyword argument 'kind'", lambda: poolgrad.max_pool_grad(x, x=x, kernel=2, kind="avg")),
        (TypeError, "unexpected keyword argument 'ties'", lambda: poolgrad.avg_pool_grad(x, x.shape, 2, ties="all")),
        (TypeError, "return_routes was given", lambda: poolgrad.vjp(x, 2, return_routes=True)),
        (ValueError, r"threads is 4097; it must be from 0 \(all\) to 4096", lambda: poolgrad.Plan(x.shape, 2, threads=4097)),
    ]
    for kind, sentence, call in cases:
        with pytest.raises(kind, match=sentence):
            call()

    plan = poolgrad.Plan(x.shape, 2)
    y, routes = plan.forward_routes(x)
    other = poolgrad.Plan((1, 2, 8, 8), 2).forward_routes(np.zeros((1, 2, 8, 8), np.float32))[1]
    marked = np.full(plan.y_shape, 7, np.float32)
    frozen = marked.copy()
    frozen.flags.writeable = False
    dx = np.full(plan.x_shape, 7, np.float32)
    beside = np.zeros(marked.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(plan.y_shape)
    beside[...] = 7
    runs = [
        (ValueError, "out is read-only", lambda: plan.forward(x, out=frozen), frozen),
        (ValueError, "out is not contiguous", lambda: plan.forward(x, out=marked.transpose(0, 1, 3, 2)), marked),
        (ValueError, "out is not aligned", lambda: plan.forward(x, out=beside), beside),
        (ValueError, "out has the shape", lambda: plan.forward(x, out=marked[:, :1]), marked),
        (TypeError, "out has the type", lambda: plan.forward(x, out=marked.astype(np.float64)), marked),
        (TypeError, "out is a list", lambda: plan.forward(x, out=[1.0]), marked),
        (ValueError, "x has the shape", lambda: plan.forward(x[:, :1], out=marked), marked),
        (TypeError, "x has the type", lambda: plan.forward(x.astype(np.float64), out=marked), marked),
        (ValueError, "routes belong to the problem", lambda: plan.backward(y, other, out=dx), dx),
        (ValueError, "routes has 3 bytes", lambda: plan.backward(y, np.zeros(3, np.uint8), out=dx), dx),
        (TypeError, "routes is a float32", lambda: plan.backward(y, np.zeros(3, np.float32), out=dx), dx),
        (ValueError, "dy has the shape", lambda: plan.backward(x, routes, out=dx), dx),
    ]
    for kind, sentence, call, untouched in runs:
        with pytest.raises(kind, match=sentence):
            call()
        assert (untouched == 7).all()


def test_threads_run_at_the_same_time():
    """The GIL is free while kernels run: a thread goes on counting during one long call, and plans are shared."""
    x = np.random.default_rng(4).standard_normal((4, 16, 128, 128)).astype(np.float32)
    plan = poolgrad.Plan(x.shape, 9, 1, 4, threads=1, algorithm="reference")
    counted, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            counted[0] += 1

    watcher = threading.Thread(target=count)
    watcher.start()
    before = counted[0]
    first = plan.forward(x)
    during = counted[0] - before
    done.set()
    watcher.join()
    results: List[Any] = [None] * 4

    def run(i: int) -> None:
        results[i] = poolgrad.max_pool(x[i : i + 1], 9, 1, 4)

    workers = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert np.array_equal(np.concatenate(results), first)
    assert during > 1000


def test_integers_do_not_wrap_and_nothing_else_passes_for_one():
    x = np.zeros((1, 2, 6, 6), np.float32)
    poolgrad.max_pool(x, 2), poolgrad.max_pool(x, (2, 2)), poolgrad.max_pool(x, 1)  # what a cache might find again
    big = 2**64 + 2
    plan = poolgrad.Plan(x.shape, 2)
    y, routes = plan.forward_routes(x)
    indices = plan.indices(routes)
    wrong = [
        ("kernel", lambda: poolgrad.max_pool(x, big)),
        (r"kernel\[1\]", lambda: poolgrad.max_pool(x, (2, big))),
        ("stride", lambda: poolgrad.max_pool(x, 2, big)),
        ("padding", lambda: poolgrad.max_pool(x, 2, padding=big)),
        (r"padding\[0\]", lambda: poolgrad.max_pool(x, 2, padding=[(0, big), (0, 0)])),
        ("dilation", lambda: poolgrad.max_pool(x, 2, dilation=2**64 + 1)),
        (r"shape\[0\]", lambda: poolgrad.Plan((2**64 + 1, 2, 6, 6), 2)),
        (r"x_shape\[0\]", lambda: poolgrad.avg_pool_grad(y, (2**64 + 1, 2, 6, 6), 2)),
        ("divisor", lambda: poolgrad.avg_pool(x, 2, divisor=2**64 + 4)),
        ("route_bits", lambda: poolgrad.Plan(x.shape, 2, route_bits=2**32 + 4)),
        ("threads", lambda: poolgrad.Plan(x.shape, 2, threads=2**32 + 1)),
        (r"index_shape\[0\]", lambda: plan.unpool_indices(y, indices, index_shape=(2**64 + 6, 6))),
    ]
    for name, call in wrong:
        with pytest.raises(ValueError, match=f"^{name} is [0-9]+; it must lie between"):
            call()
    with pytest.raises(ValueError, match="indices has the entry 18446744073709551615; an index must be less than 2"):
        plan.routes_from_indices(np.full(plan.y_shape, 2**64 - 1, np.uint64))
    for name, call in [
        ("kernel is 2.0", lambda: poolgrad.max_pool(x, 2.0)),
        (r"kernel\[0\] is 2.0", lambda: poolgrad.max_pool(x, (2.0, 2))),
        ("kernel is True", lambda: poolgrad.max_pool(x, True)),
        ("kernel is (np.)?True_?", lambda: poolgrad.max_pool(x, np.bool_(True))),
        (r"stride\[0\] is (np.)?True_?", lambda: poolgrad.max_pool(x, 1, np.array([True, True]))),
        (r"kernel\[1\] is True", lambda: poolgrad.max_pool(x, (1, True))),
        ("stride is '2'|stride is 2.5", lambda: poolgrad.max_pool(x, 2, 2.5)),
        ("divisor is 2.0", lambda: (poolgrad.avg_pool(x, 2, divisor=2), poolgrad.avg_pool(x, 2, divisor=2.0))),
    ]:
        with pytest.raises(TypeError, match=f"{name}; it must be an integer"):
            call()
    assert poolgrad.max_pool(x, np.array([2, 3]), np.int64(1)).shape == (1, 2, 5, 4)


def test_sentences_are_in_the_callers_words():
    x = np.zeros((1, 2, 6, 6), np.float32)
    plan = poolgrad.Plan(x.shape, 2)
    cases = [
        (ValueError, r"padding\[0\] is -1; padding must be at least 0; dialect='jax' alone crops by negative padding",
         lambda: poolgrad.max_pool(x, 2, padding=-1)),
        (ValueError, r"padding\[1\] is -2", lambda: poolgrad.max_pool(x, 2, padding=[(0, 0), (0, -2)])),
        (ValueError, "op is 'nope'; it must be one of: forward", lambda: plan.scratch_bytes("nope")),
        (ValueError, "op is 'nope'; it must be one of: forward", lambda: plan.algorithm("nope")),
        (TypeError, "text is None; it must be a string, such as 'max", lambda: poolgrad.Plan.parse(None)),
        (ValueError, "has no NUL in it", lambda: poolgrad.Plan.parse("max f32 ncw 1x1x4 k2\0 s3")),
        (TypeError, "algorithm is 5; it must be a name", lambda: poolgrad.Plan(x.shape, 2, algorithm=5)),
        (TypeError, "x_shape is 6; it must be a tuple", lambda: poolgrad.avg_pool_grad(x, 6, 2)),
        (TypeError, "shape is 6; it must be a tuple", lambda: poolgrad.Plan(6, 2)),
        (TypeError, "index_shape is 6; it must be a tuple",
         lambda: plan.unpool_indices(plan.forward(x), np.zeros(plan.y_shape, int), index_shape=6)),
        (TypeError, "dtype is 'nope'; poolgrad takes float32", lambda: poolgrad.Plan(x.shape, 2, dtype="nope")),
        (TypeError, r"layout is \['ncw'\]; it must be a string", lambda: poolgrad.max_pool(x, 2, layout=["ncw"])),
        (TypeError, "relu is 'no'; it must be True or False", lambda: poolgrad.max_pool(x, 2, relu="no")),
        (TypeError, "count_padding is 'no'; it must be True or False", lambda: poolgrad.avg_pool(x, 2, count_padding="no")),
        (ValueError, "divisor is -3; it must be at least 1, or None", lambda: poolgrad.avg_pool(x, 2, divisor=-3)),
        (ValueError, "return_indices is 'nope'; it must be one of: torch", lambda: poolgrad.max_pool(x, 2, return_indices="nope")),
        (TypeError, "return_indices is True; it must be a string: torch", lambda: poolgrad.max_pool(x, 2, return_indices=True)),
        (TypeError, "x has the type int32; average pooling takes float32", lambda: poolgrad.avg_pool(x.astype(np.int32), 2)),
        (TypeError, "dy has the type int8; average pooling takes float32",
         lambda: poolgrad.adaptive_avg_pool_grad(x.astype(np.int8), (1, 2, 9, 9))),
    ]  # fmt: skip
    for kind, sentence, call in cases:
        with pytest.raises(kind, match=sentence):
            call()


def test_out_that_shares_memory_is_refused_and_untouched():
    plan = poolgrad.Plan((1, 1, 4, 4), 1)
    memory = np.arange(40, dtype=np.float32)
    x, over = memory[:16].reshape(1, 1, 4, 4), memory[8:24].reshape(1, 1, 4, 4)
    beside = memory[16:32].reshape(1, 1, 4, 4)
    routes_in_x = memory[:16].view(np.uint8)[: plan.route_bytes]
    _, routes = plan.forward_routes(x.copy())
    before = memory.copy()
    cases = [
        ("out shares memory with x", lambda: plan.forward(x, out=x)),
        ("out shares memory with x", lambda: plan.forward(x, out=over)),
        ("out shares memory with x", lambda: plan.forward_routes(x, out=over)),
        ("routes_out shares memory with x", lambda: plan.forward_routes(x, routes_out=routes_in_x)),
        ("routes_out shares memory with out", lambda: plan.forward_routes(beside, out=x, routes_out=routes_in_x)),
        ("out shares memory with dy", lambda: plan.backward(x, routes, out=over)),
        ("out shares memory with routes", lambda: plan.backward(beside, routes_in_x, out=x)),
        ("out shares memory with x", lambda: plan.backward_x(beside, x, out=x)),
        ("out shares memory with tx", lambda: plan.gather(x, routes, out=x)),
        ("out shares memory with y", lambda: plan.unpool(x, routes, out=x)),
    ]
    for sentence, call in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
        assert np.array_equal(memory, before)
    assert np.array_equal(plan.forward(x, out=beside), x)  # neighbours are no overlap


def test_what_routes_already_know_is_not_given_again():
    x = np.random.default_rng(4).standard_normal((1, 2, 6, 6)).astype(np.float32)
    y, routes = poolgrad.max_pool(x, 2, return_routes=True)
    for extra in ({"stride": 99}, {"padding": 0}, {"dilation": 1}, {"kernel": 2}, {"ties": "last"}, {"x": x}):
        name = next(iter(extra))
        with pytest.raises(ValueError, match=f"routes and {name} were both given"):
            poolgrad.max_pool_grad(y, routes, **extra)


def test_padding_words_in_any_case_and_masked_arrays():
    x = np.random.default_rng(5).standard_normal((1, 2, 7, 9)).astype(np.float32)
    for word in ("SAME", "Same", "VALID", "SAME_LOWER"):
        assert np.array_equal(poolgrad.max_pool(x, 3, 2, word), poolgrad.max_pool(x, 3, 2, word.lower()))
    masked = np.ma.masked_array(x, x > 0)
    with pytest.raises(TypeError, match=r"x is a masked array, and pooling knows no mask; fill it first.*x.filled\(-np.inf\)"):
        poolgrad.max_pool(masked, 2)
    with pytest.raises(TypeError, match="x is a masked array"):
        poolgrad.Plan(x.shape, 2).forward(masked)
    assert poolgrad.max_pool(masked.filled(-np.inf), 2).max() <= 0
