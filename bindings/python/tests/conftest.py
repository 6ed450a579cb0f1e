"""Shared by the tests: random problems, and one line per thing that could not be tested here and why."""

from __future__ import annotations

import os
import random
from typing import Any, Dict, List, Tuple

import pytest

# For the tests of sharding; JAX reads it when it first looks for devices.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons: Dict[str, int] = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        terminalreporter.write_line(f"not tested here ({count}): {reason.replace('Skipped: ', '')}")


Window = Tuple[List[int], List[int], List[int], List[int], bool]


def random_window(rng: random.Random, rank: int) -> Tuple[List[int], Window]:
    """(spatial sizes, (kernel, stride, padding, dilation, ceil)) that torch takes: padding at most half the kernel, and every
    window with at least one tap inside the input (elsewhere torch's own index lies outside the plane)."""
    while True:
        kernel = [rng.randint(1, 4 if rank < 3 else 3) for _ in range(rank)]
        stride = [rng.randint(1, 4) for _ in range(rank)]
        padding = [rng.randint(0, k // 2) for k in kernel]
        dilation = [rng.choice([1, 1, 1, 2, 3]) for _ in range(rank)]
        spatial = [rng.randint(1, {1: 40, 2: 14, 3: 8}[rank]) for _ in range(rank)]
        ceil = rng.random() < 0.4
        axes = zip(spatial, kernel, stride, padding, dilation)
        if all(_axis_is_full(*axis, ceil) for axis in axes):
            return spatial, (kernel, stride, padding, dilation, ceil)


def _axis_is_full(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> bool:
    span = size + 2 * pad - (kernel - 1) * dilation - 1
    if span < 0:
        return False
    count = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (count - 1) * stride >= size + pad:
        count -= 1
    starts = (o * stride - pad for o in range(count))
    return all(any(0 <= start + t * dilation < size for t in range(kernel)) for start in starts)


@pytest.fixture
def rng(request: Any) -> random.Random:
    return random.Random(request.node.name)
