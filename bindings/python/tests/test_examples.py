"""The examples of the repository run, and say what their comments say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import poolgrad

PACKAGE = str(Path(poolgrad.__file__).resolve().parents[1])
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(EXAMPLES / name), *arguments],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart(tmp_path):
    told = run("quickstart.py", tmp_path)
    assert "kept for backward: 2 bytes" in told and "torch's indices [ 5  6  8 10]" in told


def test_train_cnn(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    told = run("train_cnn.py", tmp_path, "--epochs", "1")  # which fails unless all runs have the same losses, to the last bit
    saved = [float(line.split()[-2]) for line in told.splitlines() if line.endswith("KiB")]
    assert len(saved) == 3 and saved[0] > saved[1] > saved[2], told


def test_train_jax(tmp_path):
    pytest.importorskip("jax.ffi", reason="JAX is not installed, or one before 0.5")
    told = run("train_jax.py", tmp_path)  # which fails unless it learns what lax learns
    kept = [float(line.split()[-2]) for line in told.splitlines() if line.endswith("KiB")]
    assert len(kept) == 2 and kept[0] > 10 * kept[1], told


def test_unet_split(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    told = run("unet_split.py", tmp_path, "--size", "16", "--dtype", "float64")  # which fails unless both steps agree to 1e-12
    assert "rank 1 of 2" in told
