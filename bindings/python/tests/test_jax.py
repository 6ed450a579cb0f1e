"""poolgrad.jax against jax.lax.reduce_window: values, gradients, and every transform JAX has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("jax.ffi", reason="this JAX has no jax.ffi (it came with 0.5)")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import poolgrad  # noqa: E402
import poolgrad.jax as J  # noqa: E402


def _devices() -> Any:
    found = [pytest.param(jax.devices("cpu")[0], id="cpu")]
    try:
        gpu = jax.devices("cuda")[0]
        skip = [] if poolgrad.has_cuda() else [pytest.mark.skip(reason="this libpoolgrad was built without CUDA")]
    except RuntimeError:
        gpu, skip = None, [pytest.mark.skip(reason="JAX sees no CUDA device")]
    return [*found, pytest.param(gpu, id="cuda", marks=skip)]


@pytest.fixture(params=_devices())
def device(request: Any) -> Any:
    with jax.default_device(request.param):
        yield request.param


def expected(x: Any, window: Any, strides: Any, padding: Any, dilation: Any = None) -> Any:
    """The same by XLA's own reduce_window, over (N, spatial, C)."""
    around = lambda entries, fill: (fill, *entries, fill)  # noqa: E731
    pads = padding if isinstance(padding, str) else around(padding, (0, 0))
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    if not isinstance(padding, str):  # reduce_window has no gradient where padding crops, so crop first
        x = lax.pad(x, jnp.asarray(lowest, x.dtype), [(min(lo, 0), min(hi, 0), 0) for lo, hi in pads])
        pads = [(max(lo, 0), max(hi, 0)) for lo, hi in pads]
    return lax.reduce_window(
        x, jnp.asarray(lowest, x.dtype), lax.max, around(window, 1), around(strides, 1), pads,
        window_dilation=None if dilation is None else around(dilation, 1),
    )  # fmt: skip


