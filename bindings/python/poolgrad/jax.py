"""poolgrad for JAX, on the CPU and on CUDA: max_pool under jit, grad, vmap, forward mode and every mix and order of them.

Differentiating keeps only routes. Pooling has a custom JVP whose tangent is gather (ty = S tx); gather and scatter (S^T) are
primitives that are linear in their first operand and each other's transpose, so reverse mode and higher orders follow. They
take any number of leading axes, so vmap only moves its axis to the front. All four operations are XLA FFI calls.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Sequence, Tuple, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import _abi, _jax_build
from ._core import CorePlan, freeze, make_problem, parse_problem, per_axis

Padding = Union[str, Sequence[Tuple[int, int]]]

_WORDS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8", "int32": "i32"}

# A problem travels as its one-line text with batch 1: hashable, and what the handlers read.


@lru_cache(maxsize=1024)
def _plan(text: str) -> CorePlan:
    return CorePlan(parse_problem(text))


@lru_cache(maxsize=1)
def _register() -> None:
    _jax_build.register()


def _shapes(text: str, x_shape: Sequence[int]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Shapes of y and routes for an x with any leading axes."""
    plan = _plan(text)
    lead = tuple(x_shape[: len(x_shape) - plan.rank - 1])
    y = plan.y_shape[1:]
    line = (y[-1] * plan.route_bits + 7) // 8
    return (*lead, *y), (*lead, *y[:-1], line)


def _call(op: str, results: Any, *operands: Any, text: str) -> Any:
    _register()
    return jax.ffi.ffi_call(f"poolgrad_{op}", results, vmap_method="broadcast_all")(*operands, problem=text)


def _scatter_call(dy: Any, routes: Any, *, text: str) -> Any:
    plan = _plan(text)
    shape = (*dy.shape[: dy.ndim - plan.rank - 1], *plan.x_shape[1:])
    return _call("scatter", jax.ShapeDtypeStruct(shape, dy.dtype), dy, routes, text=text)


def _gather_call(tx: Any, routes: Any, *, text: str) -> Any:
    return _call("gather", jax.ShapeDtypeStruct(_shapes(text, tx.shape)[0], tx.dtype), tx, routes, text=text)


_scatter_p = Primitive("poolgrad_scatter")
_gather_p = Primitive("poolgrad_gather")


def _define_linear(primitive: Any, transpose: Any, call: Any, result_shape: Any) -> None:
    """Rules of a primitive (vector, routes) -> vector that is linear in the vector."""

    def abstract_eval(vector: Any, routes: Any, *, text: str) -> Any:
        return vector.update(shape=result_shape(text, vector.shape))

    def jvp(primals: Any, tangents: Any, *, text: str) -> Any:
        out = primitive.bind(*primals, text=text)
        if type(tangents[0]) is ad.Zero:
            return out, ad.Zero.from_primal_value(out)
        return out, primitive.bind(tangents[0], primals[1], text=text)

    def transpose_rule(cotangent: Any, vector: Any, routes: Any, *, text: str) -> Any:
        if type(cotangent) is ad.Zero:
            return None, None
        return transpose.bind(cotangent, routes, text=text), None

    def batch(operands: Any, dims: Any, *, text: str) -> Any:
        size = next(operand.shape[dim] for operand, dim in zip(operands, dims) if dim is not None)
        moved = (
            jnp.broadcast_to(operand, (size, *operand.shape)) if dim is None else jnp.moveaxis(operand, dim, 0)
            for operand, dim in zip(operands, dims)
        )
        return primitive.bind(*moved, text=text), 0

    primitive.def_impl(call)
    primitive.def_abstract_eval(abstract_eval)
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose_rule
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(call, multiple_results=False))


def _x_shape_of(text: str, y_shape: Sequence[int]) -> Tuple[int, ...]:
    plan = _plan(text)
    return (*y_shape[: len(y_shape) - plan.rank - 1], *plan.x_shape[1:])


_define_linear(_gather_p, _scatter_p, _gather_call, lambda text, shape: _shapes(text, shape)[0])
_define_linear(_scatter_p, _gather_p, _scatter_call, _x_shape_of)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _pool(x: Any, text: str) -> Any:
    """y alone: what runs when nobody differentiates."""
    return _call("forward", jax.ShapeDtypeStruct(_shapes(text, x.shape)[0], x.dtype), x, text=text)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _pool_routes(x: Any, text: str) -> Any:
    y, routes = _shapes(text, x.shape)
    return _call("forward_routes", (jax.ShapeDtypeStruct(y, x.dtype), jax.ShapeDtypeStruct(routes, jnp.uint8)), x, text=text)


@_pool.defjvp
def _pool_jvp(text: str, primals: Any, tangents: Any) -> Any:
    y, routes = _pool_routes(primals[0], text)
    return y, _gather_p.bind(tangents[0], routes, text=text)


@_pool_routes.defjvp
def _pool_routes_jvp(text: str, primals: Any, tangents: Any) -> Any:
    y, routes = _pool_routes(primals[0], text)
    ty = _gather_p.bind(tangents[0], routes, text=text)
    return (y, routes), (ty, np.zeros(routes.shape, jax.dtypes.float0))


class _Plan(CorePlan):
    """Made once to check a call, in the words of its arguments."""

    words = (
        (r"\bkernel\[", "window["),
        (r"\bstride\[", "strides["),
        (r"\bdilation\[", "window_dilation["),
        *CorePlan.words,
    )


def max_pool(
    x: Any,
    window: Union[int, Sequence[int]],
    strides: Any = None,
    padding: Padding = "VALID",
    window_dilation: Any = None,
    *,
    layout: str = "channels_last",
    ties: str = "first",
    nan: str = "propagate_first",
) -> jax.Array:
    """Max pooling over the spatial axes of x: (..., spatial, channels), or (..., channels, spatial) for channels_first.

    window: one size per spatial axis (an integer means two axes alike); strides and window_dilation: the same, None means 1.
    padding: "VALID", "SAME", "SAME_LOWER", or a (low, high) pair per axis, negative ones crop, as in jax.lax.reduce_window.
    ties: who gets the gradient of equal maxima (first, last, split, all). nan: propagate_first gives reduce_window's values, for
    [2, NaN, 1] a NaN; greater_equal is XLA's own rule for the gradient, under which a NaN loses to what follows it: 1.
    """
    x = jnp.asarray(x)
    windows = freeze("window", window) if isinstance(window, (list, tuple)) else per_axis("window", window, 2)
    rank = len(windows)
    if x.dtype.name not in _WORDS:
        raise TypeError(f"x has the type {x.dtype.name}; poolgrad takes {', '.join(_WORDS)}")
    if x.ndim < rank + 1:
        raise ValueError(f"x has the shape {x.shape}; a window of {rank} axes needs at least {rank + 1}: those and channels")
    steps = 1 if strides is None else per_axis("strides", strides, rank)
    dilation = 1 if window_dilation is None else per_axis("window_dilation", window_dilation, rank)
    problem = make_problem(
        (1, *x.shape[x.ndim - rank - 1 :]), _abi.DTYPES[_WORDS[x.dtype.name]], windows, steps, padding, dilation,
        layout=layout, ties=ties, nan=nan, dialect="jax",
    )  # fmt: skip
    return _pool(x, _Plan(problem).text)


__all__ = ["max_pool"]
