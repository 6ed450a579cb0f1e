"""What is built and kept is loaded only if nobody else can have put it there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from poolgrad import _cache


@pytest.fixture
def number(tmp_path: Any) -> Any:
    """build(path) for a library whose answer() is a number that grows with every build."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def build(target: Path) -> None:
        build.count += 1  # type: ignore[attr-defined]
        program = f"int answer(void) {{ return {build.count}; }}".encode()  # type: ignore[attr-defined]
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)], input=program, check=True)

    build.count = 0  # type: ignore[attr-defined]
    return build


def test_kept_in_a_private_folder_and_found_again(monkeypatch, tmp_path, number):
    folder = tmp_path / "a" / "cache"
    monkeypatch.setenv("POOLGRAD_CACHE", str(folder))
    before = os.umask(0)
    try:
        assert _cache.load_built("one", number).answer() == 1
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert sorted(entry.name for entry in folder.iterdir()) == ["one.sha256", "one.so"]  # and no temporary folder
    assert all(stat.S_IMODE(entry.stat().st_mode) == 0o600 for entry in folder.iterdir())
    assert _cache.load_built("one", number).answer() == 1 and number.count == 1


def plant(number: Any, folder: Path, how: str) -> None:
    library, seal = folder / "lib.so", folder / "lib.sha256"
    if how == "changed":
        library.write_bytes(library.read_bytes() + b"\0")
    elif how == "cut short":
        library.write_bytes(library.read_bytes()[:100])
    elif how == "without a seal":
        seal.unlink()
    elif how == "writable by all":
        library.chmod(0o666)
    elif how == "a link":
        library.rename(folder / "other.so")
        library.symlink_to(folder / "other.so")
    elif how == "another's":
        os.chown(library, 12345, 12345)


@pytest.mark.parametrize("how", ["changed", "cut short", "without a seal", "writable by all", "a link", "another's"])
def test_what_was_not_put_there_by_us_is_built_anew(monkeypatch, tmp_path, number, how):
    if how == "another's" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = tmp_path / "cache"
    monkeypatch.setenv("POOLGRAD_CACHE", str(folder))
    number(tmp_path / "first.so")  # so that the planted one is number 1 and the kept one, which is mapped, stays
    _cache.cache_folder()
    shutil.copy(tmp_path / "first.so", folder / "lib.so")
    (folder / "lib.sha256").write_text(_cache._digest(folder / "lib.so"))
    plant(number, folder, how)
    assert _cache.load_built("lib", number).answer() == 2 and number.count == 2


@pytest.mark.parametrize("how", ["writable by all", "a link", "a file", "another's"])
def test_a_folder_that_others_can_write_to_is_not_used(monkeypatch, tmp_path, number, how):
    if how == "another's" and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    folder, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("POOLGRAD_CACHE", str(folder))
    if how == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif how == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(0o777 if how == "writable by all" else 0o700)
        if how == "another's":
            os.chown(folder, 12345, 12345)
    assert _cache.cache_folder() is None
    assert _cache.load_built("lib", number).answer() == 1
    assert not list(temporary.iterdir())  # removed
    assert not folder.is_dir() or not list(folder.iterdir())


def test_a_readable_folder_of_ours_is_closed(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("POOLGRAD_CACHE", str(folder))
    assert _cache.cache_folder() == folder and stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("named", ["", "relative"])
def test_an_empty_cache_home_is_none(monkeypatch, tmp_path, named):
    monkeypatch.delenv("POOLGRAD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert _cache.cache_folder() == tmp_path / ".cache" / "poolgrad"
    assert not (tmp_path / "poolgrad").exists()


def test_a_build_that_fails_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("POOLGRAD_CACHE", str(tmp_path / "cache"))

    def build(target: Path) -> None:
        target.write_text("half")
        raise ImportError("no")

    with pytest.raises(ImportError):
        _cache.load_built("lib", build)
    assert not list((tmp_path / "cache").iterdir())
