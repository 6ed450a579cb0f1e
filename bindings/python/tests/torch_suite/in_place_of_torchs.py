"""A pytest plugin: before PyTorch's own tests are read, its max pooling is poolgrad's; or, with POOLGRAD_SUITE=everywhere, all of its pooling
is, by poolgrad.torch.everywhere, averages included.

It also stands in for the package expecttest, which PyTorch's test helpers import and none of the tests run here uses, and it holds
the outcome against expected_failures.txt (expected_failures_everywhere.txt): a failure that is not listed there, and one that is listed and did not happen, both
fail the run.
"""

from __future__ import annotations

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

EVERYWHERE = os.environ.get("POOLGRAD_SUITE") == "everywhere"
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
else:
    _exchange()


def _expected() -> Dict[str, str]:
    """test: reason. Each reason is a line of its own, and the tests follow it."""
    found, reason = {}, ""
    for line in LIST.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line.strip():
            found[line.strip()] = reason
    return found


_failed: List[str] = []
_passed: List[str] = []


def _name(nodeid: str) -> str:
    file, *path = nodeid.split("::")
    return "::".join((os.path.basename(file), *path))


def pytest_runtest_logreport(report: Any) -> None:
    if report.failed:
        _failed.append(_name(report.nodeid))
    elif report.when == "call" and report.passed:
        _passed.append(_name(report.nodeid))


def pytest_sessionfinish(session: Any, exitstatus: int) -> None:
    expected = _expected()
    told = [f"failed, and is not in {LIST.name}: {name}" for name in _failed if name not in expected]
    told += [f"passed, and is in {LIST.name}: {name}" for name in _passed if name in expected]
    for line in told:
        print(f"\n{line}", end="")
    print(f"\nPyTorch's own tests: {len(_passed)} passed, {len(set(_failed) & set(expected))} failed as expected, {len(told)} surprises")
    if exitstatus in (0, 1):
        session.exitstatus = 1 if told or not _passed else 0
