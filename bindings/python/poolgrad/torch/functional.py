"""max_pool1d, max_pool2d and max_pool3d with the signatures of torch.nn.functional, and a little more; with a ReLU before them, too.

More than torch: padding may be "same", "same_lower", "valid" or (low, high) pairs; ties says who gets the gradient when several
inputs of a window share the maximum ("first" is torch's rule; "last", "split", "all").

A call on a plain tensor (_plain) goes straight to its plan, found in a cache; every other one through _general. call() does the same
for the functions of pooling.py, whose windows are found otherwise.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch.overrides import handle_torch_function, has_torch_function, has_torch_function_unary

from .._core import freeze
from . import _autograd, _dtensor, _export, _library
from ._plain import PLAIN_TYPES, dispatch_modes, functorch_active, is_compiling, is_plain, is_tracing
from ._plans import PoolTypeError, PoolValueError, TorchPlan, Window, lies_channels_last, make_window, plan_of
from ._script import make_scriptable

_unwrap_if_dead: Callable[[torch.Tensor], torch.Tensor] = getattr(
    getattr(torch._C, "_functorch", None), "unwrap_if_dead", lambda tensor: tensor
)
if hasattr(torch, "get_autocast_dtype"):  # torch 2.4 and later ask by device
    _autocast_enabled: Callable[[], bool] = partial(torch.is_autocast_enabled, "cpu")
else:
    _autocast_enabled = torch.is_autocast_cpu_enabled
_GIVE_BACK = "poolgrad.torch.convert(model, back=True) gives a model torch's own pooling back"


@lru_cache(maxsize=1024)
def _plan(
    shape: Any, strides: Any, dtype: Any, device: Any, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
    ceil_mode: Any, ties: str, relu: bool,
) -> Tuple[Callable[[torch.Tensor], torch.Tensor], TorchPlan]:  # fmt: skip
    """(its y of x, the plan)."""
    window = make_window(rank, kernel_size, stride, padding, dilation, ceil_mode, ties, relu=relu)
    return _straight(shape, strides, dtype, device, window)


@lru_cache(maxsize=1024)
def _straight(
    shape: Any, strides: Any, dtype: Any, device: Any, window: Window
) -> Tuple[Callable[[torch.Tensor], torch.Tensor], TorchPlan]:
    rank = len(window.kernel)
    plan = plan_of(tuple(shape), dtype, device, lies_channels_last(shape, strides, rank), window)
    return _autograd.make_pool(plan), plan


def frozen(kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Tuple[Any, ...]:
    try:
        given = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
        return tuple(freeze(name, value) for name, value in given.items())
    except TypeError as error:
        raise PoolTypeError(str(error)) from None
    except ValueError as error:
        raise PoolValueError(str(error)) from None


def _check_indices(return_indices: bool, window: Window) -> None:
    if return_indices and window.ties > 2:
        raise PoolValueError("return_indices is True; with ties 'split' or 'all' a window has no single index")


def _lies_channels_last(x: torch.Tensor, rank: int) -> bool:
    return lies_channels_last(x.shape, x.stride(), rank)


Probe = Optional[Callable[[torch.Tensor], Any]]  # a function of torch's own on a tensor of ones, or None: autocast leaves it alone


@lru_cache(maxsize=None)
def _cast_dtype(probe: Any, rank: int, dtype: torch.dtype) -> torch.dtype:
    """The type in which torch's own pooling runs under CPU autocast; asked once, since versions differ."""
    with torch.autocast("cpu"), _export.torchs_functions():
        try:
            found = probe(torch.zeros((1,) * (rank + 2), dtype=dtype))
        except RuntimeError:  # "not implemented for 'BFloat16'"
            return dtype
    return (found[0] if isinstance(found, tuple) else found).dtype


