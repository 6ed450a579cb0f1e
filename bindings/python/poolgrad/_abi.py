"""The C ABI of include/poolgrad/poolgrad.h, mirrored with ctypes, and the one place that loads the shared library.

The library lies beside this file in an installed wheel; the environment variable POOLGRAD_LIBRARY names another one. It is
loaded on first use, so that importing poolgrad never fails for want of it. ctypes lets go of the GIL around every call, and
no Python object is touched while a kernel runs. The enumerations below are the header's, by the words of the text form.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple

KINDS = {"max": 0, "avg": 1}
LAYOUTS = {"channels_first": 0, "channels_last": 1}
DIALECTS = {"default": 0, "torch": 1, "tensorflow": 2, "tfjs": 3, "jax": 4, "onnx": 5}
PADDINGS = {"explicit": 0, "valid": 1, "same": 2, "same_lower": 3}
ROUNDINGS = {"floor": 1, "ceil": 2, "ceil_drop": 3, "ceil_keep": 4, "round": 5}
TIES = {"first": 1, "last": 2, "split": 3, "all": 4}
NANS = {"propagate_first": 1, "propagate_last": 2, "first_place": 3, "greater_equal": 4, "ignore": 5}
DTYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 3, "i8": 4, "u8": 5, "i32": 6}
NUMBERINGS = {"torch": 0, "tensorflow": 1, "tensorflow_batch": 2, "onnx": 3, "onnx_column": 4}
HALOS = {"x": 0, "dy": 1}
OPS = {"forward": 0, "forward_routes": 1, "backward": 2, "backward_x": 3, "gather": 4, "unpool": 5, "bias_gradient": 6}

INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY = 1, 2, 3
MOST_THREADS = 4096


class Problem(ctypes.Structure):
    """poolgrad_problem."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("layout", c_int32),
        ("dialect", c_int32),
        ("rank", c_int32),
        ("padding", c_int32),
        ("rounding", c_int32),
        ("ties", c_int32),
        ("nan", c_int32),
        ("route_bits", c_int32),
        ("count_padding", c_int32),
        ("device", c_int32),
        ("device_index", c_int32),
        ("reserved", c_int32),
        ("divisor", c_int64),
        ("batch", c_int64),
        ("channels", c_int64),
        ("in_", c_int64 * 3),
        ("kernel", c_int64 * 3),
        ("stride", c_int64 * 3),
        ("dilation", c_int64 * 3),
        ("pad_lo", c_int64 * 3),
        ("pad_hi", c_int64 * 3),
        ("relu", c_int32),
        ("reserved2", c_int32),
        ("outputs", c_int64 * 3),
        ("starts", POINTER(c_int64) * 3),
        ("sizes", POINTER(c_int64) * 3),
        ("whole_in", c_int64 * 3),
        ("whole_at", c_int64 * 3),
        ("whole_pad_lo", c_int64 * 3),
        ("whole_pad_hi", c_int64 * 3),
        ("bias", c_int32),
        ("reserved3", c_int32),
    ]

    tables: Any = ()  # (field, axis, entries) of every pointer that is set: what starts and sizes point to

    def set_table(self, field: str, axis: int, entries: Tuple[int, ...]) -> None:
        """Points starts[axis] or sizes[axis] to the entries, which then live as long as this."""
        array = (c_int64 * len(entries))(*entries)
        getattr(self, field)[axis] = array  # ctypes keeps the array with the struct
        self.tables = (*self.tables, (field, axis, entries))

    def state(self) -> Tuple[bytes, Any]:
        """All of it as values, without addresses: equal for equal problems, and fit to be kept in a file."""
        plain = Problem.from_buffer_copy(self)
        plain.starts, plain.sizes = (POINTER(c_int64) * 3)(), (POINTER(c_int64) * 3)()
        return bytes(plain), self.tables

    @classmethod
    def of_state(cls, state: Tuple[bytes, Any]) -> "Problem":
        problem = cls.from_buffer_copy(state[0])
        for field, axis, entries in state[1]:
            problem.set_table(field, axis, entries)
        return problem


class Shard(ctypes.Structure):
    """poolgrad_shard."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("in_begin", c_int64 * 3),
        ("in_end", c_int64 * 3),
        ("out_begin", c_int64 * 3),
        ("out_end", c_int64 * 3),
        ("read_begin", c_int64 * 3),
        ("read_end", c_int64 * 3),
        ("over_begin", c_int64 * 3),
        ("over_end", c_int64 * 3),
        ("has_forward", c_int32),
        ("has_backward", c_int32),
    ]


class PlanOptions(ctypes.Structure):
    """poolgrad_plan_options."""

    _fields_ = [("struct_size", c_uint64), ("algorithm", c_char_p), ("never_compile", c_int32), ("reserved", c_int32)]


class Info(ctypes.Structure):
    """poolgrad_info."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("out", c_int64 * 3),
        ("pad_lo", c_int64 * 3),
        ("pad_hi", c_int64 * 3),
        ("x_elements", c_int64),
        ("y_elements", c_int64),
        ("x_bytes", c_int64),
        ("y_bytes", c_int64),
        ("taps", c_int64),
        ("route_bits", c_int32),
        ("route_masks", c_int32),
        ("route_bytes", c_int64),
        ("may_have_no_route", c_int32),
        ("ties", c_int32),
        ("nan", c_int32),
        ("rounding", c_int32),
    ]


class OpenMp(ctypes.Structure):
    """poolgrad_openmp."""

    _fields_ = [("parallel", c_void_p), ("threads", c_int64)]


