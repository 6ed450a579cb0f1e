"""Adaptive, average and fractional pooling, and max unpooling, with the signatures of torch.nn.functional.

Adaptive and average pooling are windows like any other: call() of functional.py finds their plans and records them. Fractional
pooling draws windows for every plane. Where all planes share them they are a table; otherwise taps are gathered side by
side and pooled there, and the winners are written down as routes of wider windows that all planes share, whose gradient and tangents
they get. Unpooling is linear, by indices that are checked; where several name one place, the last in row-major order is kept,
and it alone has a gradient.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.overrides import handle_torch_function, has_torch_function_variadic

from .. import _abi
from .._core import freeze, per_axis, to_bool, to_int, to_shape
from . import functional
from ._plain import is_compiling
from ._plans import PoolTypeError, PoolValueError, Window, lies_channels_last, make_window, plan_of
from ._script import make_scriptable, make_unscriptable

_AVERAGE, _FIRST = _abi.KINDS["avg"], _abi.TIES["first"]


def _table_window(kernel: Tuple[int, ...], outputs: Tuple[int, ...], **more: Any) -> Window:
    rank = len(kernel)
    return Window(kernel, (1,) * rank, (0,) * (2 * rank), 0, (1,) * rank, False, _FIRST, outputs=outputs, **more)


def _named(function: Any, name: str, told: str, kind: str = "", rank: int = 0) -> Any:
    """`kind`: what torch.jit.script makes of it, if it can."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"torch.nn.functional.{name}{told}"
    if kind:
        make_scriptable(function, kind, rank)
    else:
        make_unscriptable(function)
    return function


def _checked(check: Callable[..., Any], *arguments: Any) -> Any:
    """check(*arguments); what it raises is also a RuntimeError, as torch's own pooling raises."""
    try:
        return check(*arguments)
    except TypeError as error:
        raise PoolTypeError(str(error)) from None
    except ValueError as error:
        raise PoolValueError(str(error)) from None


# ---- adaptive ------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _adaptive_window(rank: int, kind: int, output_size: Any, sizes: Tuple[int, ...]) -> Window:
    wanted = output_size if isinstance(output_size, tuple) else (output_size,) * rank
    if len(wanted) != rank:
        raise PoolValueError(f"output_size has {len(wanted)} entries; give one integer, or one per spatial axis: {rank}")
    for i, size in enumerate(wanted):
        if size is not None and size < 1:
            raise PoolValueError(f"output_size[{i}] is {size}; it must be at least 1, or None for as many as the input has")
    return _table_window((0,) * rank, tuple(n if size is None else size for size, n in zip(wanted, sizes)), kind=kind)


def _frozen_size(output_size: Any) -> Any:
    """An integer, None, or a tuple of them."""
    frozen = _checked(freeze, "output_size", output_size)
    for i, size in enumerate(frozen if isinstance(frozen, tuple) else (frozen,)):
        if size is not None:
            _checked(to_int, f"output_size[{i}]" if isinstance(frozen, tuple) else "output_size", size)
    return frozen


def _adaptive(function: Any, rank: int, kind: int, input: Any, output_size: Any, return_indices: bool, probe: Any) -> Any:
    def make(x: torch.Tensor) -> Window:
        return _adaptive_window(rank, kind, _frozen_size(output_size), tuple(int(n) for n in x.shape[-rank:]))

    keywords = {} if kind else {"return_indices": return_indices}
    return functional.call(function, rank, input, make, return_indices, (output_size,), keywords, probe)