def _cast(probe: Probe, rank: int, input: torch.Tensor) -> torch.Tensor:
    """`input` as CPU autocast, which is on, hands it to torch's own pooling."""
    if probe is None or input.device.type != "cpu" or input.dtype not in (torch.bfloat16, torch.float16):
        return input
    return input.to(_cast_dtype(probe, rank, input.dtype))


def autocast(probe: Probe, rank: int, input: torch.Tensor) -> torch.Tensor:
    """`input` as torch's own pooling would be given it."""
    return _cast(probe, rank, input) if _autocast_enabled() else input


def call(
    function: Any, rank: int, input: Any, make: Callable[[torch.Tensor], Window], return_indices: bool, arguments: Tuple[Any, ...],
    keywords: Dict[str, Any], probe: Probe,
) -> Any:  # fmt: skip
    """function(input, *arguments, **keywords), whose windows make(input) gives."""
    if goes_straight(input):
        try:
            if probe is not None and _autocast_enabled():
                input = _cast(probe, rank, input)
            pool, plan = _straight(input.shape, input.stride(), input.dtype, input.device, make(input))
            return _autograd.pool_with_indices(input, plan) if return_indices else pool(input)
        except RuntimeError as error:
            if isinstance(error, (PoolValueError, PoolTypeError)):
                raise
    return _general(function, rank, input, make, return_indices, arguments, keywords, probe)


def _takes_operators() -> bool:
    """Whether plans cannot be run, nor autograd functions recorded, here."""
    return is_compiling() or is_tracing() or (functorch_active() and not _autograd.HAS_SETUP_CONTEXT)


def _by_operator(run: Callable[..., Any], *arguments: Any) -> Any:
    """run(*arguments), which calls operators; what functorch before torch 2.0 says of them is put into our words."""
    if _autograd.HAS_SETUP_CONTEXT:
        return run(*arguments)
    try:
        return run(*arguments)
    except RuntimeError as error:
        if "do not support the use of autograd.Function" not in str(error):
            raise
        raise NotImplementedError(
            f"functorch's gradients cannot see through poolgrad with torch {torch.__version__}, they can from 2.0 on; {_GIVE_BACK}"
        ) from None


def pool_with_routes(x: torch.Tensor, window: Window) -> Tuple[torch.Tensor, torch.Tensor]:
    """y and routes of an x that nothing records, channels first."""
    if _takes_operators():
        return _by_operator(torch.ops.poolgrad.max_pool, x, *_library.fixed_of(window, False))
    return _autograd.pool_with_routes(x, plan_of(tuple(x.shape), x.dtype, x.device, False, window))


def pool_by_routes(x: torch.Tensor, y: torch.Tensor, routes: torch.Tensor, window: Window) -> torch.Tensor:
    """y of winners that are known, with its derivatives."""
    if _takes_operators():
        return _by_operator(torch.ops.poolgrad.max_pool_gather, x, routes, *_library.fixed_of(window, False))
    return _autograd.pool_by_routes(x, y, routes, plan_of(tuple(x.shape), x.dtype, x.device, False, window))


def is_recorded(x: torch.Tensor) -> bool:
    """Whether what is done to x may be asked for derivatives."""
    return not goes_straight(x) or (x.requires_grad and torch.is_grad_enabled()) or _autograd.has_tangents()


def goes_straight(input: Any) -> bool:
    """Whether `input` is a plain tensor, and nothing looks on."""
    return not (is_compiling() or functorch_active()) and is_plain(input)


