"""Max pooling as autograd functions: S, its transpose, and each as the other's derivative.

    pool     y = S x, keeping routes; backward is scatter, forward mode is gather
    scatter  dx = S^T dy;             backward is gather, forward mode is scatter
    gather   ty = S tx;               backward is scatter, forward mode is gather

With a bias before the ReLU, R says which outputs have a route, each with its channel:

    bias_sum dbias = R^T dy;          backward is routed, forward mode is bias_sum
    routed   ty = R tbias;            backward is bias_sum, forward mode is routed

Only routes are saved. What a function computes, it computes straight on plain tensors, and through the operators of _library on
all others. vmap folds its axis into the batch. torch before 2.0 has no setup_context; there the two halves of a function are
joined into one forward. A function that torch.func may have run is always followed by another, through apply: its saved tensors
may be wrappers of a transform that has ended (vjp's function is called after it), and apply unwraps them.
"""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import torch
from torch.autograd import Function

from . import _library
from ._plain import dispatch_modes, functorch_active, is_plain, is_tracing
from ._plans import TorchPlan

_forward_ad = torch.autograd.forward_ad
HAS_SETUP_CONTEXT = hasattr(Function, "setup_context")


def _joined(cls: Any) -> Any:
    if HAS_SETUP_CONTEXT:
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


def _run(name: str, plan: TorchPlan, tensor: torch.Tensor, *routes: torch.Tensor) -> Any:
    """An operation of the plan: straight where there is memory to read, or else through its operator, below autograd."""
    if is_plain(tensor) and all(map(is_plain, routes)):
        try:
            return getattr(plan, name)(tensor, *routes)
        except RuntimeError:  # no memory to read: the operator knows, or fails in its own words
            pass
    return getattr(_library, name)(tensor, *routes, plan)


def make_pool(plan: TorchPlan) -> Callable[[torch.Tensor], torch.Tensor]:
    """y of a plain x, recorded if reverse or forward mode records what is done to x.

    Every plan gets a function of its own, run through the C half of apply (what Python adds there is for torch.func): each
    argument and each attribute of ctx costs as much as the pooling of a tiny tensor.
    """

    Tensor = torch.Tensor

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
            if not (  # is_plain, as far as a gradient can fail to be, and nothing records what is done to it
                dy.requires_grad
                or dy.is_neg()
                or type(dy) is not Tensor
                or dispatch_modes()
                or is_tracing()
                or _forward_ad._current_level >= 0
                or functorch_active()
            ):
                try:
                    return plan.scatter(dy, routes)
                except (RuntimeError, ValueError):  # no memory to read, as in autograd.grad(is_grads_batched=True)
                    pass
            return _Scatter.of(dy, routes, plan)

        @staticmethod
        def jvp(ctx: Any, tx: torch.Tensor) -> Any:
            return _Gather.of(tx, ctx.saved_tensors[0], plan)

    Pool._backward_cls.apply = Pool.backward  # in place of a function that looks for it at every call
    record, is_grad_enabled = super(Function, Pool).apply, torch.is_grad_enabled

    def pool(x: torch.Tensor) -> torch.Tensor:
        return record(x) if (x.requires_grad and is_grad_enabled()) or _forward_ad._current_level >= 0 else plan.forward(x)

    return pool