def sample(shape: Any, dtype: Any = jnp.float32, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


PROBLEMS = [
    ((2, 9, 8, 5), (3, 3), (2, 2), "SAME"),
    ((2, 9, 8, 5), (2, 3), (2, 1), "VALID"),
    ((1, 10, 11, 3), (3, 2), (1, 2), ((1, 1), (0, 1))),
    ((2, 17, 4), (4,), (3,), "SAME"),
    ((1, 6, 7, 8, 2), (2, 3, 2), (2, 2, 1), "SAME"),
    ((1, 9, 9, 2), (2, 2), (2, 2), ((-1, 0), (0, -2))),
]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("shape,window,strides,padding", PROBLEMS)
def test_values_and_gradients(device, shape, window, strides, padding, dtype):
    x = sample(shape, dtype)
    y = J.max_pool(x, window, strides, padding)
    assert y.dtype == dtype and jnp.array_equal(y, expected(x, window, strides, padding))
    assert jnp.array_equal(jax.jit(lambda t: J.max_pool(t, window, strides, padding))(x), y)
    dy = jnp.round(4 * sample(y.shape, dtype, 1))
    ours = jax.vjp(lambda t: J.max_pool(t, window, strides, padding), x)[1](dy)[0]
    if dtype == jnp.float32:
        theirs = jax.vjp(lambda t: expected(t, window, strides, padding), x)[1](dy)[0]
        np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == dtype and float(ours.astype(jnp.float32).sum()) == float(dy.astype(jnp.float32).sum())


def test_gradient_with_window_dilation(device):
    x = sample((1, 9, 9, 2))
    pool = lambda t: J.max_pool(t, (3, 3), (1, 1), "VALID", (2, 2))  # noqa: E731
    assert jnp.array_equal(pool(x), expected(x, (3, 3), (1, 1), "VALID", (2, 2)))
    dx = jax.grad(lambda t: (pool(t) ** 2).sum())(x)
    routes = poolgrad.max_pool(np.asarray(x), 3, 1, 0, 2, layout="channels_last", return_routes=True)[1]
    np.testing.assert_allclose(dx, poolgrad.max_pool_grad(np.asarray(2 * pool(x)), routes), rtol=1e-6)


def test_every_order_and_direction(device):
    x = sample((2, 5, 5, 2))

    def ours(t: Any) -> Any:
        return (J.max_pool(t, (3, 3), (2, 2), "SAME") ** 3).sum()

    def theirs(t: Any) -> Any:
        return (expected(t, (3, 3), (2, 2), "SAME") ** 3).sum()

    np.testing.assert_allclose(jax.grad(ours)(x), jax.grad(theirs)(x), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(ours))(x), jax.grad(theirs)(x), rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(ours, (x,), (x,))[1], jax.jvp(theirs, (x,), (x,))[1], rtol=1e-5)
    tiny = x[:1, :3, :3, :1]
    reverse_of_forward = jax.jacrev(jax.jacfwd(ours))(tiny)
    np.testing.assert_allclose(jax.hessian(ours)(tiny), reverse_of_forward, rtol=1e-5)
    gradient = jax.grad(ours)
    along = jax.jvp(gradient, (x,), (x,))[1]
    step = 1e-3
    np.testing.assert_allclose(along, (gradient(x * (1 + step)) - gradient(x * (1 - step))) / (2 * step), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(jax.grad(lambda t: (gradient(t) * t).sum())(x), 3 * gradient(x), rtol=1e-4, atol=1e-5)


def test_vmap(device):
    x = sample((3, 2, 6, 6, 2))
    pool = lambda t: J.max_pool(t, (2, 2), (2, 2))  # noqa: E731
    assert jnp.array_equal(jax.vmap(pool)(x), jnp.stack([pool(t) for t in x]))
    assert jnp.array_equal(jax.vmap(pool, in_axes=1, out_axes=1)(x), pool(x))
    loss = lambda t: (pool(t) ** 2).sum()  # noqa: E731
    assert jnp.array_equal(jax.vmap(jax.grad(loss))(x), jnp.stack([jax.grad(loss)(t) for t in x]))
    y, back = jax.vjp(pool, x[0])
    cotangents = sample((4, *y.shape), seed=3)
    assert jnp.array_equal(jax.vmap(back)(cotangents)[0], jnp.stack([back(c)[0] for c in cotangents]))
    jacobian = jax.jit(jax.jacrev(pool))(x[0, :1])
    assert jnp.array_equal(jacobian, jax.jacfwd(pool)(x[0, :1]))


def test_layouts_leading_axes_and_integers(device):
    x = sample((2, 3, 4, 6, 6))
    first = J.max_pool(x, (2, 2), (2, 2), layout="channels_first")
    assert jnp.array_equal(first, x.reshape(2, 3, 4, 3, 2, 3, 2).max((4, 6)))
    assert J.max_pool(x[0, 0, 0, :, :, None], 2).shape == (5, 5, 1)
    whole = jnp.arange(36, dtype=jnp.int32).reshape(1, 6, 6, 1)
    assert J.max_pool(whole, 2, 2).ravel().tolist() == [7, 9, 11, 19, 21, 23, 31, 33, 35]


def test_only_routes_are_saved(device):
    x = sample((2, 8, 8, 16))
    _, back = jax.vjp(lambda t: J.max_pool(t, (2, 2), (2, 2)), x)
    saved = [leaf for leaf in jax.tree_util.tree_leaves(back) if hasattr(leaf, "nbytes")]
    assert sum(leaf.nbytes for leaf in saved) <= 2 * 4 * 4 * 16


def summed(x: Any, window: Any, strides: Any, padding: Any) -> Any:
    """Sums over windows by XLA's own reduce_window."""
    return lax.reduce_window(x, jnp.zeros((), x.dtype), lax.add, (1, *window, 1), (1, *strides, 1), padding)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("shape,window,strides,padding", PROBLEMS[:5])
def test_averages(device, shape, window, strides, padding, counts):
    x = sample(shape)
    pads = padding if isinstance(padding, str) else [(0, 0), *padding, (0, 0)]

    def theirs(t: Any) -> Any:
        taps = float(np.prod(window)) if counts else summed(jnp.ones_like(t), window, strides, pads)
        return summed(t, window, strides, pads) / taps

    def ours(t: Any) -> Any:
        return J.avg_pool(t, window, strides, padding, count_include_pad=counts)

    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)
    y, back = jax.vjp(ours, x)
    dy = sample(y.shape, seed=1)
    np.testing.assert_allclose(back(dy)[0], jax.vjp(theirs, x)[1](dy)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(jax.jvp(ours, (x,), (x,))[1], y)
    np.testing.assert_array_equal(jax.vmap(ours, 1, 1)(x[:, None]), y[:, None])
    np.testing.assert_allclose(jax.jacrev(ours)(x[:1]), jax.jacfwd(ours)(x[:1]), rtol=1e-6)
    assert not [leaf for leaf in jax.tree_util.tree_leaves(back) if getattr(leaf, "size", 0) > 1]  # nothing is kept


@pytest.mark.parametrize("shape,window,strides,padding", PROBLEMS)
def test_relu_and_max_in_one(device, shape, window, strides, padding):
    x = sample(shape).at[0].set(-1.0)

    def ours(t: Any) -> Any:
        return J.relu_max_pool(t, window, strides, padding)

    def theirs(t: Any) -> Any:
        return J.max_pool(jnp.maximum(t, 0), window, strides, padding)

    y, back = jax.vjp(ours, x)
    assert jnp.array_equal(y, theirs(x)) and jnp.array_equal(jax.jit(ours)(x), y)
    dy = sample(y.shape, seed=1)
    # jnp.maximum halves the gradient where both are equal; no value of x is 0 here, and where nothing is above 0 nothing passes
    np.testing.assert_array_equal(back(dy)[0], jax.vjp(theirs, x)[1](dy)[0])
    np.testing.assert_array_equal(jax.jvp(ours, (x,), (x,))[1], jax.jvp(theirs, (x,), (x,))[1])
    assert sum(leaf.nbytes for leaf in jax.tree_util.tree_leaves(back) if hasattr(leaf, "nbytes")) <= y.size


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("size", [(4, 3), (1, 1), (9, None), 5])
def test_adaptive(size, layout):
    x = sample((2, 9, 10, 9)) if layout == "channels_last" else sample((2, 9, 9, 10))
    y, routes = poolgrad.adaptive_max_pool(np.asarray(x), size, layout=layout, return_routes=True)
    ours, back = jax.vjp(lambda t: J.adaptive_max_pool(t, size, layout=layout), x)
    dy = sample(y.shape, seed=1)
    np.testing.assert_array_equal(ours, y)
    np.testing.assert_array_equal(back(dy)[0], poolgrad.max_pool_grad(np.asarray(dy), routes))
    ours, back = jax.vjp(jax.jit(lambda t: J.adaptive_avg_pool(t, size, layout=layout)), x)
    np.testing.assert_array_equal(ours, poolgrad.adaptive_avg_pool(np.asarray(x), size, layout=layout))
    np.testing.assert_array_equal(back(dy)[0], poolgrad.adaptive_avg_pool_grad(np.asarray(dy), x.shape, layout=layout))
    np.testing.assert_array_equal(
        jax.vmap(lambda t: J.adaptive_avg_pool(t, size, layout=layout))(x[None]), np.asarray(ours)[None]
    )


def test_bad_input():
    x = sample((1, 4, 4, 1))
    assert J.max_pool(x, (9, 9)).shape == (1, 0, 0, 1)  # as reduce_window does
    with pytest.raises(ValueError, match=r"strides\[0\] is 0"):
        J.max_pool(x, (2, 2), (0, 1))
    with pytest.raises(TypeError, match="complex64"):
        J.max_pool(x.astype(jnp.complex64), (2, 2))
    with pytest.raises(ValueError, match="needs at least 3"):
        J.max_pool(x[0, 0, :, 0], (2, 2))
    with pytest.raises(ValueError, match=r"window\[1\] is 0; every"):
        J.max_pool(x, (2, 0))
    with pytest.raises(TypeError, match="window is True; it must be an integer"):
        J.max_pool(x, True)
    with pytest.raises(ValueError, match="padding is 'FULL'; the words are"):
        J.max_pool(x, (2, 2), padding="FULL")
    with pytest.raises(ValueError, match=r"output_size\[1\] is 0; it must be at least 1"):
        J.adaptive_max_pool(x, (2, 0))
    with pytest.raises(ValueError, match="average pooling takes f32"):
        J.avg_pool(x.astype(jnp.int32), (2, 2))


def test_nan_propagates_unless_xlas_own_rule_is_asked_for():
    x = jnp.array([2.0, jnp.nan, 1.0]).reshape(1, 3, 1)
    assert bool(jnp.isnan(J.max_pool(x, (3,))).all())
    assert bool(jnp.isnan(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 1), (1, 1, 1), "VALID")).all())
    assert J.max_pool(x, (3,), nan="greater_equal").ravel().tolist() == [1.0]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_a_bias_before_relu(device, layout, dtype):
    x, b = jnp.round(3 * sample((2, 9, 8, 5), dtype)), jnp.round(2 * sample((5,), dtype, 1))  # sums are exact: no new ties
    x = x if layout == "channels_last" else jnp.moveaxis(x, -1, 1)
    spread = b if layout == "channels_last" else b[:, None, None]
    pool = lambda x, b: J.relu_max_pool(x, (3, 3), (2, 2), "SAME", layout=layout, bias=b)  # noqa: E731
    steps = lambda x, b: J.relu_max_pool(x + (b if layout == "channels_last" else b[:, None, None]), (3, 3), (2, 2), "SAME", layout=layout)  # noqa: E731
    y = pool(x, b)
    assert y.dtype == dtype and jnp.array_equal(y, J.relu_max_pool(x + spread, (3, 3), (2, 2), "SAME", layout=layout))
    assert jnp.array_equal(jax.jit(pool)(x, b), y)
    dy = jnp.round(4 * sample(y.shape, dtype, 2))
    ours, theirs = jax.vjp(pool, x, b)[1](dy), jax.vjp(steps, x, b)[1](dy)
    assert jnp.array_equal(ours[0], theirs[0]) and ours[1].dtype == dtype
    axes = (0, 1, 2) if layout == "channels_last" else (0, 2, 3)
    assert jnp.array_equal(ours[1], (dy * (y > 0)).astype(jnp.float32).sum(axes).astype(dtype))
    assert jnp.array_equal(jax.jit(lambda dy: jax.vjp(pool, x, b)[1](dy))(dy)[1], ours[1])