def _general(
    function: Any, rank: int, input: Any, make: Callable[[torch.Tensor], Window], return_indices: bool, arguments: Tuple[Any, ...],
    keywords: Dict[str, Any], probe: Probe,
) -> Any:  # fmt: skip
    """A call on what is not a plain tensor, or is not just to be run."""
    if not is_compiling() and _dtensor.is_dtensor(input):
        return _dtensor.pool(function.__name__, rank, input, lambda x: function(x, *arguments, **keywords), make, return_indices)
    if has_torch_function_unary(input):
        return handle_torch_function(function, (input,), input, *arguments, **keywords)
    if not isinstance(input, torch.Tensor):
        raise PoolTypeError(f"{function.__name__}(): argument 'input' is a {type(input).__name__}; it must be a Tensor")
    if not (_library.HAS_CUSTOM_OP or is_compiling() or is_tracing() or all(isinstance(size, int) for size in input.shape)):
        raise PoolTypeError(f"input has symbolic sizes; poolgrad takes those from torch 2.4 on, and this is {torch.__version__}: {_GIVE_BACK}")
    made = make(input)
    _check_indices(return_indices, made)
    if not is_compiling():
        if probe is not None and _autocast_enabled():
            input = _cast(probe, rank, input)
        if functorch_active() and _autograd.HAS_SETUP_CONTEXT:
            plan = plan_of(tuple(input.shape), input.dtype, input.device, _lies_channels_last(input, rank), made)
            return _autograd.transformed_pool(input, plan, return_indices)
        if input.layout is not torch.strided:
            raise PoolTypeError(
                f"input has the layout {input.layout}; poolgrad takes dense tensors: call to_dense() on it first, or {_GIVE_BACK}"
            )
        unwrapped = _unwrap_if_dead(input)
        if unwrapped is not input:
            return function(unwrapped, *arguments, **keywords)
        if input.has_names():
            found = function(input.rename(None), *arguments, **keywords)
            return tuple(one.rename(*input.names) for one in found) if return_indices else found.rename(*input.names)
        if torch.onnx.is_in_onnx_export() and not is_tracing():
            return _export.torchs_own(input, made, return_indices)
    # Where torch.jit traces, tensors that come later may lie differently. is_compiling is asked first: dynamo knows no other.
    open_ = not is_compiling() and is_tracing()
    fixed = _library.fixed_of(made, _library.AS_X_LIES if open_ else _lies_channels_last(input, rank))
    return _by_operator(_library.pool, input, fixed, return_indices)


def _check_bias(function: Any, input: Any, bias: Any, return_indices: bool) -> None:
    for name, tensor in (("input", input), ("bias", bias)):
        if not isinstance(tensor, torch.Tensor):
            raise PoolTypeError(f"{function.__name__}(): argument '{name}' is a {type(tensor).__name__}; it must be a Tensor")
    if return_indices:
        raise PoolValueError("return_indices is True; with a bias there are none, so add it before: input + bias[:, None, None]")


def _biased(
    function: Any, rank: int, input: torch.Tensor, bias: torch.Tensor, window: Tuple[Any, ...], return_indices: bool, ties: str,
    probe: Probe,
) -> Any:  # fmt: skip
    """function(input, *window, ties=ties, bias=bias). Where neither a plan nor an operator can be run, the bias is added first: that has
    the same y."""
    if not is_compiling() and has_torch_function((input, bias)):
        keywords = {"return_indices": return_indices, "ties": ties, "bias": bias}
        return handle_torch_function(function, (input, bias), input, *window, **keywords)
    _check_bias(function, input, bias, return_indices)
    if torch.is_autocast_enabled() or _autocast_enabled():
        input = input if probe is None else _cast(probe, rank, input)
        bias = bias.to(input.dtype)
    if bias.dtype is not input.dtype:
        raise PoolTypeError(f"bias has the type {bias.dtype}; input has {input.dtype}, and both must have the same")
    made = make_window(rank, *window, ties, relu=True, bias=True)
    if not is_compiling():
        if goes_straight(input) and is_plain(bias) and input.layout is torch.strided:
            plan = plan_of(tuple(input.shape), input.dtype, input.device, _lies_channels_last(input, rank), made)
            plan.check("bias", bias, plan.bias_shape, input.dtype)
            try:
                return _autograd.pool_bias(input, bias, plan)
            except RuntimeError as error:  # no memory to read: the operator knows
                if isinstance(error, (PoolValueError, PoolTypeError)):
                    raise
        theirs = _dtensor.is_dtensor(input) or functorch_active() or torch.onnx.is_in_onnx_export()
        if theirs or input.layout is not torch.strided or input.has_names() or bias.has_names():
            return function(input + bias.reshape(-1, *(1,) * rank), *window, ties=ties)
    open_ = not is_compiling() and is_tracing()
    fixed = _library.fixed_of(made, _library.AS_X_LIES if open_ else _lies_channels_last(input, rank))
    return torch.ops.poolgrad.max_pool_bias(input, bias, *fixed)[0]


