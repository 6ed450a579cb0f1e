"""max_pool1d, max_pool2d and max_pool3d with the signatures of torch.nn.functional, and a little more.

More than torch: padding may be "same", "same_lower", "valid" or (low, high) pairs; ties says who gets the gradient when several
inputs of a window share the maximum ("first" is torch's rule; "last", "split", "all").
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from . import _autograd, _library
from ._plans import PoolTypeError, PoolValueError, TorchPlan, Window, lies_channels_last, make_window, plan_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


@lru_cache(maxsize=1024, typed=True)
def _plan(
    shape: Any, dtype: Any, device: Any, channels_last: bool, rank: int, kernel_size: Any, stride: Any, padding: Any,
    dilation: Any, ceil_mode: Any, ties: str,
) -> TorchPlan:  # fmt: skip
    window = make_window(rank, kernel_size, stride, padding, dilation, ceil_mode, ties)
    return plan_of(tuple(shape), dtype, device, channels_last, window)


def _hashable(value: Any) -> Any:
    return tuple(_hashable(entry) for entry in value) if isinstance(value, (list, tuple)) else value


def _pool(
    x: torch.Tensor, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any,
    return_indices: bool, ties: str,
) -> Any:  # fmt: skip
    if _is_compiling() or type(x) not in _PLAIN:
        if not isinstance(x, torch.Tensor):
            raise PoolTypeError(f"max_pool{rank}d(): argument 'input' is a {type(x).__name__}; it must be a Tensor")
        if _library.AVAILABLE:
            window = make_window(rank, kernel_size, stride, padding, dilation, ceil_mode, ties)
            _check_indices(return_indices, window)
            return _library.traced_pool(x, window, return_indices)
    layout = not x.is_contiguous() and lies_channels_last(x, rank)
    try:
        plan = _plan(x.shape, x.dtype, x.device, layout, rank, kernel_size, stride, padding, dilation, ceil_mode, ties)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        windows = (_hashable(entry) for entry in (kernel_size, stride, padding, dilation))
        plan = _plan(x.shape, x.dtype, x.device, layout, rank, *windows, ceil_mode, ties)
    if not return_indices:
        return _autograd.pool(x, plan)
    _check_indices(True, plan.args[4])
    return _autograd.pool_with_indices(x, plan)


def _check_indices(return_indices: bool, window: Window) -> None:
    if return_indices and window.ties > 2:
        raise PoolValueError("return_indices is True; with ties 'split' or 'all' a window has no single index")


def max_pool1d(
    input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False, *, ties: str = "first",
) -> Any:  # fmt: skip
    """torch.nn.functional.max_pool1d over (N, C, L) or (C, L)."""
    return _pool(input, 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices, ties)


def max_pool2d(
    input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False, *, ties: str = "first",
) -> Any:  # fmt: skip
    """torch.nn.functional.max_pool2d over (N, C, H, W) or (C, H, W)."""
    return _pool(input, 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices, ties)


def max_pool3d(
    input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False, *, ties: str = "first",
) -> Any:  # fmt: skip
    """torch.nn.functional.max_pool3d over (N, C, D, H, W) or (C, D, H, W)."""
    return _pool(input, 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices, ties)
