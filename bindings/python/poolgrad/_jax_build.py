"""Builds and loads the XLA FFI handlers of _jax_ffi.cc, once per machine: the headers come with the jaxlib that is installed.

The result is kept in the folder that POOLGRAD_CACHE names, or the user's cache folder, under a name made of everything that
went into it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, List

import jax
import jaxlib

from . import _abi

_SOURCE = Path(__file__).with_name("_jax_ffi.cc")
OPS = ("forward", "forward_routes", "scatter", "gather")


def _header_folder() -> Path:
    """Where poolgrad/poolgrad.h is: in the wheel, or in the repository this package is run from."""
    for folder in (_SOURCE.parent / "include", _SOURCE.parents[3] / "include"):
        if (folder / "poolgrad" / "poolgrad.h").exists():
            return folder
    raise ImportError(f"poolgrad/poolgrad.h is missing beside {_SOURCE}; install poolgrad again")


def _cache_folder() -> Path:
    named = os.environ.get("POOLGRAD_CACHE")
    folder = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "poolgrad"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="poolgrad-"))


def _compile(flags: List[str], target: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise ImportError("poolgrad.jax builds a small C++ file on first use, and found no compiler; set CXX")
    partial = target.with_suffix(f".{os.getpid()}")
    command = [
        compiler, "-std=c++20", "-O2", "-shared", "-fPIC", *flags, f"-I{_header_folder()}", f"-I{jax.ffi.include_dir()}",
        str(_SOURCE), "-o", str(partial), str(_abi.library_path().resolve()),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ImportError(f"poolgrad.jax could not be built: {' '.join(command)}\n{done.stderr}")
    os.replace(partial, target)


def _flag_sets(with_cuda: bool) -> List[List[str]]:
    """The wanted flags, then what to fall back to: older headers cannot say which GPU a call is for."""
    if not with_cuda:
        return [[]]
    headers = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api").glob("*.h")
    knows_ordinal = any("struct DeviceOrdinal" in header.read_text() for header in headers)
    cuda = ["-DPOOLGRAD_JAX_CUDA"]
    return [[*cuda, "-DPOOLGRAD_JAX_DEVICE_ORDINAL"], cuda] if knows_ordinal else [cuda]


def _load(with_cuda: bool) -> Any:
    made_of = (_SOURCE.read_bytes(), str(_abi.library_path().resolve()).encode(), jaxlib.__version__.encode())
    name = hashlib.sha256(b"\0".join((*made_of, bytes([with_cuda])))).hexdigest()[:16]
    target = _cache_folder() / f"libpoolgrad_jax_{name}.so"
    flag_sets = _flag_sets(with_cuda)
    while not target.exists():
        flags = flag_sets.pop(0)
        try:
            _compile(flags, target)
        except ImportError:
            if not flag_sets:
                raise
    return ctypes.CDLL(str(target))


def register() -> None:
    """Makes every handler known to XLA as poolgrad_<op>, on the CPU and, where this poolgrad has it, on CUDA."""
    library = _abi.library()  # first: the handlers find its symbols already loaded
    with_cuda = bool(library.poolgrad_has_cuda())
    handlers = _load(with_cuda)
    for op in OPS:
        for platform, suffix in (("cpu", "cpu"), ("CUDA", "cuda"))[: 2 if with_cuda else 1]:
            capsule = jax.ffi.pycapsule(getattr(handlers, f"poolgrad_jax_{op}_{suffix}"))
            jax.ffi.register_ffi_target(f"poolgrad_{op}", capsule, platform=platform)