class _PoolWithRoutes(Function):
    """The same for one who wants routes, too. They go out through a list: as an output torch would track them, and before 2.0 its
    forward mode wants a tangent of every output."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, plan: TorchPlan, routes_out: List[torch.Tensor]) -> torch.Tensor:
        y, routes = _run("forward_routes", plan, x)
        routes_out.append(routes)
        ctx.plan = plan
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return _Scatter.of(dy, ctx.saved_tensors[0], ctx.plan), None, None

    @staticmethod
    def jvp(ctx: Any, tx: torch.Tensor, *_: Any) -> Any:
        return _Gather.of(tx, ctx.saved_tensors[0], ctx.plan)


def _pool_with_routes(x: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
    routes_out: List[torch.Tensor] = []
    y = _PoolWithRoutes.apply(x, plan, routes_out)
    return y, routes_out[0]


class _TransformedPool(Function):
    """The same for torch.func, whose transforms (torch 2.0 and later) want every tensor as an output."""

    @staticmethod
    def forward(x: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
        return _run("forward_routes", plan, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        routes = output[1]
        ctx.plan = inputs[1]
        ctx.mark_non_differentiable(routes)
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor, _: Any) -> Any:
        return _Scatter.of(dy, ctx.saved_tensors[0], ctx.plan), None

    @staticmethod
    def jvp(ctx: Any, tx: torch.Tensor, _: Any) -> Any:
        return _Gather.of(tx, ctx.saved_tensors[0], ctx.plan), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: torch.Tensor, plan: TorchPlan) -> Any:
        size = info.batch_size
        y, routes = _TransformedPool.apply(_fold(x, in_dims[0], size, plan), _folded_plan(plan, size))
        return (_unfold(y, size, plan), _unfold(routes, size, plan)), (0, 0)


def _linear(name: str, folds: bool = True) -> Any:
    """scatter or gather, by the name each has as an operation of a plan: linear in its first input; the others are constants. What
    sums over the batch folds no axis into it."""

    def operator(vector: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
        sizes = () if name == "gather" else (list(plan.tensor_x),)
        return getattr(torch.ops.poolgrad, f"max_pool_{name}")(vector, routes, *sizes, *_library.plan_fixed(plan))

    @_joined
    class Linear(Function):
        transpose: Any  # the other

        @staticmethod
        def of(vector: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
            """apply, or the operator inside functorch's transforms before torch 2.0, which take no autograd functions: a vmap over
            the gradients of what was recorded outside."""
            by = Linear.apply if HAS_SETUP_CONTEXT or not functorch_active() else operator
            return by(vector, routes, plan)

        @staticmethod
        def forward(vector: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
            return _run(name, plan, vector, routes.contiguous())

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, routes, ctx.plan = inputs
            ctx.save_for_backward(routes)
            ctx.save_for_forward(routes)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return Linear.transpose.of(gradient, ctx.saved_tensors[0], ctx.plan), None, None

        @staticmethod
        def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
            return Linear.of(tangent, ctx.saved_tensors[0], ctx.plan)

        @staticmethod
        def vmap(info: Any, in_dims: Any, vector: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> Any:
            size = info.batch_size
            if not folds:
                each = (
                    tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
                    for tensor, dim in zip((vector, routes), in_dims)
                )
                return torch.stack([Linear.apply(*one, plan) for one in zip(*each)]), 0
            folded = (_fold(vector, in_dims[0], size, plan), _fold(routes, in_dims[1], size, plan))
            return _unfold(Linear.apply(*folded, _folded_plan(plan, size)), size, plan), 0

    return Linear


_Scatter, _Gather = _linear("scatter"), _linear("gather")
_Scatter.transpose, _Gather.transpose = _Gather, _Scatter
_BiasSum, _Routed = _linear("bias_sum", folds=False), _linear("routed", folds=False)
_BiasSum.transpose, _Routed.transpose = _Routed, _BiasSum


class _PoolBias(Function):
    """y of x and a bias."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor, plan: TorchPlan, routes_out: List[torch.Tensor]) -> torch.Tensor:
        try:
            if not (is_plain(x) and is_plain(bias)):
                raise RuntimeError
            y, routes = plan.forward_routes(x, bias)
        except RuntimeError:  # as in _run
            y, routes = _library.forward_bias(x, bias, plan)
        routes_out.append(routes)
        ctx.plan = plan
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (routes,), plan, (for_x, for_bias, *_) = ctx.saved_tensors, ctx.plan, ctx.needs_input_grad
        dx = _Scatter.of(dy, routes, plan) if for_x else None
        return dx, _BiasSum.of(dy, routes, plan) if for_bias else None, None, None

    @staticmethod
    def jvp(ctx: Any, tx: Any, tbias: Any, *_: Any) -> Any:
        routes, plan = ctx.saved_tensors[0], ctx.plan
        ty = [None if tx is None else _Gather.of(tx, routes, plan), None if tbias is None else _Routed.of(tbias, routes, plan)]
        return ty[0] if ty[1] is None else ty[1] if ty[0] is None else ty[0] + ty[1]


