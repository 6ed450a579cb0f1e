"""What pip asks of build_backend.py, but for compiling: test.sh installs the wheel that the other tests run on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from poolgrad import _abi

BACKEND = Path(__file__).resolve().parents[1] / "build_backend.py"


def test_an_editable_install_leaves_the_package_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = importlib.util.spec_from_file_location("build_backend", BACKEND)
    backend: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    tree, built = tmp_path / "tree" / "poolgrad", tmp_path / "build" / "libpoolgrad.so"
    shutil.copytree(BACKEND.with_name("poolgrad"), tree, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    built.parent.mkdir()
    shutil.copy(_abi.library_path().resolve(), built)
    monkeypatch.setattr(backend, "PACKAGE", tree)
    monkeypatch.setattr(backend, "_build_library", lambda: ([built], ""))
    for _ in range(2):  # the second finds the links of the first
        wheel = backend.build_editable(str(tmp_path))
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        assert sorted(name for name in archive.namelist() if ".dist-info/" not in name) == ["poolgrad.pth"]
        (path,) = archive.read("poolgrad.pth").decode().splitlines()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "POOLGRAD_LIBRARY")}
    told = "import sys; sys.path.insert(0, sys.argv[1]); import poolgrad; print(poolgrad.__file__); poolgrad.version()"
    found = subprocess.run([sys.executable, "-c", told, path], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == str(tree / "__init__.py")
