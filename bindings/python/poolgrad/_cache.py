"""A library that is built on this machine, kept and loaded again: only from a folder that nobody else can write to.

The folder is the one POOLGRAD_CACHE names, or poolgrad in the user's cache folder. It must be a real folder of this user's,
closed to all others (0700; one of this user's that is merely readable by others is closed). Beside each library lies the SHA-256
of its bytes: a library without it, with another one, or writable by others is not loaded but built anew. Where there is no such
folder, the library is built in a temporary one, which is removed once it is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any, Callable, Optional


def _wanted_folder() -> Optional[Path]:
    named = os.environ.get("POOLGRAD_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # empty or relative: by the XDG specification, as if it were not set
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "poolgrad" if os.path.isabs(base) else None


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cache_folder() -> Optional[Path]:
    """The folder, or None if there is none that can be trusted and written to."""
    folder = _wanted_folder()
    if folder is None:
        return None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
            return None
        if found.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_whole(library: Path, seal: Path) -> bool:
    """Whether the file is the one that was put there."""
    try:
        return (
            all(stat.S_ISREG(found.st_mode) and _is_ours(found) for found in (os.lstat(library), os.lstat(seal)))
            and seal.read_text() == _digest(library)
        )
    except OSError:
        return False


def load_built(name: str, build: Callable[[Path], None]) -> Any:
    """The shared library `name`, loaded; build(path) makes it where it is not kept. `name` must say all that goes into it."""
    folder = cache_folder()
    if folder is not None:
        library, seal = folder / f"{name}.so", folder / f"{name}.sha256"
        if _is_whole(library, seal):
            return ctypes.CDLL(str(library))
    workplace = Path(tempfile.mkdtemp(prefix="build-" if folder else "poolgrad-", dir=folder))
    try:
        made = workplace / f"{name}.so"
        build(made)
        if folder is None:
            return ctypes.CDLL(str(made))
        made.chmod(0o600)
        sealed = workplace / "seal"
        sealed.write_text(_digest(made))
        sealed.chmod(0o600)
        os.replace(made, library)
        os.replace(sealed, seal)
        return ctypes.CDLL(str(library))
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
