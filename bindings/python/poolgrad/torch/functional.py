"""max_pool1d, max_pool2d and max_pool3d with the signatures of torch.nn.functional, and a little more.

More than torch: padding may be "same", "same_lower", "valid" or (low, high) pairs; ties says who gets the gradient when several
inputs of a window share the maximum ("first" is torch's rule; "last", "split", "all").
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Tuple

import torch

from . import _autograd, _library
from ._plans import PoolTypeError, PoolValueError, TorchPlan, Window, lies_channels_last, make_window, plan_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)
# What else traces (export, make_fx) gives tensors of other types.
_is_compiling = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", lambda: False)


@lru_cache(maxsize=1024, typed=True)
def _plan(
    shape: Any, dtype: Any, device: Any, channels_last: bool, rank: int, kernel_size: Any, stride: Any, padding: Any,
    dilation: Any, ceil_mode: Any, ties: str,
) -> Tuple[Callable[[torch.Tensor], torch.Tensor], TorchPlan]:  # fmt: skip
    """(its y of x, the plan)."""
    window = make_window(rank, kernel_size, stride, padding, dilation, ceil_mode, ties)
    plan = plan_of(tuple(shape), dtype, device, channels_last, window)
    return _autograd.make_pool(plan), plan


def _hashable(value: Any) -> Any:
    return tuple(_hashable(entry) for entry in value) if isinstance(value, (list, tuple)) else value


def _check_indices(return_indices: bool, window: Window) -> None:
    if return_indices and window.ties > 2:
        raise PoolValueError("return_indices is True; with ties 'split' or 'all' a window has no single index")


def _make(rank: int, shapes: str) -> Callable[..., Any]:
    def max_pool(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False, *, ties: str = "first",
    ) -> Any:  # fmt: skip
        if _is_compiling() or type(input) not in _PLAIN:
            if not isinstance(input, torch.Tensor):
                raise PoolTypeError(f"max_pool{rank}d(): argument 'input' is a {type(input).__name__}; it must be a Tensor")
            if _library.AVAILABLE:
                window = make_window(rank, kernel_size, stride, padding, dilation, ceil_mode, ties)
                _check_indices(return_indices, window)
                return _library.traced_pool(input, window, return_indices)
        channels_last = not input.is_contiguous() and lies_channels_last(input, rank)
        try:
            pool, plan = _plan(
                input.shape, input.dtype, input.device, channels_last, rank, kernel_size, stride, padding, dilation, ceil_mode, ties
            )  # fmt: skip
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            windows = map(_hashable, (kernel_size, stride, padding, dilation))
            pool, plan = _plan(input.shape, input.dtype, input.device, channels_last, rank, *windows, ceil_mode, ties)
        if not return_indices:
            return pool(input)
        _check_indices(True, plan.args[4])
        return _autograd.pool_with_indices(input, plan)

    max_pool.__name__ = max_pool.__qualname__ = f"max_pool{rank}d"
    max_pool.__doc__ = f"torch.nn.functional.max_pool{rank}d over {shapes}."
    return max_pool


max_pool1d = _make(1, "(N, C, L) or (C, L)")
max_pool2d = _make(2, "(N, C, H, W) or (C, H, W)")
max_pool3d = _make(3, "(N, C, D, H, W) or (C, D, H, W)")
