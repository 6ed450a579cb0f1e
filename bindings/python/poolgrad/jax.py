"""poolgrad for JAX, on the CPU and on CUDA: pooling under jit, grad, vmap, forward mode and every mix and order of them.

Differentiating keeps only routes; averages keep nothing. _jax_calls has the calls and their rules, also for arrays that are sharded over
batch or channels; _jax_split what split= does.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import jax
import jax.numpy as jnp

from . import _abi, _jax_split
from ._core import CorePlan, freeze, make_problem, per_axis, to_int
from ._jax_calls import average_p, forward_bias_p, forward_p

Ints = Union[int, Sequence[int]]
Padding = Union[str, Sequence[Tuple[int, int]]]

_WORDS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8", "int32": "i32"}


class _Plan(CorePlan):
    """Made once to check a call, in the words of its arguments."""

    words = (
        (r"\bkernel\[", "window["),
        (r"\bstride\[", "strides["),
        (r"\bdilation\[", "window_dilation["),
        (r"\boutputs\[", "output_size["),
        *CorePlan.words,
    )


def _spatial(x: Any, sizes: Any, layout: str) -> Tuple[Any, Tuple[int, ...]]:
    """x as an array, and its spatial sizes, as many as `sizes` has entries."""
    x = jnp.asarray(x)
    rank = len(sizes)
    if x.dtype.name not in _WORDS:
        raise TypeError(f"x has the type {x.dtype.name}; poolgrad takes {', '.join(_WORDS)}")
    if x.ndim < rank + 1:
        raise ValueError(f"x has the shape {x.shape}; a window of {rank} axes needs at least {rank + 1}: those and channels")
    return x, x.shape[x.ndim - rank - 1 : -1] if layout == "channels_last" else x.shape[x.ndim - rank :]


def _pool(x: Any, rank: int, split: Any, *window: Any, layout: str, bias: Any = None, **rules: Any) -> jax.Array:
    item = x.shape[x.ndim - rank - 1 :]
    names = (None,) * rank if split is None else tuple(split) if isinstance(split, (list, tuple)) else (split,)
    if len(names) != rank:
        raise ValueError(f"split is {split!r}; it must have the name of a mesh axis, or None, for each of the {rank} spatial axes")
    if any(name is not None for name in names):
        sizes = [1 if name is None else _jax_split.axis_size(name) for name in names]
        sizes = [*sizes, 1] if layout == "channels_last" else [1, *sizes]
        item = tuple(size * parts for size, parts in zip(item, sizes))
    dtype = _abi.DTYPES[_WORDS[x.dtype.name]]
    problem = make_problem((1, *item), dtype, *window, layout=layout, dialect="jax", bias=bias is not None, **rules)
    text = _Plan(problem).text
    if bias is not None:
        return forward_bias_p.bind(x, _checked_bias(bias, x, problem.channels, names), text=text)[0]
    if any(name is not None for name in names):
        return _jax_split.pool(_jax_split.Split(text, names), x)
    return (average_p if rules.get("kind") == "avg" else forward_p).bind(x, text=text)[0]


def _checked_bias(bias: Any, x: Any, channels: int, names: Any) -> Any:
    bias = jnp.asarray(bias)
    if bias.shape != (channels,):
        raise ValueError(f"bias has the shape {bias.shape}; x has {channels} channels, so it must be ({channels},)")
    if bias.dtype != x.dtype:
        raise TypeError(f"bias has the type {bias.dtype.name}; x has {x.dtype.name}, and both must have the same")
    if any(name is not None for name in names):
        raise ValueError("bias and split were both given; add the bias to x where x is split: relu_max_pool(x + bias, ...)")
    return bias


def _windowed(x: Any, window: Any, strides: Any, padding: Any, dilation: Any, split: Any, layout: str, **rules: Any) -> jax.Array:
    windows = freeze("window", window) if isinstance(window, (list, tuple)) else per_axis("window", window, 2)
    rank = len(windows)
    x, _ = _spatial(x, windows, layout)
    steps = 1 if strides is None else per_axis("strides", strides, rank)
    apart = 1 if dilation is None else per_axis("window_dilation", dilation, rank)
    return _pool(x, rank, split, windows, steps, padding, apart, layout=layout, **rules)


def _adaptive(x: Any, output_size: Any, layout: str, **rules: Any) -> jax.Array:
    wanted = freeze("output_size", output_size)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,) * 2
    x, sizes = _spatial(x, wanted, layout)
    counts = tuple(size if out is None else to_int(f"output_size[{i}]", out) for i, (out, size) in enumerate(zip(wanted, sizes)))
    for i, out in enumerate(counts):
        if out < 1:
            raise ValueError(f"output_size[{i}] is {out}; it must be at least 1")
    return _pool(x, len(wanted), None, None, layout=layout, outputs=counts, **rules)


def max_pool(
    x: Any,
    window: Ints,
    strides: Optional[Ints] = None,
    padding: Padding = "VALID",
    window_dilation: Optional[Ints] = None,
    *,
    layout: str = "channels_last",
    ties: str = "first",
    nan: str = "propagate_first",
    route_bits: int = 0,
    split: Any = None,
) -> jax.Array:
    """Max pooling over the spatial axes of x: (..., spatial, channels), or (..., channels, spatial) for channels_first.

    window: one size per spatial axis (an integer means two axes alike); strides and window_dilation: the same, None means 1.
    padding: "VALID", "SAME", "SAME_LOWER", or a (low, high) pair per axis, negative ones crop, as in jax.lax.reduce_window.
    ties: who gets the gradient of equal maxima (first, last, split, all). nan: propagate_first gives reduce_window's values, for
    [2, NaN, 1] a NaN; greater_equal is XLA's own rule for the gradient, under which a NaN loses to what follows it: 1.
    route_bits: what is kept for the gradient of an output, 2, 4, 8, 16 or 32 bits; 0: the fewest.
    split: inside jax.shard_map, the mesh axis along which each spatial axis of x is cut, or None: x and y are then pieces of longer
    arrays, with the bits that those would have.
    """
    return _windowed(x, window, strides, padding, window_dilation, split, layout, ties=ties, nan=nan, route_bits=route_bits)


def relu_max_pool(
    x: Any,
    window: Ints,
    strides: Optional[Ints] = None,
    padding: Padding = "VALID",
    window_dilation: Optional[Ints] = None,
    *,
    layout: str = "channels_last",
    ties: str = "first",
    nan: str = "propagate_first",
    route_bits: int = 0,
    split: Any = None,
    bias: Any = None,
) -> jax.Array:
    """max_pool(max(x, 0)), and its gradient, with nothing kept but routes: where nothing in a window is above 0, y is 0 and passes no
    gradient on. bias: one per channel, of x's type: max_pool(max(x + bias, 0)). The other arguments are max_pool's."""
    rules = {"ties": ties, "nan": nan, "route_bits": route_bits, "bias": bias}
    return _windowed(x, window, strides, padding, window_dilation, split, layout, relu=True, **rules)


def avg_pool(
    x: Any,
    window: Ints,
    strides: Optional[Ints] = None,
    padding: Padding = "VALID",
    window_dilation: Optional[Ints] = None,
    *,
    layout: str = "channels_last",
    count_include_pad: bool = True,
    split: Any = None,
) -> jax.Array:
    """Average pooling. count_include_pad: whether padding counts in the divisor, as in Flax. The other arguments are max_pool's."""
    rules = {"kind": "avg", "count_padding": count_include_pad}
    return _windowed(x, window, strides, padding, window_dilation, split, layout, **rules)


def adaptive_max_pool(
    x: Any,
    output_size: Any,
    *,
    layout: str = "channels_last",
    ties: str = "first",
    nan: str = "propagate_first",
    route_bits: int = 0,
) -> jax.Array:
    """Max pooling to output_size, one entry per spatial axis (an integer means two axes alike; None: as many as x has): window o of an
    axis spans [floor(o * in / out), ceil((o + 1) * in / out)). On the CPU; on CUDA where all windows are alike."""
    return _adaptive(x, output_size, layout, ties=ties, nan=nan, route_bits=route_bits)


def adaptive_avg_pool(x: Any, output_size: Any, *, layout: str = "channels_last") -> jax.Array:
    """Average pooling to output_size, over the windows of adaptive_max_pool."""
    return _adaptive(x, output_size, layout, kind="avg")


__all__ = ["adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool", "relu_max_pool"]