class Exec(ctypes.Structure):
    """poolgrad_exec. parallel_for is null (poolgrad's own pool runs the tasks) or poolgrad_parallel_for_openmp."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("threads", c_int32),
        ("reserved", c_int32),
        ("parallel_for", c_void_p),
        ("parallel_for_context", c_void_p),
        ("scratch", c_void_p),
        ("scratch_bytes", c_uint64),
        ("stream", c_void_p),
    ]


def make_exec(threads: int = 0, scratch: int = 0, scratch_bytes: int = 0, stream: int = 0) -> Exec:
    return Exec(ctypes.sizeof(Exec), threads, 0, None, None, scratch or None, scratch_bytes, stream or None)


def make_openmp_exec(threads: int, parallel: int) -> Exec:
    """Runs on the threads of the OpenMP runtime whose GOMP_parallel is at `parallel`."""
    run, host = make_exec(threads), OpenMp(parallel, threads)
    run.parallel_for = ctypes.cast(library().poolgrad_parallel_for_openmp, c_void_p).value
    run.parallel_for_context = ctypes.addressof(host)
    run.host = host  # lives as long
    return run


_V, _P = c_void_p, POINTER
_SIGNATURES: Dict[str, Any] = {
    "poolgrad_problem_init_sized": (None, [_P(Problem), c_size_t]),
    "poolgrad_problem_parse_sized": (c_int32, [c_char_p, _P(Problem), c_size_t]),
    "poolgrad_problem_format": (c_int32, [_P(Problem), c_char_p, c_size_t, _P(c_size_t)]),
    "poolgrad_plan_create": (c_int32, [_P(Problem), _P(PlanOptions), _P(_V)]),
    "poolgrad_plan_destroy": (None, [_V]),
    "poolgrad_plan_info": (c_int32, [_V, _P(Info)]),
    "poolgrad_plan_scratch_bytes": (c_int32, [_V, c_int32, c_int32, _P(c_uint64)]),
    "poolgrad_plan_explain": (c_int32, [_V, c_char_p, c_size_t, _P(c_size_t)]),
    "poolgrad_plan_algorithm": (c_char_p, [_V, c_int32]),
    "poolgrad_forward": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_backward": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_backward_x": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_gather": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_unpool": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_jacobian": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_routes_to_indices": (c_int32, [_V, _V, c_int32, _V, _V]),
    "poolgrad_routes_from_indices": (c_int32, [_V, _V, c_int32, _V]),
    "poolgrad_unpool_indices": (c_int32, [_V, _V, _V, c_int32, _V, _V]),
    "poolgrad_shard_of": (
        c_int32,
        [_P(Problem), _P(c_int64), _P(_P(c_int64)), _P(c_int64), _P(Shard), _P(Problem), _P(Problem)],
    ),
    "poolgrad_shard_halo": (
        c_int32,
        [_P(Problem), _P(c_int64), _P(_P(c_int64)), _P(c_int64), _P(c_int64), c_int32, _P(c_int64), _P(c_int64)],
    ),
    "poolgrad_forward_bias": (c_int32, [_V, _V, _V, _V, _V, _V]),
    "poolgrad_bias_gradient": (c_int32, [_V, _V, _V, _V, _V]),
    "poolgrad_parallel_for_openmp": (None, [_V, c_int64, _V, _V]),
    "poolgrad_last_error": (c_char_p, []),
    "poolgrad_version": (c_char_p, []),
    "poolgrad_simd_target": (c_char_p, []),
    "poolgrad_has_cuda": (c_int32, []),
    "poolgrad_default_threads": (c_int32, []),
}

_library: Optional[ctypes.CDLL] = None


def library_path() -> Path:
    """Where the shared library is taken from."""
    named = os.environ.get("POOLGRAD_LIBRARY")
    return Path(named) if named else Path(__file__).with_name("libpoolgrad.so")


def library() -> Any:
    """The loaded library, its functions typed."""
    global _library
    if _library is None:
        path = library_path()
        if not path.exists():
            raise ImportError(
                f"{path} does not exist; install poolgrad with `pip install .` from its repository, or let the environment "
                "variable POOLGRAD_LIBRARY name a built libpoolgrad.so"
            )
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
        if loaded.poolgrad_has_cuda():
            _name_nvrtc()
        _library = loaded
    return _library


def _name_nvrtc() -> None:
    """Names NVRTC where pip put it, beside PyTorch or JAX: the library would look for it where the system has its own."""
    spec = importlib.util.find_spec("nvidia") if "POOLGRAD_NVRTC" not in os.environ else None
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in sorted(Path(folder).glob("*/lib/libnvrtc.so.[0-9]*")):
            os.environ["POOLGRAD_NVRTC"] = str(found)


def raise_status(status: int, words: Sequence[Tuple[str, str]] = ()) -> None:
    """Raises what a failed call left in poolgrad_last_error; `words` are patterns of its sentence and what to say instead."""
    sentence = library().poolgrad_last_error().decode()
    for pattern, said in words:
        sentence = re.sub(pattern, said, sentence)
    if status in (INVALID_ARGUMENT, UNSUPPORTED):
        raise ValueError(sentence)
    raise (MemoryError if status == OUT_OF_MEMORY else RuntimeError)(sentence)


def read_text(function: Any, handle: Any) -> str:
    """The text of a function with the buffer rules of poolgrad_problem_format."""
    needed = c_size_t()
    status = function(handle, None, 0, ctypes.byref(needed))
    if status:
        raise_status(status)
    text = ctypes.create_string_buffer(needed.value)
    status = function(handle, text, needed.value, None)
    if status:
        raise_status(status)
    return text.value.decode()
