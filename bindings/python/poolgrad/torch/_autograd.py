"""Max pooling as autograd functions: S, its transpose, and each as the other's derivative.

    pool     y = S x, keeping routes; backward is scatter, forward mode is gather
    scatter  dx = S^T dy;             backward is gather, forward mode is scatter
    gather   ty = S tx;               backward is scatter, forward mode is gather

Only routes are saved. vmap folds its axis into the batch. torch before 2.0 has no setup_context; there the two halves of a
function are joined into one forward. A function that torch.func may have run is always followed by another, through apply:
its saved tensors may be wrappers of a transform that has ended (vjp's function is called after it), and apply unwraps them.
"""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import torch
from torch.autograd import Function

from . import _library
from ._plans import TorchPlan

_functorch = getattr(torch._C, "_functorch", None)
_functorch_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_unwrap_if_dead: Callable[[torch.Tensor], torch.Tensor] = getattr(_functorch, "unwrap_if_dead", lambda tensor: tensor)
_is_legacy_batched: Callable[[torch.Tensor], bool] = getattr(_functorch, "is_legacy_batchedtensor", lambda tensor: False)
_forward_ad = torch.autograd.forward_ad
_HAS_SETUP_CONTEXT = hasattr(Function, "setup_context")


def _joined(cls: Any) -> Any:
    if _HAS_SETUP_CONTEXT:
        return cls
    compute, setup = cls.forward, cls.setup_context

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = compute(*inputs)
        setup(ctx, inputs, output)
        return output

    cls.forward = staticmethod(forward)
    return cls


def _fold(tensor: torch.Tensor, dim: Any, size: int, plan: TorchPlan) -> torch.Tensor:
    """The vmapped axis of `tensor` merged with its batch; a tensor without that axis is repeated along it."""
    tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.flatten(0, 1) if len(plan.tensor_x) == plan.rank + 2 else tensor


