"""The NumPy functions. Each finds its plan in a cache, so a repeated call costs little more than Plan's own."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np

from . import _abi
from ._arrays import as_array, dtype_code
from ._core import FIRST, PROPAGATE_FIRST, Ints, Padding, code, freeze, to_int, to_shape
from ._plan import Plan, Routes, cached_plan


def _checked(x: Any, name: str) -> np.ndarray:
    x = as_array(x, name)
    dtype_code(x.dtype, name)
    return x


def _checked_float(x: Any, name: str) -> np.ndarray:
    """What averages are made of."""
    x = _checked(x, name)
    if x.dtype.kind in "iu":
        raise TypeError(f"{name} has the type {x.dtype}; average pooling takes float32, float64, float16 and bfloat16")
    return x


def max_pool(
    x: Any,
    kernel: Optional[Ints],
    stride: Optional[Ints] = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    *,
    rounding: str = "floor",
    layout: str = "channels_first",
    ties: str = FIRST,
    nan: str = PROPAGATE_FIRST,
    dialect: Optional[str] = None,
    relu: bool = False,
    bias: Any = None,
    starts: Any = None,
    sizes: Any = None,
    return_routes: bool = False,
    return_indices: Optional[str] = None,
) -> Any:
    """Max pooling of x, which has batch, channels and one to three spatial axes.

    kernel, stride (None: kernel) and dilation: an integer, or one per axis. padding: an integer, one per axis, (low, high)
    pairs, "same", "same_lower" or "valid" in any case. rounding: floor, ceil, ceil_drop, ceil_keep or round. layout: channels_first or
    channels_last. ties: first, last, split or all. nan: propagate_first, propagate_last, first_place, greater_equal or ignore.
    dialect: torch, tensorflow, tfjs, jax or onnx fills in that framework's rules where ties and nan are left alone.
    relu: pools max(x, 0); a window with nothing above 0 gives 0 and has no route. bias: with relu, one per channel: pools
    max(x + bias, 0); max_pool_bias_grad is its gradient. starts: one sequence per axis, where its windows
    begin (never falling); they have kernel's size, or with sizes, which has the same form, one each, and kernel is then None.

    Returns y; then the Routes if return_routes, and an int64 array if return_indices names a numbering (torch, tensorflow,
    tensorflow_batch, onnx, onnx_column).
    """
    x = _checked(x, "x")
    plan = cached_plan(
        x.shape, x.dtype, kernel, stride, padding, dilation, rounding=rounding, layout=layout, ties=ties, nan=nan, dialect=dialect,
        **_given(relu=relu, bias=bias is not None, starts=starts, sizes=sizes),
    )  # fmt: skip
    return _pooled(plan, x, return_routes, return_indices, bias)


def _given(**rules: Any) -> Any:
    return {name: value for name, value in rules.items() if value is not None and value is not False}


def _pooled(plan: Plan, x: np.ndarray, return_routes: bool, return_indices: Optional[str], bias: Any = None) -> Any:
    if not return_routes and return_indices is None:
        return plan.forward(x, bias=bias)
    if return_indices is not None:
        code("return_indices", return_indices, _abi.NUMBERINGS)
    y, routes = plan.forward_routes(x, bias=bias)
    if return_indices is None:
        return y, routes
    indices = plan.indices(routes, return_indices)
    return (y, routes, indices) if return_routes else (y, indices)


def max_pool_grad(
    dy: Any, routes: Optional[Routes] = None, *, x: Any = None, kernel: Optional[Ints] = None, stride: Optional[Ints] = None,
    padding: Optional[Padding] = None, dilation: Optional[Ints] = None, **rules: Any,
) -> np.ndarray:  # fmt: skip
    """dx from dy and the routes of max_pool(..., return_routes=True), which know their window; or, for a caller that kept x, from
    x and max_pool's arguments, its rules (rounding, layout, ties, nan, dialect, relu, starts, sizes) included."""
    _check_rules("max_pool_grad", rules, ("rounding", "layout", "ties", "nan", "dialect", "relu", "starts", "sizes"))
    dy = _checked(dy, "dy")
    if routes is not None:
        given = {"x": x, "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, **rules}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"routes and {name} were both given; routes know their window, so leave {name} out")
        return _plan_of(routes, dy).backward(dy, routes)
    if x is None or (kernel is None and rules.get("sizes") is None):
        raise ValueError("max_pool_grad needs routes, or x and kernel; neither was given in full")
    x = _checked(x, "x")
    return cached_plan(
        x.shape, x.dtype, kernel, stride, 0 if padding is None else padding, 1 if dilation is None else dilation, **_given(**rules)
    ).backward_x(dy, x)


def max_pool_bias_grad(dy: Any, routes: Routes) -> np.ndarray:
    """dbias from dy and the routes of max_pool(..., relu=True, bias=bias, return_routes=True): the sum of dy over the outputs of each
    channel that have a route, in an order that depends on the shape only."""
    dy = _checked(dy, "dy")
    return _plan_of(routes, dy).bias_gradient(dy, routes)


def adaptive_max_pool(
    x: Any,
    output_size: Ints,
    *,
    layout: str = "channels_first",
    ties: str = FIRST,
    nan: str = PROPAGATE_FIRST,
    dialect: Optional[str] = None,
    relu: bool = False,
    return_routes: bool = False,
    return_indices: Optional[str] = None,
) -> Any:
    """Max pooling to output_size (an integer, or one per axis; None: as many as x has): window o of an axis spans
    [floor(o * in / out), ceil((o + 1) * in / out)). Its gradient is max_pool_grad(dy, routes). The rest is max_pool's."""
    x = _checked(x, "x")
    plan = _adaptive_plan(x.shape, x.dtype, output_size, layout, ties=ties, nan=nan, dialect=dialect, **_given(relu=relu))
    return _pooled(plan, x, return_routes, return_indices)


def adaptive_avg_pool(x: Any, output_size: Ints, *, layout: str = "channels_first") -> np.ndarray:
    """Average pooling to output_size, over the windows of adaptive_max_pool."""
    x = _checked_float(x, "x")
    return _adaptive_plan(x.shape, x.dtype, output_size, layout, kind="avg").forward(x)


def adaptive_avg_pool_grad(dy: Any, x_shape: Sequence[int], *, layout: str = "channels_first") -> np.ndarray:
    """dx of adaptive_avg_pool, whose output_size is dy's."""
    dy = _checked_float(dy, "dy")
    output_size = dy.shape[1:-1] if layout == "channels_last" else dy.shape[2:]
    return _adaptive_plan(to_shape("x_shape", x_shape), dy.dtype, output_size, layout, kind="avg").backward(dy)


def _adaptive_plan(shape: Any, dtype: Any, output_size: Any, layout: str, **rules: Any) -> Plan:
    sizes = shape[1:-1] if layout == "channels_last" else shape[2:]
    outputs = freeze("output_size", output_size)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,) * len(sizes)
    if len(outputs) != len(sizes):
        raise ValueError(f"output_size has {len(outputs)} entries; give one integer, or one per spatial axis: {len(sizes)}")
    for i, out in enumerate(outputs):
        if out is not None and to_int(f"output_size[{i}]", out) < 1:
            raise ValueError(f"output_size[{i}] is {out}; it must be at least 1")
    counts = tuple(size if out is None else out for out, size in zip(outputs, sizes))
    try:
        return cached_plan(shape, dtype, None, None, 0, 1, layout=layout, outputs=counts, **rules)
    except ValueError as error:
        raise ValueError(str(error).replace("outputs[", "output_size[")) from None