def pool_bias(x: torch.Tensor, bias: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    """y of a plain x and a plain bias."""
    recorded = torch.is_grad_enabled() and (x.requires_grad or bias.requires_grad)
    if recorded or _forward_ad._current_level >= 0:
        return _PoolBias.apply(x, bias, plan, [])
    return plan.forward(x, bias)


def _pool_bias_with_routes(x: torch.Tensor, bias: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
    routes_out: List[torch.Tensor] = []
    y = _PoolBias.apply(x, bias, plan, routes_out)
    return y, routes_out[0]


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
    """(y, indices) of a plain x."""
    y, routes = _pool_with_routes(x, plan)
    return y, plan.indices(routes)


def transformed_pool(x: torch.Tensor, plan: TorchPlan, return_indices: bool) -> Any:
    """The same for an x that torch.func transforms, torch 2.0 and later."""
    y, routes = _TransformedPool.apply(x, plan)
    return (y, _Indices.apply(routes, plan)) if return_indices else y


def has_tangents() -> bool:
    return _forward_ad._current_level >= 0


def pool_with_routes(x: torch.Tensor, plan: TorchPlan) -> Any:
    """(y, routes) of an x that nothing records."""
    return _TransformedPool.apply(x, plan) if functorch_active() and HAS_SETUP_CONTEXT else _run("forward_routes", plan, x)


class _Known(_PoolWithRoutes):
    """The y of x that was found before, with routes that came from elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, found: Tuple[torch.Tensor, torch.Tensor], plan: TorchPlan) -> torch.Tensor:
        y, routes = found
        ctx.plan = plan
        ctx.save_for_backward(routes)
        ctx.save_for_forward(routes)
        return y


def pool_by_routes(x: torch.Tensor, y: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    if functorch_active() or not is_plain(x):
        return _Gather.apply(x, routes, plan)
    return _Known.apply(x, (y, routes), plan)


def _linear_operator(function: Any, name: str, wanted: str) -> Any:
    """An operator that records `function`. It may be called by anyone, so that its tensors are checked here: below they are trusted."""

    def run(vector: torch.Tensor, routes: torch.Tensor, x_shape: Any, *fixed: Any) -> torch.Tensor:
        plan = _library.plan_for(vector, x_shape, fixed)
        plan.check(name, vector, getattr(plan, wanted), vector.dtype)
        return function.apply(vector, plan.checked_routes(routes), plan)

    return run


def _record_bias(x: torch.Tensor, bias: torch.Tensor, *fixed: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    plan = _library.pool_plan(x, fixed)
    plan.check("bias", bias, plan.bias_shape, x.dtype)
    return _pool_bias_with_routes(x, bias, plan)


_record_gather = _linear_operator(_Gather, "tx", "tensor_x")
_library.record("max_pool", lambda x, *fixed: _pool_with_routes(x, _library.pool_plan(x, fixed)))
_library.record("max_pool_indices", _library.indices)
_library.record("max_pool_scatter", _linear_operator(_Scatter, "dy", "tensor_y"))
_library.record("max_pool_gather", lambda tx, routes, *fixed: _record_gather(tx, routes, tx.shape, *fixed))
_library.record("max_pool_bias", _record_bias)
_library.record("max_pool_bias_sum", _linear_operator(_BiasSum, "dy", "tensor_y"))
_library.record("max_pool_routed", _linear_operator(_Routed, "tbias", "bias_shape"))
