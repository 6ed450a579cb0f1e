"""The same operations as torch.library operators, for torch.compile and torch.export (torch 2.4 and later).

Every operator has a fake kernel. Batch and channels stay symbolic in it; the spatial sizes are taken as numbers, so that the
library itself says what the output's are: window arithmetic has one home. channels_last is decided where the call is traced.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import torch

from ._plans import TorchPlan, Window, lies_channels_last, plan_of

AVAILABLE = hasattr(torch, "library") and hasattr(torch.library, "custom_op") and hasattr(torch.library, "register_autograd")


def _window(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], padding_kind: int, dilation: Sequence[int],
    ceil_mode: bool, ties: int,
) -> Window:  # fmt: skip
    return Window(tuple(kernel), tuple(stride), tuple(padding), padding_kind, tuple(dilation), ceil_mode, ties)


def _plan(like: torch.Tensor, x_shape: Sequence[int], channels_last: bool, window: Window) -> TorchPlan:
    return plan_of(tuple(x_shape), like.dtype, like.device, channels_last, window)


_CPU = torch.device("cpu")


def _fake_y_and_routes(x_shape: Any, like: torch.Tensor, channels_last: bool, window: Window) -> Tuple[Any, Any]:
    """Shapes of y and routes for an x whose batch and channels may be symbols."""
    rank = len(window.kernel)
    spatial = tuple(int(n) for n in x_shape[-rank:])
    plan = plan_of((1, 1, *spatial), like.dtype, _CPU, channels_last, window)
    batch, channels, outs = tuple(x_shape[: -rank - 1]), x_shape[-rank - 1], plan.tensor_y[2:]
    line = (channels if channels_last else outs[-1]) * plan.route_bits
    lines = outs if channels_last else (channels, *outs[:-1])
    return (*batch, channels, *outs), (*batch, *lines, (line + 7) // 8)


def _fake_empty(shape: Any, like: torch.Tensor, channels_last: bool, rank: int, dtype: Any = None) -> torch.Tensor:
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    memory_format = formats[rank] if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=memory_format)


if AVAILABLE:
    from torch.library import custom_op

    @custom_op("poolgrad::max_pool", mutates_args=())
    def _max_pool(
        x: torch.Tensor, kernel: List[int], stride: List[int], padding: List[int], padding_kind: int, dilation: List[int],
        ceil_mode: bool, ties: int, channels_last: bool,
    ) -> Tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        return _plan(x, x.shape, channels_last, window).forward_routes(x)

    @_max_pool.register_fake
    def _(x, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, channels_last):
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        y, routes = _fake_y_and_routes(x.shape, x, channels_last, window)
        return _fake_empty(y, x, channels_last, len(kernel)), x.new_empty(routes, dtype=torch.uint8)

    @custom_op("poolgrad::max_pool_scatter", mutates_args=())
    def _scatter(
        dy: torch.Tensor, routes: torch.Tensor, x_shape: List[int], kernel: List[int], stride: List[int], padding: List[int],
        padding_kind: int, dilation: List[int], ceil_mode: bool, ties: int, channels_last: bool,
    ) -> torch.Tensor:  # fmt: skip
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        plan = _plan(dy, x_shape, channels_last, window)
        plan.check("dy", dy, plan.tensor_y, dy.dtype)
        plan.check_routes(routes)
        return plan.scatter(dy, routes)

    @_scatter.register_fake
    def _(dy, routes, x_shape, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, channels_last):
        return _fake_empty(x_shape, dy, channels_last, len(kernel))

    @custom_op("poolgrad::max_pool_gather", mutates_args=())
    def _gather(
        tx: torch.Tensor, routes: torch.Tensor, kernel: List[int], stride: List[int], padding: List[int], padding_kind: int,
        dilation: List[int], ceil_mode: bool, ties: int, channels_last: bool,
    ) -> torch.Tensor:  # fmt: skip
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        plan = _plan(tx, tx.shape, channels_last, window)
        plan.check_routes(routes)
        return plan.gather(tx, routes)

    @_gather.register_fake
    def _(tx, routes, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, channels_last):
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        return _fake_empty(_fake_y_and_routes(tx.shape, tx, channels_last, window)[0], tx, channels_last, len(kernel))

    @custom_op("poolgrad::max_pool_indices", mutates_args=())
    def _indices(
        x: torch.Tensor, routes: torch.Tensor, kernel: List[int], stride: List[int], padding: List[int], padding_kind: int,
        dilation: List[int], ceil_mode: bool, ties: int, channels_last: bool,
    ) -> torch.Tensor:  # fmt: skip
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        plan = _plan(x, x.shape, channels_last, window)
        plan.check_routes(routes)
        return plan.indices(routes)

    @_indices.register_fake
    def _(x, routes, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, channels_last):
        window = _window(kernel, stride, padding, padding_kind, dilation, ceil_mode, ties)
        y, _ = _fake_y_and_routes(x.shape, x, channels_last, window)
        return _fake_empty(y, x, channels_last, len(kernel), torch.int64)

    # Each is linear once routes are known, so its derivative is another of them, over the same window.

    def _setup_pool(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.window = inputs[0].shape, inputs[1:]
        ctx.save_for_backward(output[1])
        ctx.set_materialize_grads(False)

    def _pool_backward(ctx: Any, dy: Any, _: Any) -> Any:
        dx = None if dy is None else _scatter(dy, ctx.saved_tensors[0], ctx.x_shape, *ctx.window)
        return (dx, *(None for _ in ctx.window))

    def _setup_scatter(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.window = inputs[3:]
        ctx.save_for_backward(inputs[1])

    def _scatter_backward(ctx: Any, ddx: Any) -> Any:
        return (_gather(ddx, ctx.saved_tensors[0], *ctx.window), None, None, *(None for _ in ctx.window))

    def _setup_gather(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.window = inputs[0].shape, inputs[2:]
        ctx.save_for_backward(inputs[1])

    def _gather_backward(ctx: Any, dty: Any) -> Any:
        dtx = _scatter(dty, ctx.saved_tensors[0], ctx.x_shape, *ctx.window)
        return (dtx, None, *(None for _ in ctx.window))

    _max_pool.register_autograd(_pool_backward, setup_context=_setup_pool)
    _scatter.register_autograd(_scatter_backward, setup_context=_setup_scatter)
    _gather.register_autograd(_gather_backward, setup_context=_setup_gather)


def traced_pool(x: torch.Tensor, window: Window, return_indices: bool) -> Any:
    """max pooling through the operators, as torch.compile records it."""
    rank = len(window.kernel)
    channels_last = lies_channels_last(x, rank)
    fixed = (
        list(window.kernel), list(window.stride), list(window.padding), window.padding_kind, list(window.dilation),
        window.ceil_mode, window.ties, channels_last,
    )  # fmt: skip
    y, routes = torch.ops.poolgrad.max_pool(x, *fixed)
    if not return_indices:
        return y
    return y, torch.ops.poolgrad.max_pool_indices(x.detach(), routes, *fixed)
