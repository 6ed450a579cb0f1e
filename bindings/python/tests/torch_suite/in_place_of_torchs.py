"""A pytest plugin: before PyTorch's own tests are read, its max pooling is poolgrad's; or, with POOLGRAD_SUITE=everywhere, all of its pooling
is, by poolgrad.torch.everywhere, averages included.

It also stands in for what the tests import and none that is run here uses (the package expecttest, and names that a later torch has no
more), and it holds the outcome against expected_failures.txt (expected_failures_everywhere.txt): a failure that is not listed there, and one
that is listed and did not happen, both fail the run.

Where the tests are of another version than torch, as other_torch.sh runs them, some fail without poolgrad, too. POOLGRAD_SUITE=plain exchanges
nothing and writes those that fail to the file POOLGRAD_SUITE_PLAIN; with everywhere, those of that file are expected as well, and none has to fail.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import types
import unittest
from pathlib import Path
from typing import Any, Dict, List

expecttest: Any = types.ModuleType("expecttest")
expecttest.TestCase, expecttest.ACCEPT = unittest.TestCase, False
sys.modules.setdefault("expecttest", expecttest)

import torch  # noqa: E402

import poolgrad.torch  # noqa: E402

SUITE = os.environ.get("POOLGRAD_SUITE", "")
EVERYWHERE, PLAIN = SUITE == "everywhere", SUITE == "plain"
PLAIN_FAILURES = os.environ.get("POOLGRAD_SUITE_PLAIN", "")
LIST = Path(__file__).with_name("expected_failures_everywhere.txt" if EVERYWHERE else "expected_failures.txt")


def _exchange() -> None:
    for rank in (1, 2, 3):
        for name in (f"max_pool{rank}d", f"MaxPool{rank}d"):
            ours = getattr(poolgrad.torch, name)
            for module in (torch, torch.nn, torch.nn.functional, torch.nn.modules, torch.nn.modules.pooling):
                if hasattr(module, name):
                    setattr(module, name, ours)


if EVERYWHERE:
    poolgrad.torch.everywhere(True, averages=True)
elif not PLAIN:
    _exchange()


def pytest_configure(config: Any) -> None:
    """Names of torch's test helpers that this torch has no more: decorators that change nothing, and flags that are off."""
    six: Any = types.ModuleType("torch._six")
    six.inf, six.nan = float("inf"), float("nan")
    if importlib.util.find_spec("torch._six") is None:
        sys.modules["torch._six"] = six
    for argument in config.args:
        if not argument.endswith(".py"):
            continue
        for node in ast.parse(Path(argument).read_text()).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.testing._internal"):
                module = importlib.import_module(node.module or "")
                for name in (alias.name for alias in node.names):
                    if not hasattr(module, name):
                        setattr(module, name, False if name.isupper() else lambda function: function)


def _expected() -> Dict[str, str]:
    """test: reason. Each reason is a line of its own, and the tests follow it."""
    found, reason = {}, ""
    without = Path(PLAIN_FAILURES).read_text() if PLAIN_FAILURES else ""
    for line in (LIST.read_text() + without).splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line.strip():
            found[line.strip()] = reason
    return found


_failed: List[str] = []
_passed: List[str] = []


def _name(nodeid: str) -> str:
    """Without its folder, and as the CPU's: the lists hold for CUDA, too."""
    file, *path = nodeid.replace("CUDA", "CPU").replace("_cuda", "_cpu").split("::")
    return "::".join((os.path.basename(file), *path))


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed:
        _failed.append(_name(report.nodeid))
    elif report.when == "call" and report.passed:
        _passed.append(_name(report.nodeid))


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    if PLAIN:
        Path(PLAIN_FAILURES).write_text("# torch's own fails, too.\n" + "".join(f"{name}\n" for name in _failed))
        print(f"\nPyTorch's own tests without poolgrad: {len(_passed)} passed, {len(_failed)} failed")
        return
    expected = _expected()
    told = [f"failed, and is not in {LIST.name}: {name}" for name in _failed if name not in expected]
    if not PLAIN_FAILURES:
        told += [f"passed, and is in {LIST.name}: {name}" for name in _passed if name in expected]
    for line in told:
        print(f"\n{line}", end="")
    print(f"\nPyTorch's own tests: {len(_passed)} passed, {len(set(_failed) & set(expected))} failed as expected, {len(told)} surprises")
    if exitstatus in (0, 1):
        session.exitstatus = 1 if told or not _passed else 0
