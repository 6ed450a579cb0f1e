"""From Python arguments to a poolgrad_problem, and the plan handle every face of the package shares.

Knows neither NumPy, torch nor JAX. Only the form of arguments is checked here (an integer, or one per axis; a known word);
their values are checked by the library, whose sentences are raised in the words of the face that was called.
"""

from __future__ import annotations

import ctypes
import operator
from ctypes import byref, c_uint64, c_void_p, sizeof
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _abi

Words = Sequence[Tuple[str, str]]  # what to read in the library's sentences, and how a face of the package says it
Ints = Union[int, Sequence[int]]
Padding = Union[int, str, Sequence[Union[int, Tuple[int, int]]]]


class Default(str):
    """A word that is an argument's default: a dialect overrules it, and does not overrule the same word when given."""


FIRST = Default("first")
PROPAGATE_FIRST = Default("propagate_first")


def to_int(name: str, value: Any, bits: int = 64) -> int:
    """`value` as an integer that fits the library's; True and 2.0 are none."""
    if type(value) is not int:
        try:
            value = operator.index(_no_bool(value))
        except TypeError:
            raise TypeError(f"{name} is {value!r}; it must be an integer") from None
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{name} is {value}; it must lie between -2^{bits - 1} and 2^{bits - 1} - 1")
    return value


def to_bool(name: str, value: Any) -> bool:
    """`value` as a truth: True, False, NumPy's, and 1 and 0. A word is none: "no" would be True."""
    if type(value) is bool:
        return value
    if str(getattr(value, "dtype", "")) == "bool" and getattr(value, "ndim", 1) == 0 or isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} is {value!r}; it must be True or False")


def to_shape(name: str, shape: Any) -> Tuple[int, ...]:
    if not _is_sequence(shape):
        raise TypeError(f"{name} is {shape!r}; it must be a tuple of integers, such as (8, 64, 112, 112)")
    return tuple(to_int(f"{name}[{i}]", n) for i, n in enumerate(shape))


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool":  # NumPy's has an __index__
        raise TypeError
    return value


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (not isinstance(value, (int, str)) and getattr(value, "ndim", 0) > 0)  # NumPy's


_INTS = {int}


def freeze(name: str, value: Any) -> Any:
    """`value` in a form that caches can find: tuples of plain integers. Words and None stay; what is no integer is refused here,
    since 2.0 and True would be found where 2 is kept."""
    if value is None or type(value) is int or isinstance(value, str):
        return value
    if type(value) is tuple and {*map(type, value)} == _INTS:  # as they mostly come, and looked at in no time
        return value
    if _is_sequence(value):
        return tuple(freeze(f"{name}[{i}]", entry) for i, entry in enumerate(value))
    return to_int(name, value)


def per_axis(name: str, value: Any, rank: int) -> Tuple[int, ...]:
    """One integer for every axis, or one per axis."""
    if _is_sequence(value):
        if len(value) not in (1, rank):
            raise ValueError(f"{name} has {len(value)} entries; give one integer, or one per spatial axis: {rank}")
        entries = tuple(to_int(f"{name}[{i}]", entry) for i, entry in enumerate(value))
        return entries if len(entries) == rank else entries * rank
    return (to_int(name, value),) * rank