def _unfold(tensor: torch.Tensor, size: int, plan: TorchPlan) -> torch.Tensor:
    if len(plan.tensor_x) != plan.rank + 2:
        return tensor
    return tensor.reshape(size, tensor.shape[0] // size if size else plan.tensor_x[0], *tensor.shape[1:])


def _folded_plan(plan: TorchPlan, size: int) -> TorchPlan:
    return plan.with_batch(size * (plan.tensor_x[0] if len(plan.tensor_x) == plan.rank + 2 else 1))


def make_pool(plan: TorchPlan) -> Callable[[torch.Tensor], torch.Tensor]:
    """y of x, recorded if anything records what is done to x: reverse mode, forward mode, or a transform of torch.func.

    Every plan gets a function of its own, run through the C half of apply (what Python adds there is for torch.func): each
    argument and each attribute of ctx costs as much as the pooling of a tiny tensor.
    """

    class Pool(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y, routes = plan.forward_routes(x)
            ctx.save_for_backward(routes)
            if _forward_ad._current_level >= 0:
                ctx.save_for_forward(routes)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> Any:
            (routes,) = ctx.saved_tensors
            if dy.requires_grad or _forward_ad._current_level >= 0 or _functorch_active():
                return _Scatter.apply(dy, routes, plan)
            try:
                return plan.scatter(dy, routes)
            except RuntimeError:
                if not _is_legacy_batched(dy):
                    raise
                return _Scatter.apply(dy, routes, plan)

        @staticmethod
        def jvp(ctx: Any, tx: torch.Tensor) -> Any:
            return _Gather.apply(tx, ctx.saved_tensors[0], plan)

    Pool._backward_cls.apply = Pool.backward  # in place of a function that looks for it at every call
    record, is_grad_enabled = super(Function, Pool).apply, torch.is_grad_enabled

    def pool(x: torch.Tensor) -> torch.Tensor:
        if _functorch_active():
            return _transformed_pool(x, plan)[0]
        try:
            return record(x) if (x.requires_grad and is_grad_enabled()) or _forward_ad._current_level >= 0 else plan.forward(x)
        except RuntimeError:
            unwrapped = _unwrap_if_dead(x)
            if unwrapped is x:
                raise
            return pool(unwrapped)

    return pool


class _PoolWithRoutes(Function):
    """The same for one who wants routes, too. They go out through a list: as an output, torch would track them."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, plan: TorchPlan, routes_out: List[torch.Tensor]) -> torch.Tensor:
        y, routes = plan.forward_routes(x)
        routes_out.append(routes)
        ctx.plan = plan
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return _Scatter.apply(dy, ctx.saved_tensors[0], ctx.plan), None, None

    @staticmethod
    def jvp(ctx: Any, tx: torch.Tensor, *_: Any) -> Any:
        return _Gather.apply(tx, ctx.saved_tensors[0], ctx.plan)


class _TransformedPool(Function):
    """The same for torch.func, whose transforms (torch 2.0 and later) want every tensor as an output."""

    @staticmethod
    def forward(x: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
        return plan.forward_routes(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        routes = output[1]
        ctx.plan = inputs[1]
        ctx.mark_non_differentiable(routes)
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor, _: Any) -> Any:
        return _Scatter.apply(dy, ctx.saved_tensors[0], ctx.plan), None

    @staticmethod
    def jvp(ctx: Any, tx: torch.Tensor, _: Any) -> Any:
        return _Gather.apply(tx, ctx.saved_tensors[0], ctx.plan), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: torch.Tensor, plan: TorchPlan) -> Any:
        size = info.batch_size
        y, routes = _TransformedPool.apply(_fold(x, in_dims[0], size, plan), _folded_plan(plan, size))
        return (_unfold(y, size, plan), _unfold(routes, size, plan)), (0, 0)


class _Linear(Function):
    """Scatter or gather: linear in its first input; routes and plan are constants."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, routes, ctx.plan = inputs
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)


@_joined
class _Scatter(_Linear):
    @staticmethod
    def forward(dy: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        if _is_legacy_batched(dy) and _library.AVAILABLE:  # autograd.grad(is_grads_batched=True): torch runs it once for each
            return _library.scatter(dy, routes, plan)
        return plan.scatter(dy, routes.contiguous())

    @staticmethod
    def backward(ctx: Any, ddx: Any) -> Any:
        return _Gather.apply(ddx, ctx.saved_tensors[0], ctx.plan), None, None

    @staticmethod
    def jvp(ctx: Any, tdy: Any, *_: Any) -> Any:
        return _Scatter.apply(tdy, ctx.saved_tensors[0], ctx.plan)

    @staticmethod
    def vmap(info: Any, in_dims: Any, dy: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> Any:
        size = info.batch_size
        folded = (_fold(dy, in_dims[0], size, plan), _fold(routes, in_dims[1], size, plan))
        return _unfold(_Scatter.apply(*folded, _folded_plan(plan, size)), size, plan), 0


@_joined
class _Gather(_Linear):
    @staticmethod
    def forward(tx: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        return plan.gather(tx, routes.contiguous())

    @staticmethod
    def backward(ctx: Any, dty: Any) -> Any:
        return _Scatter.apply(dty, ctx.saved_tensors[0], ctx.plan), None, None

    @staticmethod
    def jvp(ctx: Any, ttx: Any, *_: Any) -> Any:
        return _Gather.apply(ttx, ctx.saved_tensors[0], ctx.plan)

    @staticmethod
    def vmap(info: Any, in_dims: Any, tx: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> Any:
        size = info.batch_size
        folded = (_fold(tx, in_dims[0], size, plan), _fold(routes, in_dims[1], size, plan))
        return _unfold(_Gather.apply(*folded, _folded_plan(plan, size)), size, plan), 0


@_joined
class _Indices(Function):
    @staticmethod
    def forward(routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        return plan.indices(routes.contiguous())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, _: Any) -> Any:
        return None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, routes: torch.Tensor, plan: TorchPlan) -> Any:
        size = info.batch_size
        indices = _Indices.apply(_fold(routes, in_dims[0], size, plan), _folded_plan(plan, size))
        return _unfold(indices, size, plan), 0


def pool_with_indices(x: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
    if _functorch_active():
        y, routes = _transformed_pool(x, plan)
        return y, _Indices.apply(routes, plan)
    routes_out: List[torch.Tensor] = []
    y = _PoolWithRoutes.apply(x, plan, routes_out)
    return y, plan.indices(routes_out[0])


def _transformed_pool(x: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
    if not _HAS_SETUP_CONTEXT:
        raise NotImplementedError(f"functorch cannot see through poolgrad with torch {torch.__version__}; it can from 2.0 on")
    return _TransformedPool.apply(x, plan)
