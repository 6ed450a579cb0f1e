"""NumPy arrays in and out: element types, addresses, and anything else that speaks DLPack, without a copy.

NumPy's own from_dlpack covers every type it has a name for. bfloat16 it refuses, so a DLPack tensor of that type is wrapped
here by hand (DLPack 0.x, the unversioned capsule every library exports by default) with the type that ml_dtypes registers.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Tuple

import numpy as np

from . import _abi

_CODES: Dict[Any, int] = {
    np.dtype(np.float32): _abi.DTYPES["f32"],
    np.dtype(np.float64): _abi.DTYPES["f64"],
    np.dtype(np.float16): _abi.DTYPES["f16"],
    np.dtype(np.int8): _abi.DTYPES["i8"],
    np.dtype(np.uint8): _abi.DTYPES["u8"],
    np.dtype(np.int32): _abi.DTYPES["i32"],
}
_TAKEN = "float32, float64, float16, bfloat16 (ml_dtypes), int8, uint8 and int32"

_c_char_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def address(array: np.ndarray) -> int:
    """Where the data lies. The buffer protocol is the fastest way there; read-only and bfloat16 arrays do not offer it."""
    try:
        return _addressof(_c_char_from_buffer(array))
    except (TypeError, ValueError, BufferError):
        return array.ctypes.data


def dtype_code(dtype: Any, name: str = "dtype") -> int:
    code = _CODES.get(dtype)
    if code is None:
        if dtype.name == "bfloat16" and dtype.itemsize == 2:
            code = _CODES[dtype] = _abi.DTYPES["bf16"]
        else:
            raise TypeError(f"{name} has the type {dtype}; poolgrad takes {_TAKEN}, in the machine's byte order")
    return code


def to_dtype(dtype: Any) -> Any:
    """np.dtype(dtype), knowing bfloat16 where ml_dtypes is installed."""
    if isinstance(dtype, str) and dtype in ("bfloat16", "bf16"):
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError("dtype is 'bfloat16', which NumPy knows only where ml_dtypes is installed") from None
        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(dtype)
    except TypeError:
        raise TypeError(f"dtype is {dtype!r}; poolgrad takes {_TAKEN}") from None


def as_array(value: Any, name: str) -> np.ndarray:
    """An ndarray over the same memory where there is memory to share: ndarray, DLPack; otherwise what np.asarray makes."""
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(
                f"{name} is a masked array, and pooling knows no mask; fill it first, for the maximum with {name}.filled(-np.inf)"
            )
        return value
    if hasattr(value, "__dlpack__"):
        device, capsule = _export(value, name)
        if device != _CPU:
            raise TypeError(
                f"{name} lies on DLPack device {device}; the NumPy functions take CPU memory (poolgrad.torch and "
                "poolgrad.jax run on the GPU)"
            )
        if _is_bfloat16(capsule):
            return _wrap_bfloat16(capsule, name)
        return np.from_dlpack(_Exported(capsule))
    return np.asarray(value)


def _export(value: Any, name: str) -> Tuple[int, Any]:
    """The DLPack device of a value, and its capsule where that is the CPU."""
    if getattr(value, "is_neg", bool)():  # what torch exports then is memory whose sign has not been changed yet
        raise TypeError(f"{name} is a torch tensor whose sign is still to be changed; call resolve_neg() on it first")
    try:
        device = int(value.__dlpack_device__()[0])
        return device, value.__dlpack__() if device == _CPU else None
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(value).__name__} that cannot be read through DLPack: {error}") from None


_CPU = 1
_BFLOAT = 4


class _Tensor(ctypes.Structure):  # DLTensor, the head of DLManagedTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Exported:
    """A capsule already asked for, in the form np.from_dlpack wants."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (_CPU, 0)


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _tensor(capsule: Any) -> _Tensor:
    return _Tensor.from_address(_get_pointer(capsule, b"dltensor"))


def _is_bfloat16(capsule: Any) -> bool:
    tensor = _tensor(capsule)
    return tensor.type_code == _BFLOAT and tensor.type_bits == 16


def _wrap_bfloat16(capsule: Any, name: str) -> np.ndarray:
    tensor = _tensor(capsule)
    dtype = to_dtype("bfloat16")
    shape = tuple(tensor.shape[: tensor.ndim])
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, dtype)
    strides = tuple(2 * s for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    if strides and any(s < 0 for s in strides):
        raise ValueError(f"{name} has negative strides, which DLPack does not allow")
    span = 2 + (sum((n - 1) * s for n, s in zip(shape, strides)) if strides else 2 * (count - 1))
    memory = (ctypes.c_uint8 * span).from_address(tensor.data + tensor.byte_offset)
    memory.owner = capsule  # unconsumed: its own destructor frees the tensor when the last view is gone
    array = np.ndarray(shape, dtype, memory, strides=strides)
    array.flags.writeable = False
    return array