def resolve_padding(value: Padding, rank: int) -> Tuple[str, Tuple[int, ...], Tuple[int, ...]]:
    """(kind, low, high) from an integer, "same", "same_lower" or "valid" in any case, one integer per axis, or (low, high) per
    axis."""
    none = (0,) * rank
    if isinstance(value, str):
        if value.lower() not in ("same", "same_lower", "valid"):
            raise ValueError(f"padding is {value!r}; the words are 'same', 'same_lower' and 'valid'")
        return value.lower(), none, none
    if _is_sequence(value) and any(_is_sequence(entry) for entry in value):
        if len(value) != rank:
            raise ValueError(f"padding has {len(value)} entries; give one (low, high) pair per spatial axis: {rank}")
        low, high = [], []
        for i, entry in enumerate(value):
            pair = entry if _is_sequence(entry) else (entry, entry)
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
    relu: bool = False,
    bias: bool = False,
    outputs: Any = None,
    starts: Any = None,
    sizes: Any = None,
    device: int = 0,
    device_index: int = 0,
) -> _abi.Problem:
    """A filled poolgrad_problem; `shape` is in the layout's memory order, batch first. kernel is None on axes whose windows have
    sizes of their own."""
    rank = len(shape) - 2
    if rank not in (1, 2, 3):
        raise ValueError(
            f"the shape {tuple(shape)} has {len(shape)} dimensions; pooling takes 3, 4 or 5: batch, channels and one to three "
            "spatial axes"
        )
    problem = _abi.Problem()
    _abi.library().poolgrad_problem_init_sized(byref(problem), sizeof(problem))
    problem.kind = code("kind", kind, _abi.KINDS)
    problem.dtype = dtype
    problem.layout = code("layout", layout, _abi.LAYOUTS)
    problem.dialect = 0 if dialect is None else code("dialect", dialect, _abi.DIALECTS)
    problem.rank = rank
    problem.rounding = 0 if rounding == "floor" else code("rounding", rounding, _abi.ROUNDINGS)  # 0: floor everywhere
    problem.ties = 0 if isinstance(ties, Default) else code("ties", ties, _abi.TIES)  # 0: as the dialect does
    problem.nan = 0 if isinstance(nan, Default) else code("nan", nan, _abi.NANS)
    problem.count_padding = -1 if count_padding is None else to_bool("count_padding", count_padding)
    problem.divisor = 0 if divisor is None else to_int("divisor", divisor)
    if divisor is not None and problem.divisor < 1:
        raise ValueError(f"divisor is {divisor}; it must be at least 1, or None")
    problem.route_bits = to_int("route_bits", route_bits, 32)
    problem.device, problem.device_index = device, device_index
    problem.batch = shape[0]
    channels_last = problem.layout == 1
    problem.channels = shape[-1] if channels_last else shape[1]
    problem.in_[:rank] = shape[1:-1] if channels_last else shape[2:]
    problem.relu, problem.bias = to_bool("relu", relu), to_bool("bias", bias)
    if outputs is not None or starts is not None or sizes is not None:
        kernel, stride = _set_tables(problem, kernel, stride, outputs, starts, sizes)
    problem.kernel[:rank] = kernel = per_axis("kernel", kernel, rank)
    problem.stride[:rank] = kernel if stride is None else per_axis("stride", stride, rank)
    problem.dilation[:rank] = per_axis("dilation", dilation, rank)
    word, low, high = resolve_padding(padding, rank)
    problem.padding = _abi.PADDINGS[word]
    problem.pad_lo[:rank], problem.pad_hi[:rank] = low, high
    return problem


def table_axes(name: str, value: Any, rank: int) -> Tuple[Any, ...]:
    """One sequence of integers per axis, or None for an axis without a table."""
    if value is None:
        return (None,) * rank
    if not _is_sequence(value) or not all(entries is None or _is_sequence(entries) for entries in value):
        raise TypeError(f"{name} is {value!r}; it must have one sequence of integers per spatial axis, such as [[0, 2], [0, 3]]")
    if len(value) != rank:
        raise ValueError(f"{name} has {len(value)} entries; give one sequence, or None, per spatial axis: {rank}")
    return tuple(None if axis is None else to_shape(f"{name}[{i}]", axis) for i, axis in enumerate(value))


