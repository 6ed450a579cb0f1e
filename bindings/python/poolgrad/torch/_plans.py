"""Plans over torch tensors: raw addresses, torch's allocator, torch's threads and the current CUDA stream.

A TorchPlan speaks torch's logical order (N C ... or C ...) and remembers in which memory format its tensors lie. Tensors in
another format are brought into it; results are allocated in it, so that channels_last is preserved. The dialect is torch's.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch

from .. import _abi
from .._core import CorePlan, make_problem, per_axis, resolve_padding


class PoolValueError(ValueError, RuntimeError):
    """A wrong value. Also a RuntimeError, which is what torch's own pooling raises."""


class PoolTypeError(TypeError, RuntimeError):
    """A wrong type. Also a RuntimeError, which is what torch's own pooling raises."""


_DTYPES = {
    torch.float32: _abi.DTYPES["f32"],
    torch.float64: _abi.DTYPES["f64"],
    torch.float16: _abi.DTYPES["f16"],
    torch.bfloat16: _abi.DTYPES["bf16"],
    torch.int8: _abi.DTYPES["i8"],
    torch.uint8: _abi.DTYPES["u8"],
    torch.int32: _abi.DTYPES["i32"],
}
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


class Window(NamedTuple):
    """What a layer fixes before it sees an input. Plain integers, as the registered operators take them."""

    kernel: Tuple[int, ...]
    stride: Tuple[int, ...]
    padding: Tuple[int, ...]  # low of every axis, then high of every axis
    padding_kind: int  # poolgrad_padding
    dilation: Tuple[int, ...]
    ceil_mode: bool
    ties: int  # poolgrad_ties


def make_window(
    rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, ties: str
) -> Window:
    """Checks the form of the arguments; their values are checked with the shape, by the library."""
    try:
        kernel = per_axis("kernel_size", kernel_size, rank)
        word, low, high = resolve_padding(padding, rank)
        return Window(
            kernel,
            kernel if stride is None or stride == [] or stride == () else per_axis("stride", stride, rank),
            low + high,
            _abi.PADDINGS[word],
            per_axis("dilation", dilation, rank),
            bool(ceil_mode),
            _abi.TIES[ties],
        )
    except KeyError:
        raise PoolValueError(f"ties is {ties!r}; it must be one of: {', '.join(_abi.TIES)}") from None
    except TypeError as error:
        raise PoolTypeError(str(error)) from None
    except ValueError as error:
        raise PoolValueError(str(error)) from None


def _gomp_parallel() -> int:
    """The address of GOMP_parallel in the OpenMP runtime that torch itself runs on; 0 if torch was built without one."""
    try:
        function = ctypes.CDLL(torch._C.__file__).GOMP_parallel  # found in what torch's own module is linked to
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _CpuExecs(Dict[int, int]):
    """The address of a poolgrad_exec by number of threads; the structs are read-only once made, and live as long as this.

    Tasks run on torch's own threads: OpenMP's wait for their next work spinning, and would hold the cores that a second set of
    threads needs. A forked child has none of them, and the runtime would wait for them: there poolgrad's own pool runs.
    """

    def __init__(self) -> None:
        self.kept: List[_abi.Exec] = []
        self.parallel = _gomp_parallel()
        os.register_at_fork(after_in_child=self.leave_openmp)

    def leave_openmp(self) -> None:
        self.clear()
        self.parallel = 0

    def __missing__(self, threads: int) -> int:
        run = _abi.make_openmp_exec(threads, self.parallel) if self.parallel else _abi.make_exec(threads)
        self.kept.append(run)
        self[threads] = address = ctypes.addressof(run)
        return address


_cpu_execs = _CpuExecs()


