"""Plans over torch tensors, found in a cache by what a call gives: shape, type, device, memory format and window.

A TorchPlan speaks torch's logical order (N C ... or C ...) and remembers in which memory format its tensors lie. Tensors in
another format are brought into it; results are allocated in it, so that channels_last is preserved. The dialect is torch's.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any, Dict, NamedTuple, Sequence, Tuple

import torch

from .. import _abi
from .._core import CorePlan, code, make_problem, per_axis, resolve_padding, to_bool
from ._operations import OPERATIONS, make_operations


class PoolValueError(ValueError, RuntimeError):
    """A wrong value. Also a RuntimeError, which is what torch's own pooling raises."""


class PoolTypeError(TypeError, RuntimeError):
    """A wrong type. Also a RuntimeError, which is what torch's own pooling raises."""


DTYPES = {
    torch.float32: _abi.DTYPES["f32"],
    torch.float64: _abi.DTYPES["f64"],
    torch.float16: _abi.DTYPES["f16"],
    torch.bfloat16: _abi.DTYPES["bf16"],
    torch.int8: _abi.DTYPES["i8"],
    torch.uint8: _abi.DTYPES["u8"],
    torch.int32: _abi.DTYPES["i32"],
}
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


class Window(NamedTuple):
    """What a layer fixes before it sees an input. Plain integers, as the registered operators take them."""

    kernel: Tuple[int, ...]
    stride: Tuple[int, ...]
    padding: Tuple[int, ...]  # low of every axis, then high of every axis
    padding_kind: int  # poolgrad_padding
    dilation: Tuple[int, ...]
    ceil_mode: bool
    ties: int  # poolgrad_ties
    kind: int = 0  # poolgrad_kind
    relu: bool = False
    outputs: Tuple[int, ...] = ()  # windows by table: how many on every axis. kernel is then 0, or with starts their size
    starts: Tuple[int, ...] = ()  # of the first axis, then of the next; none: adaptive
    count_padding: bool = True
    divisor: int = 0
    bias: bool = False  # relu's

    @property
    def name(self) -> str:
        """The function that pools like this."""
        what = "avg_pool" if self.kind else "max_pool"
        before = "relu_" if self.relu else "fractional_" if self.starts else "adaptive_" if self.outputs else ""
        return f"{before}{what}{len(self.kernel)}d"


def make_window(
    rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, ties: str, **more: Any
) -> Window:
    """Checks the form of the arguments; their values are checked with the shape, by the library."""
    try:
        ties_code = code("ties", ties, _abi.TIES)
        kernel = per_axis("kernel_size", kernel_size, rank)
        word, low, high = resolve_padding(padding, rank)
        return Window(
            kernel,
            kernel if stride is None or (isinstance(stride, (list, tuple)) and not stride) else per_axis("stride", stride, rank),
            low + high,
            _abi.PADDINGS[word],
            per_axis("dilation", dilation, rank),
            to_bool("ceil_mode", ceil_mode),
            ties_code,
            **more,
        )
    except TypeError as error:
        raise PoolTypeError(str(error)) from None
    except ValueError as error:
        raise PoolValueError(str(error)) from None


_KINDS = {value: word for word, value in _abi.KINDS.items()}


def _tables(window: Window) -> Dict[str, Any]:
    if not window.starts:
        return {"outputs": window.outputs or None}
    ends = tuple(accumulate(window.outputs))
    return {"starts": tuple(window.starts[end - count : end] for end, count in zip(ends, window.outputs))}


