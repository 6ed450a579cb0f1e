"""The same operations as torch.library operators, for torch.compile and torch.export (torch 2.4 and later).

Every operator has a fake kernel. Batch and channels stay symbolic in it; the spatial sizes are taken as numbers, so that the
library itself says what the output's are: window arithmetic has one home. channels_last is decided where the call is traced.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import torch

from ._plans import TorchPlan, Window, lies_channels_last, plan_of

AVAILABLE = hasattr(torch, "library") and hasattr(torch.library, "custom_op") and hasattr(torch.library, "register_autograd")

# What every operator takes after its tensors: the fields of a Window, and whether x lies channels last. Spelled out, since
# torch before 2.7 reads no schema from annotations that are strings.
_FIXED = "int[] kernel, int[] stride, int[] padding, int padding_kind, int[] dilation, bool ceil_mode, int ties, bool channels_last"
_CPU = torch.device("cpu")


def _operator(name: str, tensors: str, result: str) -> Any:
    return torch.library.custom_op(f"poolgrad::{name}", mutates_args=(), schema=f"({tensors}, {_FIXED}) -> {result}")


def _window(fixed: Sequence[Any]) -> Window:
    return Window(*(tuple(field) if isinstance(field, (list, tuple)) else field for field in fixed[:-1]))


def _plan(like: torch.Tensor, x_shape: Sequence[int], fixed: Sequence[Any]) -> TorchPlan:
    return plan_of(tuple(x_shape), like.dtype, like.device, fixed[-1], _window(fixed))


def _fake_y_and_routes(x_shape: Any, like: torch.Tensor, fixed: Sequence[Any]) -> Tuple[Any, Any]:
    """Shapes of y and routes for an x whose batch and channels may be symbols."""
    rank, channels_last = len(fixed[0]), fixed[-1]
    spatial = tuple(int(n) for n in x_shape[-rank:])
    plan = plan_of((1, 1, *spatial), like.dtype, _CPU, channels_last, _window(fixed))
    batch, channels, outs = tuple(x_shape[: -rank - 1]), x_shape[-rank - 1], plan.tensor_y[2:]
    line = (channels if channels_last else outs[-1]) * plan.route_bits
    lines = outs if channels_last else (channels, *outs[:-1])
    return (*batch, channels, *outs), (*batch, *lines, (line + 7) // 8)


def _fake_empty(shape: Any, like: torch.Tensor, fixed: Sequence[Any], dtype: Any = None) -> torch.Tensor:
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    memory_format = formats[len(fixed[0])] if fixed[-1] else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=memory_format)


if AVAILABLE:

    @_operator("max_pool", "Tensor x", "(Tensor, Tensor)")
    def _max_pool(x: torch.Tensor, *fixed: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        return _plan(x, x.shape, fixed).forward_routes(x)

    @_max_pool.register_fake
    def _(x: torch.Tensor, *fixed: Any) -> Any:
        y, routes = _fake_y_and_routes(x.shape, x, fixed)
        return _fake_empty(y, x, fixed), x.new_empty(routes, dtype=torch.uint8)

    @_operator("max_pool_scatter", "Tensor dy, Tensor routes, SymInt[] x_shape", "Tensor")
    def _scatter(dy: torch.Tensor, routes: torch.Tensor, x_shape: Sequence[int], *fixed: Any) -> torch.Tensor:
        plan = _plan(dy, x_shape, fixed)
        plan.check("dy", dy, plan.tensor_y, dy.dtype)
        return plan.scatter(dy, plan.checked_routes(routes))

    @_scatter.register_fake
    def _(dy: torch.Tensor, routes: torch.Tensor, x_shape: Any, *fixed: Any) -> Any:
        return _fake_empty(x_shape, dy, fixed)

    @_operator("max_pool_gather", "Tensor tx, Tensor routes", "Tensor")
    def _gather(tx: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
        plan = _plan(tx, tx.shape, fixed)
        return plan.gather(tx, plan.checked_routes(routes))

    @_gather.register_fake
    def _(tx: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> Any:
        return _fake_empty(_fake_y_and_routes(tx.shape, tx, fixed)[0], tx, fixed)

    @_operator("max_pool_indices", "Tensor x, Tensor routes", "Tensor")
    def _indices(x: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
        plan = _plan(x, x.shape, fixed)
        return plan.indices(plan.checked_routes(routes))

    @_indices.register_fake
    def _(x: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> Any:
        return _fake_empty(_fake_y_and_routes(x.shape, x, fixed)[0], x, fixed, torch.int64)

    # Each is linear once routes are known, so its derivative is another of them, over the same window.

    def _setup_pool(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.fixed = inputs[0].shape, inputs[1:]
        ctx.save_for_backward(output[1])
        ctx.set_materialize_grads(False)

    def _pool_backward(ctx: Any, dy: Any, _: Any) -> Any:
        dx = None if dy is None else _scatter(dy, ctx.saved_tensors[0], ctx.x_shape, *ctx.fixed)
        return (dx, *(None for _ in ctx.fixed))

    def _setup_scatter(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.fixed = inputs[3:]
        ctx.save_for_backward(inputs[1])

    def _scatter_backward(ctx: Any, ddx: Any) -> Any:
        return (_gather(ddx, ctx.saved_tensors[0], *ctx.fixed), None, None, *(None for _ in ctx.fixed))

    def _setup_gather(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.fixed = inputs[0].shape, inputs[2:]
        ctx.save_for_backward(inputs[1])

    def _gather_backward(ctx: Any, dty: Any) -> Any:
        dtx = _scatter(dty, ctx.saved_tensors[0], ctx.x_shape, *ctx.fixed)
        return (dtx, None, *(None for _ in ctx.fixed))

    _max_pool.register_autograd(_pool_backward, setup_context=_setup_pool)
    _scatter.register_autograd(_scatter_backward, setup_context=_setup_scatter)
    _gather.register_autograd(_gather_backward, setup_context=_setup_gather)


def fixed_of(window: Window, channels_last: bool) -> Tuple[Any, ...]:
    fields = (list(field) if isinstance(field, tuple) else field for field in window)
    return (*fields, channels_last)


def traced_pool(x: torch.Tensor, window: Window, return_indices: bool) -> Any:
    """max pooling through the operators, as torch.compile records it."""
    fixed = fixed_of(window, lies_channels_last(x, len(window.kernel)))
    y, routes = torch.ops.poolgrad.max_pool(x, *fixed)
    if not return_indices:
        return y
    return y, torch.ops.poolgrad.max_pool_indices(x.detach(), routes, *fixed)


def scatter(dy: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    """dx = S^T dy through the operator."""
    shape, _, _, channels_last, window = plan.args
    return torch.ops.poolgrad.max_pool_scatter(dy, routes, list(shape), *fixed_of(window, channels_last))
