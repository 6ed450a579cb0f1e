"""The same operations as operators of torch's dispatcher: what tracing, modes, vmap, torch.compile and exporters see.

    poolgrad::max_pool            y and routes of x
    poolgrad::max_pool_scatter    dx of dy and routes
    poolgrad::max_pool_gather     ty of tx and routes
    poolgrad::max_pool_indices    torch's indices of routes
    poolgrad::max_pool_bias       y and routes of x and a bias, with relu
    poolgrad::max_pool_bias_sum   dbias of dy and routes
    poolgrad::max_pool_routed     ty of tbias and routes

Every operator has a kernel for real tensors and one that only says shapes (fake tensors, the meta device). In the latter batch
and channels stay symbolic; the spatial sizes are taken as numbers, so that the library itself says what the output's are:
window arithmetic has one home. From torch 2.4 on they are custom_op's; before, they are registered key by key, and _autograd
adds what records them.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch

from ._plans import TorchPlan, Window, lies_channels_last, plan_of

HAS_CUSTOM_OP = hasattr(torch.library, "custom_op") and hasattr(torch.library, "register_autograd")

# What every operator takes after its tensors: the fields of a Window, and before those that have defaults, whether x lies channels
# last: 0, 1, or -1 for "see how x lies", which those that take x may be given. torch.compile says it where the call is traced, since Inductor may hand over
# tensors that lie differently; torch.jit leaves it open. Spelled out, since torch before 2.7 reads no schema from annotations that
# are strings.
_FIXED = (
    "int[] kernel, int[] stride, int[] padding, int padding_kind, int[] dilation, bool ceil_mode, int ties, int channels_last, "
    "int kind=0, bool relu=False, int[] outputs=[], int[] starts=[], bool count_padding=True, int divisor=0, "
    "bool bias=False"
)
_LIES = 7  # where channels_last is among them
AS_X_LIES = -1
_CPU = torch.device("cpu")
_library = None if HAS_CUSTOM_OP else torch.library.Library("poolgrad", "DEF")


def _define(name: str, tensors: str, result: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    if _library is None:
        schema = f"({tensors}, {_FIXED}) -> {result}"
        made = torch.library.custom_op(f"poolgrad::{name}", kernel, mutates_args=(), schema=schema)
        made.register_fake(fake)
        return made
    _library.define(f"{name}({tensors.replace('SymInt', 'int')}, {_FIXED}) -> {result}")
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    _library.impl(name, fake, "Meta")
    return getattr(torch.ops.poolgrad, name)


def record(name: str, run: Callable[..., Any]) -> None:
    """Before torch 2.4: what the operator does where autograd looks on."""
    if _library is not None:
        _library.impl(name, run, "Autograd")


def _below_autograd(operator: Any, *arguments: Any) -> Any:
    """Runs an operator that was just recorded."""
    guard = torch._C._AutoDispatchBelowAutograd()
    if hasattr(guard, "__enter__"):
        with guard:
            return operator(*arguments)
    try:  # torch before 2.0: in force as long as it lives
        return operator(*arguments)
    finally:
        del guard


def _window(fixed: Sequence[Any]) -> Window:
    return Window(*(tuple(field) if isinstance(field, (list, tuple)) else field for field in (*fixed[:_LIES], *fixed[_LIES + 1 :])))


def _lying(x: torch.Tensor, fixed: Sequence[Any]) -> Sequence[Any]:
    if fixed[_LIES] != AS_X_LIES:
        return fixed
    return (*fixed[:_LIES], int(lies_channels_last(x.shape, x.stride(), len(fixed[0]))), *fixed[_LIES + 1 :])


def plan_for(like: torch.Tensor, x_shape: Sequence[int], fixed: Sequence[Any]) -> TorchPlan:
    return plan_of(tuple(x_shape), like.dtype, like.device, bool(fixed[_LIES]), _window(fixed))


def pool_plan(x: torch.Tensor, fixed: Sequence[Any]) -> TorchPlan:
    return plan_for(x, x.shape, _lying(x, fixed))


# ---- kernels, and what they are for tensors without memory -------------------------------------------------------------------


def _run_pool(x: torch.Tensor, *fixed: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    return pool_plan(x, fixed).forward_routes(x)


def _run_scatter(dy: torch.Tensor, routes: torch.Tensor, x_shape: Sequence[int], *fixed: Any) -> torch.Tensor:
    plan = plan_for(dy, x_shape, fixed)
    plan.check("dy", dy, plan.tensor_y, dy.dtype)
    return plan.scatter(dy, plan.checked_routes(routes))


def _run_gather(tx: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
    plan = plan_for(tx, tx.shape, fixed)
    return plan.gather(tx, plan.checked_routes(routes))


def _run_indices(x: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
    plan = pool_plan(x, fixed)
    return plan.indices(plan.checked_routes(routes))


def _run_bias(x: torch.Tensor, bias: torch.Tensor, *fixed: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    plan = pool_plan(x, fixed)
    plan.check("bias", bias, plan.bias_shape, x.dtype)
    return plan.forward_routes(x, bias)


def _run_bias_sum(dy: torch.Tensor, routes: torch.Tensor, x_shape: Sequence[int], *fixed: Any) -> torch.Tensor:
    plan = plan_for(dy, x_shape, fixed)
    plan.check("dy", dy, plan.tensor_y, dy.dtype)
    return plan.bias_sum(dy, plan.checked_routes(routes))


def _run_routed(tbias: torch.Tensor, routes: torch.Tensor, x_shape: Sequence[int], *fixed: Any) -> torch.Tensor:
    plan = plan_for(tbias, x_shape, fixed)
    plan.check("tbias", tbias, plan.bias_shape, tbias.dtype)
    return plan.routed(tbias, plan.checked_routes(routes))


def _fake_shapes(x_shape: Any, like: torch.Tensor, fixed: Sequence[Any]) -> Tuple[Any, Any]:
    """Shapes of y and routes for an x whose batch and channels may be symbols."""
    rank, channels_last = len(fixed[0]), fixed[_LIES]
    spatial = tuple(int(n) for n in x_shape[-rank:])
    plan = plan_of((1, 1, *spatial), like.dtype, _CPU, bool(channels_last), _window(fixed))
    batch, channels, outs = tuple(x_shape[: -rank - 1]), x_shape[-rank - 1], plan.tensor_y[2:]
    line = (channels if channels_last else outs[-1]) * plan.route_bits
    lines = outs if channels_last else (channels, *outs[:-1])
    return (*batch, channels, *outs), (*batch, *lines, (line + 7) // 8)


def _fake_empty(shape: Any, like: torch.Tensor, fixed: Sequence[Any], dtype: Any = None) -> torch.Tensor:
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    memory_format = formats[len(fixed[0])] if fixed[_LIES] else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=memory_format)


def _fake_pool(x: torch.Tensor, *fixed: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    fixed = _lying(x, fixed)
    y, routes = _fake_shapes(x.shape, x, fixed)
    return _fake_empty(y, x, fixed), torch.empty(routes, dtype=torch.uint8, device=x.device)


def _fake_scatter(dy: torch.Tensor, routes: torch.Tensor, x_shape: Any, *fixed: Any) -> torch.Tensor:
    return _fake_empty(x_shape, dy, fixed)


def _fake_gather(tx: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
    return _fake_empty(_fake_shapes(tx.shape, tx, fixed)[0], tx, fixed)


def _fake_indices(x: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
    fixed = _lying(x, fixed)
    return _fake_empty(_fake_shapes(x.shape, x, fixed)[0], x, fixed, torch.int64)


def _fake_bias(x: torch.Tensor, bias: torch.Tensor, *fixed: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    return _fake_pool(x, *fixed)


def _fake_bias_sum(dy: torch.Tensor, routes: torch.Tensor, x_shape: Any, *fixed: Any) -> torch.Tensor:
    return torch.empty(x_shape[-len(fixed[0]) - 1], dtype=dy.dtype, device=dy.device)


def _fake_routed(tbias: torch.Tensor, routes: torch.Tensor, x_shape: Any, *fixed: Any) -> torch.Tensor:
    return _fake_empty(_fake_shapes(x_shape, tbias, fixed)[0], tbias, fixed)


_max_pool = _define("max_pool", "Tensor x", "(Tensor, Tensor)", _run_pool, _fake_pool)
_scatter = _define("max_pool_scatter", "Tensor dy, Tensor routes, SymInt[] x_shape", "Tensor", _run_scatter, _fake_scatter)
_gather = _define("max_pool_gather", "Tensor tx, Tensor routes", "Tensor", _run_gather, _fake_gather)
_indices = _define("max_pool_indices", "Tensor x, Tensor routes", "Tensor", _run_indices, _fake_indices)

_bias = _define("max_pool_bias", "Tensor x, Tensor bias", "(Tensor, Tensor)", _run_bias, _fake_bias)
_SUM = "Tensor dy, Tensor routes, SymInt[] x_shape"
_bias_sum = _define("max_pool_bias_sum", _SUM, "Tensor", _run_bias_sum, _fake_bias_sum)
_routed = _define("max_pool_routed", _SUM.replace("dy", "tbias"), "Tensor", _run_routed, _fake_routed)


# ---- derivatives: each is linear once routes are known, so its derivative is another of them, over the same window -------------

if HAS_CUSTOM_OP:

    def _setup_pool(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.fixed = inputs[0].shape, _lying(inputs[0], inputs[1:])
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

    def _setup_bias(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.fixed = inputs[0].shape, _lying(inputs[0], inputs[2:])
        ctx.save_for_backward(output[1])
        ctx.set_materialize_grads(False)

    def _bias_backward(ctx: Any, dy: Any, _: Any) -> Any:
        given = ctx.saved_tensors[0], ctx.x_shape, *ctx.fixed
        dx = None if dy is None or not ctx.needs_input_grad[0] else _scatter(dy, *given)
        dbias = None if dy is None or not ctx.needs_input_grad[1] else _bias_sum(dy, *given)
        return (dx, dbias, *(None for _ in ctx.fixed))

    def _setup_sum(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x_shape, ctx.fixed = inputs[2], inputs[3:]
        ctx.save_for_backward(inputs[1])

    def _sum_backward(ctx: Any, gradient: Any) -> Any:
        return (_routed(gradient, ctx.saved_tensors[0], ctx.x_shape, *ctx.fixed), None, None, *(None for _ in ctx.fixed))

    def _routed_backward(ctx: Any, gradient: Any) -> Any:
        return (_bias_sum(gradient, ctx.saved_tensors[0], ctx.x_shape, *ctx.fixed), None, None, *(None for _ in ctx.fixed))

    _bias.register_autograd(_bias_backward, setup_context=_setup_bias)
    _bias_sum.register_autograd(_sum_backward, setup_context=_setup_sum)
    _routed.register_autograd(_routed_backward, setup_context=_setup_sum)
    _max_pool.register_autograd(_pool_backward, setup_context=_setup_pool)
    _scatter.register_autograd(_scatter_backward, setup_context=_setup_scatter)
    _gather.register_autograd(_gather_backward, setup_context=_setup_gather)


# ---- calls ---------------------------------------------------------------------------------------------------------------------


def fixed_of(window: Window, channels_last: int) -> Tuple[Any, ...]:
    fields = [list(field) if isinstance(field, tuple) else field for field in window]
    return (*fields[:_LIES], int(channels_last), *fields[_LIES:])


def plan_fixed(plan: TorchPlan) -> Tuple[Any, ...]:
    return fixed_of(plan.args[4], plan.args[3])


def pool(x: torch.Tensor, fixed: Sequence[Any], return_indices: bool) -> Any:
    y, routes = torch.ops.poolgrad.max_pool(x, *fixed)
    if not return_indices:
        return y
    return y, torch.ops.poolgrad.max_pool_indices(x.detach(), routes, *fixed)


# Operations of a plan as operators, below autograd; by the names they have there.


def forward_routes(x: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
    return _below_autograd(torch.ops.poolgrad.max_pool, x, *plan_fixed(plan))


def scatter(dy: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    return _below_autograd(torch.ops.poolgrad.max_pool_scatter, dy, routes, list(plan.tensor_x), *plan_fixed(plan))


def gather(tx: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    return _below_autograd(torch.ops.poolgrad.max_pool_gather, tx, routes, *plan_fixed(plan))


def forward_bias(x: torch.Tensor, bias: torch.Tensor, plan: TorchPlan) -> Tuple[torch.Tensor, torch.Tensor]:
    return _below_autograd(torch.ops.poolgrad.max_pool_bias, x, bias, *plan_fixed(plan))


def bias_sum(dy: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    return _below_autograd(torch.ops.poolgrad.max_pool_bias_sum, dy, routes, list(plan.tensor_x), *plan_fixed(plan))


def routed(tbias: torch.Tensor, routes: torch.Tensor, plan: TorchPlan) -> torch.Tensor:
    return _below_autograd(torch.ops.poolgrad.max_pool_routed, tbias, routes, list(plan.tensor_x), *plan_fixed(plan))


def indices(x: torch.Tensor, routes: torch.Tensor, *fixed: Any) -> torch.Tensor:
    return _below_autograd(torch.ops.poolgrad.max_pool_indices, x, routes, *fixed)