def avg_pool(
    x: Any,
    kernel: Optional[Ints],
    stride: Optional[Ints] = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    *,
    rounding: str = "floor",
    layout: str = "channels_first",
    count_padding: Optional[bool] = None,
    divisor: Optional[int] = None,
    dialect: Optional[str] = None,
    starts: Any = None,
    sizes: Any = None,
) -> np.ndarray:
    """Average pooling. count_padding: padding counts in the divisor (None: as the dialect does); divisor overrides it. starts and
    sizes: windows by table, as max_pool takes them."""
    x = _checked_float(x, "x")
    return cached_plan(
        x.shape, x.dtype, kernel, stride, padding, dilation, kind="avg", rounding=rounding, layout=layout,
        count_padding=count_padding, divisor=divisor, dialect=dialect, **_given(starts=starts, sizes=sizes),
    ).forward(x)  # fmt: skip


def avg_pool_grad(
    dy: Any, x_shape: Sequence[int], kernel: Optional[Ints], stride: Optional[Ints] = None, padding: Padding = 0, dilation: Ints = 1,
    **rules: Any,
) -> np.ndarray:  # fmt: skip
    """dx of avg_pool, which depends on x's shape only. The rules (rounding, layout, count_padding, divisor, dialect, starts,
    sizes) are avg_pool's."""
    _check_rules("avg_pool_grad", rules, ("rounding", "layout", "count_padding", "divisor", "dialect", "starts", "sizes"))
    dy = _checked_float(dy, "dy")
    return cached_plan(to_shape("x_shape", x_shape), dy.dtype, kernel, stride, padding, dilation, kind="avg", **rules).backward(dy)


def _check_rules(function: str, rules: Any, known: Tuple[str, ...]) -> None:
    for name in rules:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; its rules are {', '.join(known)}")


def unpool(y: Any, routes: Routes) -> np.ndarray:
    """y back at the places it came from, 0 elsewhere; where windows share a winner the last one is kept."""
    y = _checked(y, "y")
    return _plan_of(routes, y).unpool(y, routes)


def vjp(x: Any, kernel: Ints, *arguments: Any, **options: Any) -> Tuple[np.ndarray, Callable[[Any], Any]]:
    """(y, f): f(dy) is dx, or with a bias (dx, dbias). The arguments are max_pool's. Only the routes are kept."""
    y, routes = max_pool(x, kernel, *arguments, **_plain(options), return_routes=True)
    if options.get("bias") is not None:
        return y, lambda dy: (max_pool_grad(dy, routes), max_pool_bias_grad(dy, routes))
    return y, lambda dy: max_pool_grad(dy, routes)


def jvp(x: Any, tx: Any, kernel: Ints, *arguments: Any, **options: Any) -> Tuple[np.ndarray, np.ndarray]:
    """(y, ty): the value and the directional derivative along tx. The arguments are max_pool's."""
    y, routes = max_pool(x, kernel, *arguments, **_plain(options), return_routes=True)
    tx = _checked(tx, "tx")
    return y, _plan_of(routes, tx).gather(tx, routes)


def jacobian(x: Any, kernel: Ints, *arguments: Any, **options: Any) -> Any:
    """The Jacobian of max_pool at x: a scipy.sparse.csr_matrix, or (values, columns, row_start) without SciPy."""
    _, routes = max_pool(x, kernel, *arguments, **_plain(options), return_routes=True)
    return routes.jacobian()


def _plain(options: Any) -> Any:
    for name in ("return_routes", "return_indices"):
        if name in options:
            raise TypeError(f"{name} was given; it is an argument of max_pool only")
    return options


def _plan_of(routes: Any, array: np.ndarray) -> Plan:
    if not isinstance(routes, Routes):
        raise TypeError(f"routes is a {type(routes).__name__}; it must be what max_pool(..., return_routes=True) gave")
    return routes.plan.with_dtype(array.dtype)