def _make(rank: int, shapes: str, relu: bool = False) -> Callable[..., Any]:
    may_cast = rank == 3  # the one that a version of torch has in a list of autocast's
    theirs = _export.THEIRS[rank]
    probes = (lambda x: theirs(x, 1), lambda x: theirs(x, 1, return_indices=True)) if may_cast else (None, None)

    def max_pool(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False, *, ties: str = "first",
    ) -> Any:  # fmt: skip
        if not (
            is_compiling()
            or type(input) not in PLAIN_TYPES
            or type(ceil_mode) is not bool  # 1.0 would be found in a cache that knows True
            or has_torch_function_unary(input)
            or is_tracing()
            or dispatch_modes()
            or functorch_active()
            or input.is_neg()
            or input._is_zerotensor()
            or input.has_names()
        ):
            if not (
                type(kernel_size) is int
                and (stride is None or type(stride) is int)
                and type(padding) is int
                and type(dilation) is int
            ):
                kernel_size, stride, padding, dilation = frozen(kernel_size, stride, padding, dilation)
            try:
                if may_cast and _autocast_enabled():
                    input = _cast(probes[1 if return_indices else 0], rank, input)
                pool, plan = _plan(
                    input.shape, input.stride(), input.dtype, input.device, rank, kernel_size, stride, padding, dilation,
                    ceil_mode, ties, relu,
                )  # fmt: skip
                if not return_indices:
                    return pool(input)
                _check_indices(True, plan.args[4])
                return _autograd.pool_with_indices(input, plan)
            except RuntimeError as error:
                if isinstance(error, (PoolValueError, PoolTypeError)):
                    raise
            except TypeError as error:  # make_window says what is wrong with what no cache can find
                if "unhashable" not in str(error):
                    raise
        window = (kernel_size, stride, padding, dilation, ceil_mode)
        return _general(
            made, rank, input, lambda _: make_window(rank, *window, ties, relu=relu), return_indices, window,
            {"return_indices": return_indices, "ties": ties}, probes[1 if return_indices else 0],
        )  # fmt: skip

    def relu_max_pool(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False, *, ties: str = "first", bias: Optional[torch.Tensor] = None,
    ) -> Any:  # fmt: skip
        if bias is None:
            return max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, ties=ties)
        window = (kernel_size, stride, padding, dilation, ceil_mode)
        return _biased(made, rank, input, bias, window, return_indices, ties, probes[0])

    made: Any = relu_max_pool if relu else max_pool
    made.__name__ = made.__qualname__ = f"{'relu_' if relu else ''}max_pool{rank}d"
    made.__doc__ = (
        f"max_pool{rank}d(relu(input), ...) in one step, which keeps nothing of input for backward, over {shapes}. With a bias, one "
        "per channel, it is added to input first."
        if relu
        else f"torch.nn.functional.max_pool{rank}d over {shapes}."
    )
    make_scriptable(made, "max", rank, relu)
    return made


max_pool1d = _make(1, "(N, C, L) or (C, L)")
max_pool2d = _make(2, "(N, C, H, W) or (C, H, W)")
max_pool3d = _make(3, "(N, C, D, H, W) or (C, D, H, W)")
relu_max_pool1d = _make(1, "(N, C, L) or (C, L)", relu=True)
relu_max_pool2d = _make(2, "(N, C, H, W) or (C, H, W)", relu=True)
relu_max_pool3d = _make(3, "(N, C, D, H, W) or (C, D, H, W)", relu=True)