def _set_tables(
    problem: _abi.Problem, kernel: Any, stride: Any, outputs: Any, starts: Any, sizes: Any
) -> Tuple[Sequence[int], Optional[Sequence[int]]]:
    """Fills in windows by table, and gives kernel and stride as the library wants them there."""
    rank: int = problem.rank
    if stride is not None:
        raise ValueError(f"stride is {stride!r}; windows by table start where the table says, so leave stride out")
    counts = (None,) * rank if outputs is None else freeze("outputs", outputs)
    if not isinstance(counts, tuple):
        counts = (counts,) * rank
    if len(counts) != rank:
        raise ValueError(f"outputs has {len(counts)} entries; give one integer, or one per spatial axis: {rank}")
    all_starts, all_sizes = table_axes("starts", starts, rank), table_axes("sizes", sizes, rank)
    kernels = (None,) * rank if kernel is None else per_axis("kernel", kernel, rank)
    taps, steps = [], []
    for i in range(rank):
        count, begins, lengths = counts[i], all_starts[i], all_sizes[i]
        if begins is None and lengths is not None:
            raise ValueError(f"sizes[{i}] is given without starts[{i}]; give both")
        if begins is not None:
            if lengths is not None and len(lengths) != len(begins):
                raise ValueError(f"sizes[{i}] has {len(lengths)} entries and starts[{i}] has {len(begins)}; give one of each per window")
            if count is not None and count != len(begins):
                raise ValueError(f"outputs[{i}] is {count}; starts[{i}] has {len(begins)} entries, so leave outputs out")
            if not begins:
                raise ValueError(f"starts[{i}] has no entries; give one per window")
            count = len(begins)
            problem.set_table("starts", i, begins)
            if lengths is not None:
                problem.set_table("sizes", i, lengths)
        elif count is not None and to_int(f"outputs[{i}]", count) < 1:
            raise ValueError(f"outputs[{i}] is {count}; it must be at least 1")
        own = begins is not None and lengths is None or count is None  # whose windows have the kernel's size
        if own and kernels[i] is None:
            raise ValueError(f"kernel is None; axis {i} has no sizes of its own, so give the size of its windows")
        if count is not None:
            problem.outputs[i] = count
        taps.append(kernels[i] if own else 0)
        steps.append(1 if count is not None else kernels[i])
    if kernel is not None and not any(taps):
        raise ValueError(f"kernel is {kernel!r}; every axis has windows of sizes of its own, so give None")
    return taps, steps


def parse_problem(text: str) -> _abi.Problem:
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r}; it must be a string, such as 'max f32 nchw 8x64x112x112 k3 s2 p1'")
    if "\0" in text:
        raise ValueError(f"text is {text!r}; a problem's text has no NUL in it")
    problem = _abi.Problem()
    status = _abi.library().poolgrad_problem_parse_sized(text.encode(), byref(problem), sizeof(problem))
    if status:
        _abi.raise_status(status)
    return problem


class CorePlan:
    """An immutable plan: shapes and sizes in Python, everything else behind `handle`. Share it freely between threads."""

    words: Words = (
        (r"\bpad_(?:lo|hi)\[(\d)\]", r"padding[\1]"),
        (r"\bin\[(\d)\]", r"the input's size on spatial axis \1"),
        ("bias is 1; a bias goes with relu; set relu to 1", "bias was given; it goes with relu, so give relu=True"),
        ("the jax dialect alone crops", "dialect='jax' alone crops"),
    )

    def __init__(self, problem: _abi.Problem, algorithm: Optional[str] = None) -> None:
        self.handle: Optional[int] = None
        library = _abi.library()
        if algorithm is not None and not isinstance(algorithm, str):
            raise TypeError(f"algorithm is {algorithm!r}; it must be a name from explain(), or None")
        options = _abi.PlanOptions(ctypes.sizeof(_abi.PlanOptions), algorithm.encode() if algorithm else None)
        handle = c_void_p()
        status = library.poolgrad_plan_create(byref(problem), byref(options), byref(handle))
        if status:
            _abi.raise_status(status, self.words)
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
        status = _abi.library().poolgrad_plan_scratch_bytes(
            self.handle, code("op", op, _abi.OPS), to_int("threads", threads, 32), byref(needed)
        )
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