def _make_adaptive_max(rank: int) -> Callable[..., Any]:
    theirs = getattr(F, f"adaptive_max_pool{rank}d")

    def probe(x: torch.Tensor) -> Any:
        return theirs(x, 1)

    def adaptive_max_pool(input: torch.Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive(adaptive_max_pool, rank, 0, input, output_size, return_indices, probe)

    return _named(adaptive_max_pool, f"adaptive_max_pool{rank}d", ", keeping routes only.", "adaptive_max", rank)


def _make_adaptive_avg(rank: int) -> Callable[..., Any]:
    theirs = getattr(F, f"adaptive_avg_pool{rank}d")

    def probe(x: torch.Tensor) -> Any:
        return theirs(x, 1)

    def adaptive_avg_pool(input: torch.Tensor, output_size: Any) -> torch.Tensor:
        return _adaptive(adaptive_avg_pool, rank, _AVERAGE, input, output_size, False, probe)

    return _named(adaptive_avg_pool, f"adaptive_avg_pool{rank}d", ": each sum is divided once, where torch divides by axis.", "adaptive_avg", rank)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_make_adaptive_max, (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_make_adaptive_avg, (1, 2, 3))


# ---- average -------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _average_window(
    rank: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor: Optional[int]
) -> Window:
    if divisor is not None and divisor < 1:
        raise PoolValueError(f"divisor_override is {divisor}; it must be at least 1, or None")
    return make_window(
        rank, kernel_size, stride, padding, 1, ceil_mode, "first", kind=_AVERAGE, count_padding=bool(count_include_pad),
        divisor=divisor or 0,
    )  # fmt: skip


def average_window(rank: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any, divisor: Any) -> Window:
    kernel_size, stride, padding, _ = functional.frozen(kernel_size, stride, padding, 1)
    divisor = None if divisor is None else _checked(to_int, "divisor_override", divisor)
    ceil_mode, count_include_pad = _checked(to_bool, "ceil_mode", ceil_mode), _checked(to_bool, "count_include_pad", count_include_pad)
    return _average_window(rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor)


def _average(function: Any, rank: int, probe: Any, input: Any, *window: Any) -> Any:
    def make(_: torch.Tensor) -> Window:
        return average_window(rank, *window)

    arguments = window if rank > 1 else window[:5]
    return functional.call(function, rank, input, make, False, arguments, {}, probe)


def _make_avg(rank: int) -> Callable[..., Any]:
    theirs = getattr(F, f"avg_pool{rank}d")

    def probe(x: torch.Tensor) -> Any:
        return theirs(x, 1)

    def avg_pool1d(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> torch.Tensor:  # fmt: skip
        return _average(avg_pool1d, rank, probe, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)

    def avg_pool(
        input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Optional[int] = None,
    ) -> torch.Tensor:  # fmt: skip
        window = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return _average(avg_pool, rank, probe, input, *window)

    return _named(avg_pool1d if rank == 1 else avg_pool, f"avg_pool{rank}d", ".", "avg", rank)


avg_pool1d, avg_pool2d, avg_pool3d = map(_make_avg, (1, 2, 3))


# ---- fractional ----------------------------------------------------------------------------------------------------------------


def _fractional_starts(samples: torch.Tensor, size: int, outputs: int, kernel: int) -> torch.Tensor:
    """Where the windows of an axis begin, for samples of any shape: torch's sequence, in its arithmetic."""
    last = samples.new_full((*samples.shape, 1), size - kernel, dtype=torch.int64)
    if outputs == 1:
        return last
    # torch divides and multiplies in the samples' type; as tensors, so that halves and floats round as there
    step = samples.new_full((), size - kernel) / samples.new_full((), outputs - 1)
    number = torch.arange(outputs - 1, dtype=samples.dtype, device=samples.device)
    starts = ((number + samples[..., None]) * step).long() - (samples[..., None] * step).long()
    return torch.cat((starts.clamp(0, size - kernel), last), -1)  # clamped: not all samples are looked at, and halves round far


def _check_entries(name: str, value: Any, rank: int) -> None:
    if isinstance(value, (list, tuple)) and len(value) != rank:  # a list of one is refused here, as by torch
        raise PoolValueError(f"{name} has {len(value)} entries; give one integer, or one per spatial axis: {rank}")


def _fractional_size(rank: int, sizes: Sequence[int], kernel: Tuple[int, ...], output_size: Any, output_ratio: Any) -> Tuple[int, ...]:
    name = f"fractional_max_pool{rank}d"
    if output_size is None and output_ratio is None:
        raise PoolValueError(f"{name} was given neither output_size nor output_ratio; it needs one of them")
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (list, tuple)) else (output_ratio,) * rank
        if len(ratios) != rank:
            raise PoolValueError(f"output_ratio has {len(ratios)} entries; give one number, or one per spatial axis: {rank}")
        for i, ratio in enumerate(ratios):
            if type(ratio) is not float and type(ratio) is not int and not hasattr(ratio, "__float__"):
                raise PoolTypeError(f"output_ratio[{i}] is {ratio!r}; it must be a number between 0 and 1")
            if not 0 < ratio <= 1:  # a NaN is not, either
                raise PoolValueError(f"output_ratio[{i}] is {ratio}; it must lie between 0 and 1")
        outputs = tuple(int(n * ratio) for n, ratio in zip(sizes, ratios))
    else:
        _check_entries("output_size", output_size, rank)
        outputs = _checked(per_axis, "output_size", output_size, rank)
    for i, (n, k, out) in enumerate(zip(sizes, kernel, outputs)):
        if k < 1:
            raise PoolValueError(f"kernel_size[{i}] is {k}; every kernel size must be at least 1")
        if out < 1:
            raise PoolValueError(f"output_size[{i}] is {out}; it must be at least 1")
        if out + k - 1 > n:
            raise PoolValueError(f"output_size[{i}] is {out}; with windows of {k} taps the {n} inputs have room for {max(n - k + 1, 0)}")
    return outputs