def test_a_bias_in_every_order_and_direction(device):
    x, b = sample((2, 5, 5, 2)), sample((2,), seed=1) / 2

    def ours(x: Any, b: Any) -> Any:
        return (J.relu_max_pool(x, (3, 3), (2, 2), "SAME", bias=b) ** 3).sum()

    def theirs(x: Any, b: Any) -> Any:
        return (expected(jnp.maximum(x + b, 0), (3, 3), (2, 2), "SAME") ** 3).sum()

    both = (0, 1)
    for mine, wanted in zip(jax.grad(ours, both)(x, b), jax.grad(theirs, both)(x, b)):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5)
    np.testing.assert_allclose(
        jax.jvp(ours, (x, b), (x, b))[1], jax.jvp(theirs, (x, b), (x, b))[1], rtol=1e-5
    )  # fmt: skip
    np.testing.assert_allclose(jax.jacfwd(ours, 1)(x, b), jax.jacrev(theirs, 1)(x, b), rtol=1e-5)
    np.testing.assert_allclose(jax.hessian(ours, 1)(x, b), jax.hessian(theirs, 1)(x, b), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(jax.jacrev(jax.grad(ours, 1))(x, b), jax.jacrev(jax.grad(theirs, 1))(x, b), rtol=1e-4, atol=1e-4)
    many = jnp.stack([x, 2 * x, x - 1])
    np.testing.assert_allclose(jax.vmap(ours, (0, None))(many, b), jax.vmap(theirs, (0, None))(many, b), rtol=1e-5)
    biases = jnp.stack([b, -b, b + 1])
    np.testing.assert_allclose(jax.vmap(ours)(many, biases), jax.vmap(theirs)(many, biases), rtol=1e-5)
    for mine, wanted in zip(jax.vmap(jax.grad(ours, both))(many, biases), jax.vmap(jax.grad(theirs, both))(many, biases)):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


def test_a_bias_that_cannot_be(device):
    x = sample((1, 8, 8, 3))
    with pytest.raises(ValueError, match=r"bias has the shape \(4,\); x has 3 channels"):
        J.relu_max_pool(x, (2, 2), bias=jnp.zeros(4))
    with pytest.raises(TypeError, match="bias has the type float16"):
        J.relu_max_pool(x, (2, 2), bias=jnp.zeros(3, jnp.float16))
