"""Builds and loads the XLA FFI handlers of _jax_ffi.cc, once per machine: the headers come with the jaxlib that is installed.

The result is kept by _cache, under a name made of everything that went into it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, List

import jax
import jaxlib

from . import _abi, _cache

_SOURCE = Path(__file__).with_name("_jax_ffi.cc")
OPS = ("forward", "forward_routes", "scatter", "gather", "spread", "forward_bias", "forward_bias_routes", "bias_sum")


def _header_folder() -> Path:
    """Where poolgrad/poolgrad.h is: in the wheel, or in the repository this package is run from."""
    for folder in (_SOURCE.parent / "include", _SOURCE.parents[3] / "include"):
        if (folder / "poolgrad" / "poolgrad.h").exists():
            return folder
    raise ImportError(f"poolgrad/poolgrad.h is missing beside {_SOURCE}; install poolgrad again")


def _compile(flags: List[str], target: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise ImportError("poolgrad.jax builds a small C++ file on first use, and found no compiler; set CXX")
    command = [
        compiler, "-std=c++20", "-O2", "-shared", "-fPIC", *flags, f"-I{_header_folder()}", f"-I{jax.ffi.include_dir()}",
        str(_SOURCE), "-o", str(target), str(_abi.library_path().resolve()),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ImportError(f"poolgrad.jax could not be built: {' '.join(command)}\n{done.stderr}")


def _flag_sets(with_cuda: bool) -> List[List[str]]:
    """The wanted flags, then what to fall back to: older headers cannot say which GPU a call is for."""
    if not with_cuda:
        return [[]]
    headers = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api").glob("*.h")
    knows_ordinal = any("struct DeviceOrdinal" in header.read_text() for header in headers)
    cuda = ["-DPOOLGRAD_JAX_CUDA"]
    return [[*cuda, "-DPOOLGRAD_JAX_DEVICE_ORDINAL"], cuda] if knows_ordinal else [cuda]


def _load(with_cuda: bool) -> Any:
    library = _abi.library_path().resolve()
    header = _header_folder() / "poolgrad" / "poolgrad.h"
    named = f"{library} {jaxlib.__version__} {with_cuda}".encode()
    digest = hashlib.sha256()
    for part in (named, _SOURCE.read_bytes(), header.read_bytes(), library.read_bytes()):
        digest.update(hashlib.sha256(part).digest())

    def build(target: Path) -> None:
        *wanted, last = _flag_sets(with_cuda)
        for flags in wanted:
            try:
                return _compile(flags, target)
            except ImportError:
                pass
        _compile(last, target)

    return _cache.load_built(f"libpoolgrad_jax_{digest.hexdigest()[:32]}", build)


def register() -> None:
    """Makes every handler known to XLA as poolgrad_<op>, on the CPU and, where this poolgrad has it, on CUDA."""
    library = _abi.library()  # first: the handlers find its symbols already loaded
    with_cuda = bool(library.poolgrad_has_cuda())
    handlers = _load(with_cuda)
    for op in OPS:
        for platform, suffix in (("cpu", "cpu"), ("CUDA", "cuda"))[: 2 if with_cuda else 1]:
            capsule = jax.ffi.pycapsule(getattr(handlers, f"poolgrad_jax_{op}_{suffix}"))
            jax.ffi.register_ffi_target(f"poolgrad_{op}", capsule, platform=platform)
