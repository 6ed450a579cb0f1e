"""What a plan runs on tensors: raw addresses, torch's allocator, torch's threads and the current CUDA stream.

Everything here is on the path of a call on a tiny tensor, whose time is the number of names that Python looks up: hence
closures instead of methods, and structs made once and found by their address.
"""

from __future__ import annotations

import ctypes
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple

import torch

from .. import _abi

if TYPE_CHECKING:
    from ._plans import TorchPlan

OPERATIONS = ("forward", "forward_routes", "scatter", "gather", "indices", "bias_sum", "routed")


def make_operations(plan: TorchPlan) -> Tuple[Callable[..., Any], ...]:
    """OPERATIONS of a plan. Tensors are trusted to have its shape, type and device, and routes to be dense; autograd sees to it,
    the operators check. They hold the plan's handle and not the plan, so call them through it."""
    library, handle, fail = _abi.library(), plan.handle, _abi.raise_status
    run_forward, run_backward, run_gather = library.poolgrad_forward, library.poolgrad_backward, library.poolgrad_gather
    run_indices, numbering = library.poolgrad_routes_to_indices, _abi.NUMBERINGS["torch"]
    if plan.device.type == "cpu":
        where: Callable[[], int] = torch.get_num_threads
        forward_execs = routes_execs = backward_execs = gather_execs = indices_execs = _cpu_execs
    else:
        where = partial(_raw_stream, plan.device_index)
        forward_execs, routes_execs, backward_execs, gather_execs, indices_execs = (
            _cuda_execs(plan, op) for op in ("forward", "forward_routes", "backward", "gather", "")
        )
    layout, dense, empty_like = plan.format, torch.contiguous_format, torch.empty_like
    contiguous: Callable[[torch.Tensor], torch.Tensor] = (
        torch.Tensor.contiguous if layout is dense else partial(torch.Tensor.contiguous, memory_format=layout)
    )
    # torch.empty_like of a one-element tensor spread over the shape is the cheapest way to allocate from Python.
    like_x, like_y, like_indices, like_routes = (
        torch.empty(1, dtype=dtype, device=plan.device).expand(shape)
        for dtype, shape in (
            (plan.dtype, plan.tensor_x), (plan.dtype, plan.tensor_y), (torch.int64, plan.tensor_y),
            (torch.uint8, plan.tensor_routes),
        )
    )  # fmt: skip

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = contiguous(x)
        y = empty_like(like_y, memory_format=layout)
        if status := run_forward(handle, x.data_ptr(), y.data_ptr(), None, forward_execs[where()]):
            fail(status)
        return y

    def forward_routes(x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        x = contiguous(x)
        y = empty_like(like_y, memory_format=layout)
        routes = empty_like(like_routes, memory_format=dense)
        if status := run_forward(handle, x.data_ptr(), y.data_ptr(), routes.data_ptr(), routes_execs[where()]):
            fail(status)
        return y, routes

    def scatter(dy: torch.Tensor, routes: torch.Tensor) -> torch.Tensor:
        """dx = S^T dy."""
        dy = contiguous(dy)
        dx = empty_like(like_x, memory_format=layout)
        if status := run_backward(handle, dy.data_ptr(), routes.data_ptr(), dx.data_ptr(), backward_execs[where()]):
            fail(status)
        return dx

    def gather(tx: torch.Tensor, routes: torch.Tensor) -> torch.Tensor:
        """ty = S tx."""
        tx = contiguous(tx)
        ty = empty_like(like_y, memory_format=layout)
        if status := run_gather(handle, tx.data_ptr(), routes.data_ptr(), ty.data_ptr(), gather_execs[where()]):
            fail(status)
        return ty

    def indices(routes: torch.Tensor) -> torch.Tensor:
        """torch's int64 indices, in y's memory format."""
        found = empty_like(like_indices, memory_format=layout)
        if status := run_indices(handle, routes.data_ptr(), numbering, found.data_ptr(), indices_execs[where()]):
            fail(status)
        return found

    if plan.args[4].bias:
        return (*_with_bias(plan, contiguous, like_y, like_routes), scatter, gather, _with_first_taps(plan, indices), *_of_bias(plan, gather))
    if plan.args[4].kind:  # an average is its own tangent
        return forward, forward_routes, scatter, lambda tx, routes: forward(tx), indices
    if plan.args[4].relu:
        return forward, forward_routes, scatter, gather, _with_first_taps(plan, indices)
    return forward, forward_routes, scatter, gather, indices


def _execs(plan: TorchPlan, op: str) -> Tuple[Callable[[], int], Any]:
    """What says where to run, and the structs by what it says."""
    if plan.device.type == "cpu":
        return torch.get_num_threads, _cpu_execs
    return partial(_raw_stream, plan.device_index), _cuda_execs(plan, op)


def _with_bias(
    plan: TorchPlan, contiguous: Callable[[torch.Tensor], torch.Tensor], like_y: torch.Tensor, like_routes: torch.Tensor
) -> Tuple[Callable[..., Any], ...]:
    """forward and forward_routes of x and a bias."""
    run, handle, layout = _abi.library().poolgrad_forward_bias, plan.handle, plan.format
    (where, forward_execs), (_, routes_execs) = _execs(plan, "forward"), _execs(plan, "forward_routes")

    def forward(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x, bias = contiguous(x), bias.contiguous()
        y = torch.empty_like(like_y, memory_format=layout)
        if status := run(handle, x.data_ptr(), bias.data_ptr(), y.data_ptr(), None, forward_execs[where()]):
            _abi.raise_status(status)
        return y

    def forward_routes(x: torch.Tensor, bias: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        x, bias = contiguous(x), bias.contiguous()
        y = torch.empty_like(like_y, memory_format=layout)
        routes = torch.empty_like(like_routes, memory_format=torch.contiguous_format)
        if status := run(handle, x.data_ptr(), bias.data_ptr(), y.data_ptr(), routes.data_ptr(), routes_execs[where()]):
            _abi.raise_status(status)
        return y, routes

    return forward, forward_routes


def _of_bias(plan: TorchPlan, gather: Callable[..., torch.Tensor]) -> Tuple[Callable[..., torch.Tensor], ...]:
    run, handle, rank = _abi.library().poolgrad_bias_gradient, plan.handle, plan.rank
    (where, execs), shape, x_shape = _execs(plan, "bias_gradient"), plan.bias_shape, plan.tensor_x

    def bias_sum(dy: torch.Tensor, routes: torch.Tensor) -> torch.Tensor:
        """dbias, the sum of dy where there is a route."""
        dy = dy.contiguous(memory_format=plan.format)
        dbias = torch.empty(shape, dtype=dy.dtype, device=dy.device)
        if status := run(handle, dy.data_ptr(), routes.data_ptr(), dbias.data_ptr(), execs[where()]):
            _abi.raise_status(status)
        return dbias

    def routed(tbias: torch.Tensor, routes: torch.Tensor) -> torch.Tensor:
        """Its transpose: tbias of each output's channel where there is a route, else 0."""
        return gather(tbias.reshape(-1, *(1,) * rank).expand(x_shape), routes)

    return bias_sum, routed


def _with_first_taps(plan: TorchPlan, indices: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Indices as torch has them after a ReLU: a window with nothing above 0, which has no route, is one of nothing but zeros there,
    and its index that of a window of equals."""
    (_, dtype, device, channels_last, window), make = plan.args, type(plan)
    rank, x_shape, y_shape = plan.rank, plan.tensor_x, plan.tensor_y
    kept: List[torch.Tensor] = []

    def equals() -> torch.Tensor:
        if not kept:  # made when first asked for: few ask, and sets of ties have no indices
            plane = make((1, 1, *x_shape[-rank:]), dtype, device, channels_last, window._replace(relu=False, bias=False))
            found = plane.indices(plane.forward_routes(torch.zeros(plane.tensor_x, dtype=dtype, device=device))[1])
            kept.append(found.reshape(found.shape[len(found.shape) - len(y_shape) :]))
        return kept[0]

    def filled(routes: torch.Tensor) -> torch.Tensor:
        found = indices(routes)
        return torch.where(found < 0, equals(), found)

    return filled


# ---- poolgrad_exec, by what torch says now: the number of its threads, or its stream -----------------------------------------


def _gomp_parallel() -> int:
    """The address of GOMP_parallel in the OpenMP runtime that torch itself runs on; 0 if torch was built without one."""
    try:
        function = ctypes.CDLL(torch._C.__file__).GOMP_parallel  # found in what torch's own module is linked to
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _Execs(Dict[int, int]):
    """Addresses of structs that are read-only once made, and live as long as this."""

    def __init__(self) -> None:
        self.kept: List[_abi.Exec] = []

    def make(self, key: int) -> _abi.Exec:
        raise NotImplementedError

    def __missing__(self, key: int) -> int:
        run = self.make(key)
        self.kept.append(run)
        self[key] = address = ctypes.addressof(run)
        return address


class _CpuExecs(_Execs):
    """By number of threads. Tasks run on torch's own: OpenMP's wait for their next work spinning, and would hold the cores that
    a second set of threads needs. A forked child has none of them, and the runtime would wait for them: there poolgrad's own
    pool runs."""

    def __init__(self) -> None:
        super().__init__()
        self.parallel = _gomp_parallel()
        os.register_at_fork(after_in_child=self.leave_openmp)

    def leave_openmp(self) -> None:
        self.clear()
        self.parallel = 0

    def make(self, key: int) -> _abi.Exec:
        return _abi.make_openmp_exec(key, self.parallel) if self.parallel else _abi.make_exec(key)


class _StreamExecs(_Execs):
    """By CUDA stream, for operations that need no scratch."""

    def make(self, key: int) -> _abi.Exec:
        return _abi.make_exec(stream=key)


class _ScratchExecs:
    """By CUDA stream, made for one call. On the GPU the library allocates nothing while it runs: it says what it needs, and
    torch's allocator gives it."""

    def __init__(self, needed: int, device: Any) -> None:
        self.needed, self.device = needed, device

    def __getitem__(self, stream: int) -> Any:
        scratch = torch.empty(self.needed, dtype=torch.uint8, device=self.device)
        run = _abi.make_exec(0, scratch.data_ptr(), self.needed, stream)
        run.kept = scratch  # as long as the call holds the reference
        return ctypes.byref(run)


_cpu_execs, _stream_execs = _CpuExecs(), _StreamExecs()


def _cuda_execs(plan: TorchPlan, op: str) -> Any:
    needed = plan.scratch_bytes(op) if op and plan.algorithm(op) else 0
    return _ScratchExecs(needed, plan.device) if needed else _stream_execs


def _public_raw_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _public_raw_stream)  # the same, in C
