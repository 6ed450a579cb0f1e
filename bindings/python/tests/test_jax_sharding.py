"""poolgrad.jax on arrays that are sharded over eight devices of the CPU: nothing is gathered, and the bits are those of one device."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("jax.ffi", reason="this JAX has no jax.ffi (it came with 0.5)")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import poolgrad.jax as J  # noqa: E402

if hasattr(jax, "shard_map"):
    shard_map = jax.shard_map
else:
    from jax.experimental.shard_map import shard_map as _shard_map

    shard_map = partial(_shard_map, check_rep=False)

pytestmark = pytest.mark.skipif(len(jax.devices("cpu")) < 8, reason="JAX has fewer than 8 devices of the CPU (conftest.py asks for them)")
COLLECTIVES = ("all-gather", "all-to-all", "all-reduce", "collective-permute")


def mesh_of(**axes: int) -> Any:
    return Mesh(np.array(jax.devices("cpu")[: prod(axes.values())]).reshape(tuple(axes.values())), tuple(axes))


def on_cpu(shape: Any, dtype: Any = jnp.float32, seed: int = 0) -> Any:
    """Values with ties, on one device."""
    values = np.random.default_rng(seed).integers(-8, 9, shape) / 4
    return jax.device_put(jnp.asarray(values, dtype), jax.devices("cpu")[0])


def program(function: Any, *arguments: Any) -> str:
    return jax.jit(function).lower(*arguments).compile().as_text()


def gradient_of(pool: Any) -> Any:
    """dx for a dy that depends on y, exactly."""

    def gradient(x: Any) -> Any:
        y, back = jax.vjp(pool, x)
        return back(y * 2)[0]

    return gradient


def assert_same_bits(ours: Any, expected: Any) -> None:
    ours, expected = np.asarray(ours), np.asarray(expected)
    assert ours.dtype == expected.dtype and ours.shape == expected.shape
    assert ours.tobytes() == expected.tobytes()


POOLS = {
    "max": lambda x: J.max_pool(x, (3, 3), (2, 2), "SAME"),
    "max_disjoint": lambda x: J.max_pool(x, (2, 2), (2, 2)),
    "max_split": lambda x: J.max_pool(x, (3, 3), (1, 1), ties="split"),
    "relu_max": lambda x: J.relu_max_pool(x, (3, 3), (2, 2), "SAME"),
    "avg": lambda x: J.avg_pool(x, (3, 2), (2, 2), "SAME", count_include_pad=False),
    "adaptive_max": lambda x: J.adaptive_max_pool(x, (5, 3)),
    "adaptive_avg": lambda x: J.adaptive_avg_pool(x, (5, 3)),
}


@pytest.mark.parametrize("axes,spec", [({"n": 8}, P("n")), ({"c": 8}, P(None, None, None, "c")), ({"n": 4, "c": 2}, P("n", None, None, "c"))])
@pytest.mark.parametrize("name", POOLS)
def test_batch_and_channels_are_not_gathered(name, axes, spec):
    x = on_cpu((8, 12, 10, 64))
    sharded = jax.device_put(x, NamedSharding(mesh_of(**axes), spec))
    for function in (POOLS[name], gradient_of(POOLS[name])):
        text = program(function, sharded)
        assert "poolgrad_" in text
        assert [word for word in COLLECTIVES if word in text] == []
        ours = jax.jit(function)(sharded)
        assert ours.sharding.is_equivalent_to(sharded.sharding, ours.ndim)
        assert_same_bits(ours, jax.jit(function)(x))


def test_channels_first_and_leading_axes():
    pool = lambda x: J.max_pool(x, (2, 3), (2, 1), layout="channels_first")  # noqa: E731
    x = on_cpu((2, 4, 6, 8, 9))
    sharded = jax.device_put(x, NamedSharding(mesh_of(a=2, c=2), P("a", None, "c")))
    for function in (pool, gradient_of(pool), jax.vmap(pool), jax.vmap(gradient_of(pool), in_axes=1, out_axes=1)):
        assert [word for word in COLLECTIVES if word in program(function, sharded)] == []
        assert_same_bits(jax.jit(function)(sharded), jax.jit(function)(x))


def test_without_jit_arrays_stay_where_they_are():
    x = on_cpu((8, 6, 6, 4))
    sharded = jax.device_put(x, NamedSharding(mesh_of(n=8), P("n")))
    y = POOLS["max"](sharded)
    assert y.sharding.is_equivalent_to(sharded.sharding, y.ndim)
    assert_same_bits(y, POOLS["max"](x))


def test_channels_that_share_a_byte_of_routes_stay_together_unless_routes_are_whole_bytes():
    x = on_cpu((2, 6, 6, 16))  # two channels for each of eight devices; four have a byte of a 2x2 window's routes
    sharded = jax.device_put(x, NamedSharding(mesh_of(c=8), P(None, None, None, "c")))
    packed = gradient_of(lambda t: J.max_pool(t, (2, 2), (2, 2)))
    whole = gradient_of(lambda t: J.max_pool(t, (2, 2), (2, 2), route_bits=8))
    for function in (packed, whole):
        assert_same_bits(jax.jit(function)(sharded), jax.jit(function)(x))
    assert [word for word in COLLECTIVES if word in program(whole, sharded)] == []


def test_arrays_sharded_in_space_are_right_without_split():
    x = on_cpu((2, 16, 8, 4))
    sharded = jax.device_put(x, NamedSharding(mesh_of(h=8), P(None, "h")))
    for function in (POOLS["max"], gradient_of(POOLS["max"])):
        assert_same_bits(jax.jit(function)(sharded), jax.jit(function)(x))


SPLITS = {
    "rows": ({"h": 8}, P(None, "h"), ("h", None), (2, 32, 12, 4), lambda x, **s: J.max_pool(x, (3, 3), (2, 2), "SAME", **s)),
    "disjoint": ({"h": 8}, P(None, "h"), ("h", None), (2, 32, 12, 4), lambda x, **s: J.max_pool(x, (2, 2), (2, 2), **s)),
    "both": ({"h": 4, "w": 2}, P(None, "h", "w"), ("h", "w"), (2, 16, 12, 4), lambda x, **s: J.max_pool(x, (3, 3), (1, 1), "SAME", **s)),
    "batch_too": ({"n": 2, "w": 4}, P("n", None, "w"), (None, "w"), (4, 5, 8, 2), lambda x, **s: J.max_pool(x, (2, 4), (1, 1), "SAME", **s)),
    "wide": ({"t": 8}, P(None, "t"), ("t",), (2, 16, 3), lambda x, **s: J.max_pool(x, (9,), (1,), "SAME", **s)),
    "unread": ({"t": 2}, P(None, "t"), ("t",), (2, 16, 3), lambda x, **s: J.max_pool(x, (2,), (2,), ((-8, 0),), **s)),
    "dilated": ({"t": 4}, P(None, "t"), ("t",), (2, 24, 3), lambda x, **s: J.max_pool(x, (3,), (2,), ((2, 1),), (2,), ties="split", **s)),
    "relu": ({"d": 2, "w": 2}, P(None, "d", None, "w"), ("d", None, "w"), (1, 8, 4, 8, 2),
             lambda x, **s: J.relu_max_pool(x, (3, 2, 3), (2, 2, 2), "SAME", **s)),
    "avg": ({"h": 8}, P(None, "h"), ("h", None), (2, 32, 12, 4), lambda x, **s: J.avg_pool(x, (3, 3), (2, 2), "SAME", count_include_pad=False, **s)),
    "first": ({"h": 4, "w": 2}, P(None, None, "h", "w"), ("h", "w"), (2, 3, 16, 12),
              lambda x, **s: J.max_pool(x, (3, 3), (2, 2), "SAME", layout="channels_first", **s)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("name", SPLITS)
def test_split_in_space_has_the_bits_of_one_device(name, dtype):
    axes, spec, names, shape, pool = SPLITS[name]
    mesh = mesh_of(**axes)
    x = on_cpu(shape, dtype)
    sharded = jax.device_put(x, NamedSharding(mesh, spec))
    split = shard_map(lambda t: pool(t, split=names), mesh=mesh, in_specs=(spec,), out_specs=spec)
    for ours, one in ((split, pool), (gradient_of(split), gradient_of(pool))):
        assert "all-gather" not in program(ours, sharded)
        assert_same_bits(jax.jit(ours)(sharded), jax.jit(one)(x))
    if name == "disjoint":
        assert [word for word in COLLECTIVES if word in program(gradient_of(split), sharded)] == []


def split_rows(x: Any) -> Any:
    return J.max_pool(x, (3, 3), (2, 2), "SAME", split=("h", None))


def test_gradients_of_gradients_of_split_arrays():
    mesh, spec = mesh_of(h=4), P(None, "h")
    x = on_cpu((1, 16, 6, 2))
    split = shard_map(split_rows, mesh=mesh, in_specs=(spec,), out_specs=spec)
    second = lambda pool: jax.grad(lambda t: (gradient_of(pool)(t) * t).sum())  # noqa: E731
    ours = jax.jit(second(split))(jax.device_put(x, NamedSharding(mesh, spec)))
    np.testing.assert_allclose(np.asarray(ours), jax.jit(second(POOLS["max"]))(x), rtol=1e-6)


def test_what_cannot_be_split_is_said():
    x = on_cpu((1, 16, 6, 2))
    with pytest.raises(ValueError, match="split names the mesh axis 'h', which is not known here; call this inside jax.shard_map"):
        split_rows(x)
    with pytest.raises(ValueError, match=r"split is \('h',\); it must have the name of a mesh axis, or None, for each of the 2"):
        J.max_pool(x, (2, 2), split=("h",))
    uneven = shard_map(
        lambda t: J.max_pool(t, (2, 2), split=("h", None)), mesh=mesh_of(h=4), in_specs=(P(None, "h"),), out_specs=P(None, "h")
    )
    with pytest.raises(ValueError, match="spatial axis 0 has 15 outputs; shard_map cuts them evenly among its 4 devices"):
        uneven(np.asarray(x))