class TorchPlan(CorePlan):
    """Runs one pooling on tensors of one shape, type, device and memory format."""

    def __init__(self, shape: Tuple[int, ...], dtype: Any, device: Any, channels_last: bool, window: Window) -> None:
        rank = len(window.kernel)
        code = _DTYPES.get(dtype)
        if code is None:
            raise PoolTypeError(f"input has the type {dtype}; poolgrad takes {', '.join(str(known) for known in _DTYPES)}")
        if len(shape) not in (rank + 1, rank + 2):
            raise PoolValueError(
                f"input has the shape {tuple(shape)}; max_pool{rank}d takes {rank + 2} dimensions, or {rank + 1} without a batch"
            )
        if device.type not in ("cpu", "cuda"):
            raise PoolValueError(f"input is on {device}; poolgrad runs on cpu and cuda")
        self.args = (shape, dtype, device, channels_last, window)
        batch = shape[: len(shape) - rank - 1]
        channels, spatial = shape[-rank - 1], shape[-rank:]
        n = batch[0] if batch else 1
        low, high = window.padding[:rank], window.padding[rank:]
        words = {value: word for word, value in _abi.PADDINGS.items()}
        padding = tuple(zip(low, high)) if window.padding_kind == 0 else words[window.padding_kind]
        try:
            problem = make_problem(
                (n, *spatial, channels) if channels_last else (n, channels, *spatial), code,
                window.kernel, window.stride, padding, window.dilation,
                rounding="ceil" if window.ceil_mode else "floor",
                layout="channels_last" if channels_last else "channels_first",
                ties={value: word for word, value in _abi.TIES.items()}[window.ties],
                nan="propagate_last", dialect="torch",
                device=int(device.type == "cuda"), device_index=_device_index(device),
            )  # fmt: skip
            super().__init__(problem)
        except ValueError as error:
            raise PoolValueError(str(error)) from None
        self.dtype, self.device = dtype, device
        self.format = _CHANNELS_LAST[rank] if channels_last else torch.contiguous_format
        outs = self.y_shape[1:-1] if channels_last else self.y_shape[2:]
        self.tensor_x = tuple(shape)
        self.tensor_y = (*batch, channels, *outs)
        line = (channels if channels_last else outs[-1]) * self.route_bits
        lines = outs if channels_last else (channels, *outs[:-1])
        self.tensor_routes = (*batch, *lines, (line + 7) // 8)
        self.keeps_indices = window.ties in (_abi.TIES["first"], _abi.TIES["last"])

    def __getattr__(self, name: str) -> Any:
        """The operations, made when one is first run: shapes are also asked for under fake tensors and torch.func, where any
        tensor made would be theirs."""
        if name not in _OPERATIONS:
            raise AttributeError(name)
        self.__dict__.update(zip(_OPERATIONS, _make_operations(self)))
        return self.__dict__[name]

    def with_batch(self, batch: int) -> "TorchPlan":
        """The same windows over a batch of this size: how vmap folds its axis in."""
        shape, dtype, device, channels_last, window = self.args
        return plan_of((batch, *shape[-self.rank - 1 :]), dtype, device, channels_last, window)

    def check(self, name: str, tensor: torch.Tensor, shape: Tuple[int, ...], dtype: Any) -> None:
        """Refuses a tensor that is not what this plan's memory accesses assume."""
        if tensor.shape != shape:
            raise PoolValueError(f"{name} has the shape {tuple(tensor.shape)}; this pooling expects {shape}")
        if tensor.dtype is not dtype:
            raise PoolTypeError(f"{name} has the type {tensor.dtype}; this pooling expects {dtype}")
        if tensor.device != self.device:
            raise PoolValueError(f"{name} is on {tensor.device}; this pooling is on {self.device}")

    def check_routes(self, routes: torch.Tensor) -> None:
        self.check("routes", routes, self.tensor_routes, torch.uint8)


_OPERATIONS = ("forward", "forward_routes", "scatter", "gather", "indices")


def _make_operations(plan: TorchPlan) -> Tuple[Callable[..., Any], ...]:
    """What a plan runs. Tensors are trusted to have its shape, type and device; autograd sees to it, the operators check.

    Closures instead of methods: on a tiny tensor the time of a call is the number of names Python looks up. They hold the
    plan's handle and not the plan, so call them through it.
    """
    dense, layout, empty_like = torch.contiguous_format, plan.format, torch.empty_like
    # torch.empty_like of a one-element tensor spread over the shape is the cheapest way to allocate from Python.
    like_x, like_y, like_indices, like_routes = (
        torch.empty(1, dtype=dtype, device=plan.device).expand(shape)
        for dtype, shape in (
            (plan.dtype, plan.tensor_x), (plan.dtype, plan.tensor_y), (torch.int64, plan.tensor_y),
            (torch.uint8, plan.tensor_routes),
        )
    )  # fmt: skip
    caller = _cpu_caller if plan.device.type == "cpu" else _cuda_caller
    run_forward, run_forward_routes, run_backward, run_gather, run_indices = (
        caller(plan, op, name)
        for op, name in (
            ("forward", "forward"), ("forward_routes", "forward"), ("backward", "backward"), ("gather", "gather"),
            ("", "routes_to_indices"),
        )
    )  # fmt: skip
    numbering = _abi.NUMBERINGS["torch"]

    def forward(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous(memory_format=layout)
        y = empty_like(like_y, memory_format=layout)
        run_forward(x.data_ptr(), y.data_ptr(), None)
        return y

    def forward_routes(x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        x = x.contiguous(memory_format=layout)
        y = empty_like(like_y, memory_format=layout)
        routes = empty_like(like_routes, memory_format=dense)
        run_forward_routes(x.data_ptr(), y.data_ptr(), routes.data_ptr())
        return y, routes

    def scatter(dy: torch.Tensor, routes: torch.Tensor) -> torch.Tensor:
        """dx = S^T dy."""
        dy, routes = dy.contiguous(memory_format=layout), routes.contiguous()
        dx = empty_like(like_x, memory_format=layout)
        run_backward(dy.data_ptr(), routes.data_ptr(), dx.data_ptr())
        return dx

    def gather(tx: torch.Tensor, routes: torch.Tensor) -> torch.Tensor:
        """ty = S tx."""
        tx, routes = tx.contiguous(memory_format=layout), routes.contiguous()
        ty = empty_like(like_y, memory_format=layout)
        run_gather(tx.data_ptr(), routes.data_ptr(), ty.data_ptr())
        return ty

    def indices(routes: torch.Tensor) -> torch.Tensor:
        """torch's int64 indices, in y's memory format."""
        routes = routes.contiguous()
        found = empty_like(like_indices, memory_format=layout)
        run_indices(routes.data_ptr(), numbering, found.data_ptr())
        return found

    return forward, forward_routes, scatter, gather, indices


def _cpu_caller(plan: TorchPlan, op: str, name: str) -> Callable[[Any, Any, Any], None]:
    function, handle = getattr(_abi.library(), f"poolgrad_{name}"), plan.handle
    execs, threads = _cpu_execs, torch.get_num_threads

    def call(first: Any, second: Any, third: Any) -> None:
        status = function(handle, first, second, third, execs[threads()])
        if status:
            _abi.raise_status(status)

    return call


def _cuda_caller(plan: TorchPlan, op: str, name: str) -> Callable[[Any, Any, Any], None]:
    """On the GPU nothing is allocated while running: the library says what it needs, torch's allocator gives it."""
    function, handle, device = getattr(_abi.library(), f"poolgrad_{name}"), plan.handle, plan.device
    index = _device_index(device)
    needed = plan.scratch_bytes(op) if op and plan.algorithm(op) else 0

    def call(first: Any, second: Any, third: Any) -> None:
        scratch = torch.empty(needed, dtype=torch.uint8, device=device) if needed else None
        run = _abi.make_exec(0, scratch.data_ptr() if scratch is not None else 0, needed, _raw_stream(index))
        status = function(handle, first, second, third, ctypes.addressof(run))
        if status:
            _abi.raise_status(status)

    def call_without_scratch(first: Any, second: Any, third: Any) -> None:
        run = _cuda_exec(_raw_stream(index))
        status = function(handle, first, second, third, ctypes.addressof(run))
        if status:
            _abi.raise_status(status)

    return call if needed else call_without_scratch


@lru_cache(maxsize=256)
def _cuda_exec(stream: int) -> _abi.Exec:
    return _abi.make_exec(0, 0, 0, stream)


def _public_raw_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _public_raw_stream)  # the same, in C


def _device_index(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return torch.cuda.current_device() if device.index is None else device.index


@lru_cache(maxsize=1024)
def plan_of(shape: Tuple[int, ...], dtype: Any, device: Any, channels_last: bool, window: Window) -> TorchPlan:
    return TorchPlan(tuple(shape), dtype, device, channels_last, window)


def lies_channels_last(x: torch.Tensor, rank: int) -> bool:
    """Whether x's memory format is channels_last. A dense tensor that is both counts as channels first, as it is one."""
    if rank == 1 or x.dim() != rank + 2 or x.is_contiguous():
        return False
    try:
        if x.is_contiguous(memory_format=_CHANNELS_LAST[rank]):
            return True
    except RuntimeError:  # inside vmap only the plain format can be asked for
        return False
    return x.size(1) > 1 and x.stride(1) == 1