def _taps(starts: torch.Tensor, kernel: int) -> torch.Tensor:
    """(N, C, outputs * kernel): the inputs of each window, one window after the other."""
    return (starts[..., None] + torch.arange(kernel, device=starts.device)).flatten(-2)


def _spread(x: torch.Tensor, kernel: Tuple[int, ...], starts: List[torch.Tensor]) -> torch.Tensor:
    """The taps of all windows side by side, where they can be pooled: windows differ from plane to plane."""
    spread, rank = x, len(kernel)
    for axis, tap in enumerate(map(_taps, starts, kernel), 2):
        at = tap.reshape(*tap.shape[:2], *(tap.shape[2] if i == axis else 1 for i in range(2, rank + 2)))
        spread = spread.gather(axis, at.expand(*(at.shape[i] if i in (0, 1, axis) else n for i, n in enumerate(spread.shape))))
    return spread


def _product(numbers: Sequence[int]) -> int:
    """math.prod, which torch.compile does not know."""
    found = 1
    for n in numbers:
        found *= n
    return found


def _bits(taps: int) -> int:
    bits = 2
    while taps > 1 << bits:
        bits *= 2
    return bits


def _unpacked(routes: torch.Tensor, bits: int, outputs: int) -> torch.Tensor:
    """The codes of routes, channels first (docs/routes.md)."""
    if bits < 8:
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=routes.device)
        return (torch.bitwise_right_shift(routes[..., None], shifts) & ((1 << bits) - 1)).flatten(-2)[..., :outputs]
    shifts = torch.arange(0, bits, 8, device=routes.device)
    return routes if bits == 8 else torch.bitwise_left_shift(routes.reshape(*routes.shape[:-1], outputs, bits // 8), shifts).sum(-1)


def _packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """And back."""
    if bits < 8:
        each = 8 // bits
        padded = F.pad(codes, (0, -codes.shape[-1] % each))
        shifts = torch.arange(0, 8, bits, dtype=codes.dtype, device=codes.device)
        split = padded.reshape(*padded.shape[:-1], padded.shape[-1] // each, each)
        return torch.bitwise_left_shift(split, shifts).sum(-1, dtype=torch.uint8)
    shifts = torch.arange(0, bits, 8, dtype=codes.dtype, device=codes.device)
    return codes if bits == 8 else (torch.bitwise_right_shift(codes[..., None], shifts) & 255).to(torch.uint8).flatten(-2)


def _numbered(
    tap: torch.Tensor, firsts: Sequence[torch.Tensor], kernel: Tuple[int, ...], sizes: Tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Row-major numbers, in a box of these sizes, of what taps of windows that begin at `firsts` name."""
    rank = len(kernel)
    strides = [_product(sizes[axis + 1 :]) for axis in range(rank)]
    table = torch.zeros((), dtype=dtype, device=tap.device)
    for k, stride in zip(kernel, strides):
        table = table[..., None] + torch.arange(0, k * stride, stride, dtype=dtype, device=tap.device)
    number = table.flatten()[tap.long()]
    for axis, (first, stride) in enumerate(zip(firsts, strides)):
        at = (first * stride).to(dtype)
        number = number + at.reshape(*at.shape[:2], *(at.shape[2] if i == axis else 1 for i in range(rank)))
    return number


def _positive(number: Any) -> Any:
    """Of integers and of tensors alike."""
    return number * (number > 0)


# Windows that hold those of every plane, whatever its samples: window i of a plane begins at floor(i * step) or one later, and rounding
# moves that by less than a slack. An axis is (size, kernel, outputs, slack).
_Axis = Tuple[int, int, int, int]


def _shared_size(axis: _Axis) -> int:
    size, kernel, _, slack = axis
    return min(size, kernel + 1 + 2 * slack)


def _shared_start(i: Any, axis: _Axis) -> Any:
    size, kernel, outputs, slack = axis
    last = size - _shared_size(axis)
    if outputs == 1:  # it lies at the end
        return i + last
    return last - _positive(last - _positive(i * (size - kernel) // (outputs - 1) - slack))


@lru_cache(maxsize=1024)
def _shared_window(axes: Tuple[_Axis, ...]) -> Window:
    starts = tuple(_shared_start(i, axis) for axis in axes for i in range(axis[2]))
    return _table_window(tuple(map(_shared_size, axes)), tuple(axis[2] for axis in axes), starts=starts)


def _shared_routes(tap: torch.Tensor, starts: List[torch.Tensor], axes: Tuple[_Axis, ...]) -> torch.Tensor:
    """The routes of the shared windows that name the taps of each plane's own."""
    kernel, wide = tuple(axis[1] for axis in axes), tuple(map(_shared_size, axes))
    firsts = [start - _shared_start(torch.arange(axis[2], device=tap.device), axis) for start, axis in zip(starts, axes)]
    bits = _bits(_product(wide))
    return _packed(_numbered(tap, firsts, kernel, wide, torch.uint8 if bits <= 8 else torch.int64), bits)


def _pool_planes(
    x: torch.Tensor, kernel: Tuple[int, ...], outputs: Tuple[int, ...], starts: List[torch.Tensor], precision: float, return_indices: bool
) -> Any:
    """y, or (y, indices), of windows that differ from plane to plane. `precision`: of the arithmetic that gave the starts."""
    rank = len(kernel)
    sizes = tuple(int(n) for n in x.shape[-rank:])
    with torch.no_grad():
        y, found = functional.pool_with_routes(_spread(x.detach(), kernel, starts), make_window(rank, kernel, None, 0, 1, False, "first"))
    tap = _unpacked(found, _bits(_product(kernel)), outputs[-1])
    if functional.is_recorded(x):
        axes = tuple((n, k, out, 1 + int(4 * n * precision)) for n, k, out in zip(sizes, kernel, outputs))
        y = functional.pool_by_routes(x, y, _shared_routes(tap, starts, axes), _shared_window(axes))
    return (y, _numbered(tap, starts, kernel, sizes, torch.int64)) if return_indices else y


_SAMPLE_OF_AXIS = {2: (1, 0), 3: (0, 1, 2)}  # torch's order of an axis' samples: in two dimensions the width's come first


def _make_fractional(rank: int) -> Callable[..., Any]:
    theirs = getattr(F, f"fractional_max_pool{rank}d")

    def probe(x: torch.Tensor) -> Any:
        return theirs(x.expand(1, 1, *(3,) * rank), 1, 1)

    def fractional_max_pool(
        input: torch.Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Optional[torch.Tensor] = None,
    ) -> Any:  # fmt: skip
        name = f"fractional_max_pool{rank}d"
        if has_torch_function_variadic(input, _random_samples):
            return handle_torch_function(
                fractional_max_pool, (input, _random_samples), input, kernel_size, output_size=output_size,
                output_ratio=output_ratio, return_indices=return_indices, _random_samples=_random_samples,
            )  # fmt: skip
        for word, tensor in (("input", input), ("_random_samples", _random_samples)):
            if not isinstance(tensor, torch.Tensor) and (tensor is not None or word == "input"):
                raise PoolTypeError(f"{name}(): argument '{word}' is a {type(tensor).__name__}; it must be a Tensor")
        if not input.is_floating_point():
            raise PoolTypeError(f"input has the type {input.dtype}; {name} draws its windows in the input's type, which must be a float")
        if input.dim() not in (rank + 1, rank + 2):
            raise PoolValueError(
                f"input has the shape {tuple(input.shape)}; {name} takes {rank + 2} dimensions, or {rank + 1} without a batch"
            )
        _check_entries("kernel_size", kernel_size, rank)
        kernel = make_window(rank, kernel_size, 1, 0, 1, False, "first").kernel
        outputs = _fractional_size(rank, input.shape[-rank:], kernel, output_size, output_ratio)
        planes = (1 if input.dim() == rank + 1 else input.shape[0], input.shape[-rank - 1], rank)
        samples = _random_samples
        if samples is None:
            samples = torch.rand(planes, dtype=input.dtype, device=input.device)
        elif tuple(samples.shape) != planes:
            raise PoolValueError(f"_random_samples has the shape {tuple(samples.shape)}; for this input it must have {planes}")
        elif samples.dtype != input.dtype or samples.device != input.device:
            raise PoolTypeError(
                f"_random_samples is {samples.dtype} on {samples.device}; input is {input.dtype} on {input.device}, and both must agree"
            )
        elif functional.goes_straight(samples) and samples.device.type == "cpu" and not bool(((samples >= 0) & (samples <= 1)).all()):
            raise PoolValueError("_random_samples has an entry that is not between 0 and 1")
        if not is_compiling():
            input = functional.autocast(probe, rank, input)
            samples = samples.to(input.dtype)
        if samples.device.type == "cuda":  # where torch computes in float what are halves
            samples = samples.to(torch.promote_types(samples.dtype, torch.float32))
        starts = [
            _fractional_starts(samples[..., sample], n, out, k)
            for sample, n, out, k in zip(_SAMPLE_OF_AXIS[rank], input.shape[-rank:], outputs, kernel)
        ]
        # Windows that all planes share are a table; looking costs little beside a gather on the CPU, but cannot be compiled, and makes the
        # CPU wait for a GPU.
        if functional.goes_straight(input) and input.device.type == "cpu" and all(bool((begin == begin[:1, :1]).all()) for begin in starts):
            shared = tuple(int(n) for begin in starts for n in (begin[0, 0].tolist() if begin.numel() else ()))
            if shared:
                window = _table_window(kernel, outputs, starts=shared)
                # contiguous, as _pool_planes and torch have it: what is drawn must not decide how results lie
                return functional.call(fractional_max_pool, rank, input.contiguous(), lambda _: window, return_indices, (), {}, None)
        batched = input if input.dim() == rank + 2 else input[None]
        found = _pool_planes(batched, kernel, outputs, starts, torch.finfo(samples.dtype).eps, return_indices)
        if input.dim() == rank + 2:
            return found
        return tuple(one[0] for one in found) if return_indices else found[0]

    return _named(fractional_max_pool, f"fractional_max_pool{rank}d", ", from the same random numbers.")


fractional_max_pool2d, fractional_max_pool3d = map(_make_fractional, (2, 3))


# ---- unpooling -----------------------------------------------------------------------------------------------------------------


def _unpool_plan(y: torch.Tensor, sizes: Tuple[int, ...], dtype: torch.dtype) -> Any:
    """A plan from x's sizes to y's: unpooling by indices does not ask which windows."""
    rank = len(sizes)
    shape = (*y.shape[:-rank], *sizes)
    return plan_of(
        shape, dtype, y.device, lies_channels_last(y.shape, y.stride(), rank), _table_window((0,) * rank, tuple(y.shape[-rank:]))
    )


def _unpool_straight(y: torch.Tensor, indices: torch.Tensor, sizes: Tuple[int, ...]) -> torch.Tensor:
    plan = _unpool_plan(y, sizes, y.dtype)
    if indices.numel() and int(indices.min()) < 0:  # -1 is no route to the library, and nothing to torch
        raise PoolValueError(f"an index is {int(indices.min())}; indices of x's plane are at least 0")
    y, indices = y.contiguous(memory_format=plan.format), indices.contiguous(memory_format=plan.format)
    x = torch.empty(plan.tensor_x, dtype=y.dtype, memory_format=plan.format)
    status = _abi.library().poolgrad_unpool_indices(
        plan.handle, y.data_ptr(), indices.data_ptr(), _abi.NUMBERINGS["torch"], None, x.data_ptr()
    )
    if status:
        try:
            _abi.raise_status(status, ((", or be -1 for no route", ""),))
        except ValueError as error:
            raise PoolValueError(str(error)) from None
    return x


def _kept(indices: torch.Tensor, sizes: Tuple[int, ...]) -> torch.Tensor:
    """Whether an entry is the last of those with its index in its plane."""
    rank = len(sizes)
    number = torch.arange(indices.numel(), dtype=torch.float64).reshape(indices.shape)  # exact up to 2^53
    owner = _unpool_straight(number, indices.contiguous(), sizes).flatten(-rank)
    return owner.gather(-1, indices.flatten(-rank)).reshape(indices.shape) == number


class _Unpool(Function):
    """Linear in y: its transpose picks what lies at the indices, for the entries that were kept."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, indices: torch.Tensor, sizes: Tuple[int, ...]) -> torch.Tensor:
        ctx.sizes = sizes
        ctx.save_for_backward(indices)
        ctx.save_for_forward(indices)
        return _unpool_straight(y, indices, sizes)

    @staticmethod
    def backward(ctx: Any, dx: torch.Tensor) -> Any:
        (indices,) = ctx.saved_tensors
        lead = indices.shape[: indices.dim() - len(ctx.sizes)]  # reshaped, not flattened: batched gradients know no flatten
        planes, entries = dx.reshape(*lead, prod(ctx.sizes)), indices.reshape(*lead, prod(indices.shape[len(lead) :]))
        picked = planes.gather(-1, entries).reshape(indices.shape)
        none = torch.zeros((), dtype=picked.dtype, device=picked.device)
        return torch.where(_kept(indices, ctx.sizes), picked, none), None, None

    @staticmethod
    def jvp(ctx: Any, ty: torch.Tensor, *_: Any) -> torch.Tensor:
        try:
            return _Unpool.apply(ty, ctx.saved_tensors[0], ctx.sizes)
        except RuntimeError:  # batched: it has no memory of its own
            return _unpool_by_torch(ty, ctx.saved_tensors[0], ctx.sizes)


def _unpool_by_torch(y: torch.Tensor, indices: torch.Tensor, sizes: Tuple[int, ...]) -> torch.Tensor:
    """The same by torch's own operators, for what has no CPU memory to be read straight away. The last is found as a maximum of
    whole numbers, in any order."""
    rank = len(sizes)
    places = _product(sizes)
    flat = indices.flatten(-rank)
    if not is_compiling() and indices.device.type == "cuda" and bool(((flat < 0) | (flat >= places)).any()):
        raise PoolValueError(f"indices has an entry that is not between 0 and {places - 1}, the places of a plane of {sizes}")
    number = torch.arange(flat.shape[-1], device=y.device).expand(flat.shape)
    owner = torch.full((*flat.shape[:-1], places), -1, dtype=torch.int64, device=y.device).scatter_reduce(-1, flat, number, "amax")
    x = torch.where(owner >= 0, y.reshape(flat.shape).gather(-1, owner.clamp(min=0)), torch.zeros((), dtype=y.dtype, device=y.device))
    return x.reshape(*y.shape[:-rank], *sizes)


def _unpool_probe(rank: int) -> Callable[[torch.Tensor], Any]:
    theirs = getattr(F, f"max_unpool{rank}d")
    return lambda y: theirs(y, torch.zeros(y.shape, dtype=torch.int64), 1)


_UNPOOL_PROBES = {rank: _unpool_probe(rank) for rank in (1, 2, 3)}


def unpool_to(y: torch.Tensor, indices: torch.Tensor, sizes: Tuple[int, ...]) -> torch.Tensor:
    """x of these spatial sizes."""
    if indices.dtype != torch.int64:
        raise PoolTypeError(f"indices has the type {indices.dtype}; indices are torch.int64")
    if indices.shape != y.shape or indices.device != y.device:
        raise PoolValueError(
            f"indices has the shape {tuple(indices.shape)} on {indices.device}; input has {tuple(y.shape)} on {y.device}, and both must "
            "agree"
        )
    if not is_compiling():
        y = functional.autocast(_UNPOOL_PROBES[len(sizes)], len(sizes), y)
    if functional.goes_straight(y) and functional.goes_straight(indices) and y.device.type == "cpu":
        return _Unpool.apply(y, indices, sizes)
    return _unpool_by_torch(y, indices, sizes)


def _unpool_sizes(
    sizes: Sequence[int], kernel: Tuple[int, ...], stride: Tuple[int, ...], padding: Tuple[int, ...], output_size: Any
) -> Tuple[int, ...]:
    rank = len(kernel)
    for name, entries in (("kernel_size", kernel), ("stride", stride)):
        for i, entry in enumerate(entries):
            if entry < 1:
                raise PoolValueError(f"{name}[{i}] is {entry}; it must be at least 1")
    plain = tuple((n - 1) * s + k - 2 * p for n, k, s, p in zip(sizes, kernel, stride, padding))
    wanted = plain
    if output_size is not None:
        given = _checked(to_shape, "output_size", output_size if isinstance(output_size, (list, tuple)) else (output_size,) * rank)
        wanted = given[2:] if len(given) == rank + 2 else given
        if len(wanted) != rank:
            raise PoolValueError(f"output_size has {len(given)} entries; give {rank}, or {rank + 2} with batch and channels")
    for i, (n, usual, step) in enumerate(zip(wanted, plain, stride)):
        if output_size is None and n < 1:
            raise PoolValueError(f"padding[{i}] is {padding[i]}; so much leaves none of the places that these windows unpool to")
        if n < 1 or not usual - step < n < usual + step:
            low, high = max(usual - step + 1, 1), usual + step - 1
            raise PoolValueError(f"output_size[{i}] is {n}; these windows reach between {low} and {high}")
    return wanted


def _make_unpool(rank: int) -> Callable[..., Any]:
    def max_unpool(
        input: torch.Tensor, indices: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> torch.Tensor:
        if has_torch_function_variadic(input, indices):
            return handle_torch_function(
                max_unpool, (input, indices), input, indices, kernel_size, stride=stride, padding=padding, output_size=output_size
            )
        name = f"max_unpool{rank}d"
        for word, tensor in (("input", input), ("indices", indices)):
            if not isinstance(tensor, torch.Tensor):
                raise PoolTypeError(f"{name}(): argument '{word}' is a {type(tensor).__name__}; it must be a Tensor")
        if input.dim() not in (rank + 1, rank + 2):
            raise PoolValueError(
                f"input has the shape {tuple(input.shape)}; {name} takes {rank + 2} dimensions, or {rank + 1} without a batch"
            )
        if isinstance(padding, str):
            raise PoolTypeError(f"padding is {padding!r}; {name} takes an integer, or one per spatial axis")
        window = make_window(rank, kernel_size, stride, padding, 1, False, "first")
        sizes = _unpool_sizes(input.shape[-rank:], window.kernel, window.stride, window.padding[:rank], output_size)
        return unpool_to(input, indices, sizes)

    return _named(max_unpool, f"max_unpool{rank}d", ", with indices checked; of several at one place the last is kept.")


max_unpool1d, max_unpool2d, max_unpool3d = map(_make_unpool, (1, 2, 3))