def problem_of(shape: Tuple[int, ...], dtype: Any, device: Any, channels_last: bool, window: Window) -> _abi.Problem:
    """The poolgrad_problem of a tensor of torch's; the library has not looked at it yet."""
    rank = len(window.kernel)
    dtype_code = DTYPES.get(dtype)
    if dtype_code is None:
        raise PoolTypeError(f"input has the type {dtype}; poolgrad takes {', '.join(str(known) for known in DTYPES)}")
    if window.kind and not dtype.is_floating_point:
        floats = ", ".join(str(known) for known in DTYPES if known.is_floating_point)
        raise PoolTypeError(f"input has the type {dtype}; average pooling takes {floats}")
    if len(shape) not in (rank + 1, rank + 2):
        raise PoolValueError(
            f"input has the shape {tuple(shape)}; {window.name} takes {rank + 2} dimensions, or {rank + 1} without a batch"
        )
    if device.type not in ("cpu", "cuda", "meta"):  # meta: shapes only
        raise PoolValueError(f"input is on {device}; poolgrad runs on cpu and cuda")
    n = shape[0] if len(shape) == rank + 2 else 1
    channels, spatial = shape[-rank - 1], shape[-rank:]
    low, high = window.padding[:rank], window.padding[rank:]
    words = {value: word for word, value in _abi.PADDINGS.items()}
    return make_problem(
        (n, *spatial, channels) if channels_last else (n, channels, *spatial), dtype_code,
        *((window.kernel, window.stride) if not window.outputs else (window.kernel if window.starts else None, None)),
        tuple(zip(low, high)) if window.padding_kind == 0 else words[window.padding_kind], window.dilation,
        kind=_KINDS[window.kind], rounding="ceil" if window.ceil_mode else "floor",
        layout="channels_last" if channels_last else "channels_first",
        ties={value: word for word, value in _abi.TIES.items()}[window.ties],
        nan="propagate_last", dialect="torch", relu=window.relu, bias=window.bias, **_tables(window),
        count_padding=window.count_padding if window.kind else None, divisor=window.divisor or None,
        device=int(device.type == "cuda"), device_index=_device_index(device),
    )  # fmt: skip


class TorchPlan(CorePlan):
    """Runs one pooling on tensors of one shape, type, device and memory format."""

    words = (
        (r"\bkernel\[", "kernel_size["),
        (r"\boutputs\[", "output_size["),
        (r"\bdivisor is", "divisor_override is"),
        (r"rounding is ceil\w*; (.*), so leave rounding floor", r"ceil_mode is True; \1, so leave it False"),
        ("; the jax dialect alone crops by negative padding", ""),
        (r"the torch dialect allows at most half of the window", "it may be at most half of the window"),
        *CorePlan.words,
    )

    def __init__(
        self, shape: Tuple[int, ...], dtype: Any, device: Any, channels_last: bool, window: Window, problem: Any = None
    ) -> None:
        """`problem` is given where this is a part of a larger one: x has the shape, and the window is the whole's."""
        rank = len(window.kernel)
        self.args = (shape, dtype, device, channels_last, window)
        self.device_index = _device_index(device)
        try:
            super().__init__(problem or problem_of(*self.args))
        except ValueError as error:
            raise PoolValueError(str(error)) from None
        batch, channels = shape[: len(shape) - rank - 1], shape[-rank - 1]
        self.dtype, self.device = dtype, device
        self.format = CHANNELS_LAST[rank] if channels_last else torch.contiguous_format
        outs = self.y_shape[1:-1] if channels_last else self.y_shape[2:]
        self.tensor_x = tuple(shape)
        self.tensor_y = (*batch, channels, *outs)
        self.bias_shape = (channels,)
        line = (channels if channels_last else outs[-1]) * self.route_bits
        lines = outs if channels_last else (channels, *outs[:-1])
        self.tensor_routes = (*batch, *lines, (line + 7) // 8)
        self.keeps_indices = window.ties in (_abi.TIES["first"], _abi.TIES["last"])

    def __getattr__(self, name: str) -> Any:
        """The operations, made when one is first run: shapes are also asked for under fake tensors and torch.func, where any
        tensor made would be theirs."""
        if name not in OPERATIONS:
            raise AttributeError(name)
        if self.device.type == "meta":
            raise RuntimeError("tensors on the meta device have shapes and no memory")  # and so their operators run
        self.__dict__.update(zip(OPERATIONS, make_operations(self)))
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

    def checked_routes(self, routes: torch.Tensor) -> torch.Tensor:
        self.check("routes", routes, self.tensor_routes, torch.uint8)
        return routes.contiguous()


def _device_index(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return torch.cuda.current_device() if device.index is None else device.index


@lru_cache(maxsize=1024)
def plan_of(shape: Tuple[int, ...], dtype: Any, device: Any, channels_last: bool, window: Window) -> TorchPlan:
    return TorchPlan(tuple(shape), dtype, device, channels_last, window)


def lies_channels_last(shape: Sequence[int], strides: Sequence[int], rank: int) -> bool:
    """Whether torch takes a tensor of this shape and these strides for channels_last, and gives its results that format: its own
    rule (suggest_memory_format), by which a sliced tensor and one of a single channel keep what they were."""
    if rank == 1 or len(shape) != rank + 2 or strides[1] == 0:
        return False
    least: int = 0
    for axis in (1, *range(rank + 1, 1, -1), 0):
        if shape[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * (shape[axis] if shape[axis] > 1 else 1)
    return True
