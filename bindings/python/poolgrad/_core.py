"""From Python arguments to a poolgrad_problem, and the plan handle every face of the package shares.

Knows neither NumPy, torch nor JAX. Only the form of arguments is checked here (an integer, or one per axis; a known word);
their values are checked by the library, whose sentences are raised verbatim.
"""

from __future__ import annotations

import ctypes
import operator
from ctypes import byref, c_uint64, c_void_p
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _abi

Ints = Union[int, Sequence[int]]
Padding = Union[int, str, Sequence[Union[int, Tuple[int, int]]]]


class Default(str):
    """A word that is an argument's default: a dialect overrules it, and does not overrule the same word when given."""


FIRST = Default("first")
PROPAGATE_FIRST = Default("propagate_first")


def to_int(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an integer") from None


def per_axis(name: str, value: Any, rank: int) -> Tuple[int, ...]:
    """One integer for every axis, or one per axis."""
    if isinstance(value, (list, tuple)):
        if len(value) not in (1, rank):
            raise ValueError(f"{name} has {len(value)} entries; give one integer, or one per spatial axis: {rank}")
        entries = tuple(to_int(f"{name}[{i}]", entry) for i, entry in enumerate(value))
        return entries if len(entries) == rank else entries * rank
    return (to_int(name, value),) * rank


def resolve_padding(value: Padding, rank: int) -> Tuple[str, Tuple[int, ...], Tuple[int, ...]]:
    """(kind, low, high) from an integer, "same", "same_lower", "valid", one integer per axis, or (low, high) per axis."""
    none = (0,) * rank
    if isinstance(value, str):
        if value not in ("same", "same_lower", "valid"):
            raise ValueError(f"padding is {value!r}; the words are 'same', 'same_lower' and 'valid'")
        return value, none, none
    if isinstance(value, (list, tuple)) and any(isinstance(entry, (list, tuple)) for entry in value):
        if len(value) != rank:
            raise ValueError(f"padding has {len(value)} entries; give one (low, high) pair per spatial axis: {rank}")
        low, high = [], []
        for i, entry in enumerate(value):
            pair = entry if isinstance(entry, (list, tuple)) else (entry, entry)
            if len(pair) != 2:
                raise ValueError(f"padding[{i}] is {entry!r}; a pair of padding is (low, high)")
            low.append(to_int(f"padding[{i}]", pair[0]))
            high.append(to_int(f"padding[{i}]", pair[1]))
        return "explicit", tuple(low), tuple(high)
    both = per_axis("padding", value, rank)
    return "explicit", both, both


def code(name: str, word: Any, words: Dict[str, int]) -> int:
    if not isinstance(word, str):
        raise TypeError(f"{name} is {word!r}; it must be a string: {', '.join(words)}")
    if word not in words:
        raise ValueError(f"{name} is {word!r}; it must be one of: {', '.join(words)}")
    return words[word]


def make_problem(
    shape: Sequence[int],
    dtype: int,
    kernel: Ints,
    stride: Optional[Ints] = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    *,
    kind: str = "max",
    rounding: str = "floor",
    layout: str = "channels_first",
    ties: str = FIRST,
    nan: str = PROPAGATE_FIRST,
    dialect: Optional[str] = None,
    count_padding: Optional[bool] = None,
    divisor: Optional[int] = None,
    route_bits: int = 0,
    device: int = 0,
    device_index: int = 0,
) -> _abi.Problem:
    """A filled poolgrad_problem; `shape` is in the layout's memory order, batch first."""
    rank = len(shape) - 2
    if rank not in (1, 2, 3):
        raise ValueError(
            f"the shape {tuple(shape)} has {len(shape)} dimensions; pooling takes 3, 4 or 5: batch, channels and one to three "
            "spatial axes"
        )
    problem = _abi.Problem()
    _abi.library().poolgrad_problem_init(byref(problem))
    problem.kind = code("kind", kind, _abi.KINDS)
    problem.dtype = dtype
    problem.layout = code("layout", layout, _abi.LAYOUTS)
    problem.dialect = 0 if dialect is None else code("dialect", dialect, _abi.DIALECTS)
    problem.rank = rank
    problem.rounding = 0 if rounding == "floor" else code("rounding", rounding, _abi.ROUNDINGS)  # 0: floor everywhere
    problem.ties = 0 if isinstance(ties, Default) else code("ties", ties, _abi.TIES)  # 0: as the dialect does
    problem.nan = 0 if isinstance(nan, Default) else code("nan", nan, _abi.NANS)
    problem.count_padding = -1 if count_padding is None else int(bool(count_padding))
    problem.divisor = 0 if divisor is None else to_int("divisor", divisor)
    if divisor is not None and problem.divisor == 0:
        raise ValueError("divisor is 0; it must be at least 1, or None")
    problem.route_bits = to_int("route_bits", route_bits)
    problem.device, problem.device_index = device, device_index
    problem.batch = shape[0]
    channels_last = problem.layout == 1
    problem.channels = shape[-1] if channels_last else shape[1]
    problem.in_[:rank] = shape[1:-1] if channels_last else shape[2:]
    problem.kernel[:rank] = kernel = per_axis("kernel", kernel, rank)
    problem.stride[:rank] = kernel if stride is None else per_axis("stride", stride, rank)
    problem.dilation[:rank] = per_axis("dilation", dilation, rank)
    word, low, high = resolve_padding(padding, rank)
    problem.padding = _abi.PADDINGS[word]
    problem.pad_lo[:rank], problem.pad_hi[:rank] = low, high
    return problem


def parse_problem(text: str) -> _abi.Problem:
    problem = _abi.Problem()
    status = _abi.library().poolgrad_problem_parse(text.encode(), byref(problem))
    if status:
        _abi.raise_status(status)
    return problem


class CorePlan:
    """An immutable plan: shapes and sizes in Python, everything else behind `handle`. Share it freely between threads."""

    def __init__(self, problem: _abi.Problem, algorithm: Optional[str] = None) -> None:
        self.handle: Optional[int] = None
        library = _abi.library()
        options = _abi.PlanOptions(ctypes.sizeof(_abi.PlanOptions), algorithm.encode() if algorithm else None)
        handle = c_void_p()
        status = library.poolgrad_plan_create(byref(problem), byref(options), byref(handle))
        if status:
            _abi.raise_status(status)
        self.handle = handle.value
        self._destroy = library.poolgrad_plan_destroy
        self._algorithm = algorithm
        self.problem = problem
        info = _abi.Info(ctypes.sizeof(_abi.Info))
        status = library.poolgrad_plan_info(handle, byref(info))
        if status:
            _abi.raise_status(status)
        rank = problem.rank
        outs = tuple(info.out[:rank])
        ins = tuple(problem.in_[:rank])
        self.rank: int = rank
        self.channels_last = problem.layout == 1
        self.x_shape = self._with_channels(ins)
        self.y_shape = self._with_channels(outs)
        self.route_bits: int = info.route_bits
        self.route_bytes: int = info.route_bytes
        self.taps: int = info.taps
        self.x_elements: int = info.x_elements
        self.y_elements: int = info.y_elements
        self.pads = tuple(zip(info.pad_lo[:rank], info.pad_hi[:rank]))

    def _with_channels(self, spatial: Tuple[int, ...]) -> Tuple[int, ...]:
        batch, channels = self.problem.batch, self.problem.channels
        return (batch, *spatial, channels) if self.channels_last else (batch, channels, *spatial)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._destroy(self.handle)
            self.handle = None

    def scratch_bytes(self, op: str, threads: int = 0) -> int:
        needed = c_uint64()
        status = _abi.library().poolgrad_plan_scratch_bytes(self.handle, _abi.OPS[op], threads, byref(needed))
        if status:
            _abi.raise_status(status)
        return needed.value

    def algorithm(self, op: str = "forward") -> Optional[str]:
        """The name of the algorithm chosen for an operation; None when the plan cannot do it."""
        name = _abi.library().poolgrad_plan_algorithm(self.handle, code("op", op, _abi.OPS))
        return None if name is None else name.decode()

    def explain(self) -> str:
        """Geometry, the algorithm of each operation, why faster ones refused, bytes."""
        return _abi.read_text(_abi.library().poolgrad_plan_explain, self.handle)

    @property
    def text(self) -> str:
        """The problem in its one-line form."""
        return _abi.read_text(_abi.library().poolgrad_problem_format, byref(self.problem))


def version() -> str:
    return _abi.library().poolgrad_version().decode()


def simd_target() -> str:
    """The SIMD target in use, e.g. NEON or AVX3."""
    return _abi.library().poolgrad_simd_target().decode()


def has_cuda() -> bool:
    """Whether this build can make CUDA plans."""
    return bool(_abi.library().poolgrad_has_cuda())
