"""Call overhead on a tiny tensor: NumPy with and without a Plan, torch forward+backward beside torch's own, in one run."""

from __future__ import annotations

import statistics
import timeit
from typing import Any, Callable

import numpy as np

import poolgrad


def micros(call: Callable[[], Any], number: int = 5000, repeat: int = 7) -> float:
    call()
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number * 1e6


def line(name: str, value: float, limit: str = "") -> None:
    print(f"{name:<44}{value:8.2f} us   {limit}")


def numpy_overhead() -> None:
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 4)).astype(np.float32)
    plan = poolgrad.Plan(x.shape, 2)
    y, routes = plan.forward_routes(x)
    dx = np.empty_like(x)
    line("NumPy, Plan.forward(x, out)", micros(lambda: plan.forward(x, y)), "limit 5")
    line("NumPy, Plan.forward_routes(x)", micros(lambda: plan.forward_routes(x)), "limit 5")
    line("NumPy, Plan.backward(dy, routes, out)", micros(lambda: plan.backward(y, routes, dx)), "limit 5")
    line("NumPy, max_pool(x, 2)", micros(lambda: poolgrad.max_pool(x, 2)), "limit 15")
    line("NumPy, max_pool_grad(dy, routes)", micros(lambda: poolgrad.max_pool_grad(y, routes)), "limit 15")


def torch_overhead(device: str) -> None:
    import torch
    import torch.nn.functional as F

    import poolgrad.torch

    x = torch.randn(1, 4, 4, 4, device=device, requires_grad=True)
    dy = torch.ones(1, 4, 2, 2, device=device)

    def both(pool: Any) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(pool(x, 2), x, dy)

    theirs, ours = both(F.max_pool2d), both(poolgrad.torch.max_pool2d)
    pairs = []
    for _ in range(80):  # short turns, side by side: the machine's mood is the same for both
        pairs.append((timeit.timeit(theirs, number=100) * 1e4, timeit.timeit(ours, number=100) * 1e4))
        if device == "cuda":
            torch.cuda.synchronize()
    pairs = pairs[5:]
    ratio = statistics.median(b / a for a, b in pairs)
    line(f"torch {torch.__version__} {device}, its own fwd+bwd", statistics.median(a for a, _ in pairs))
    line(
        f"torch {torch.__version__} {device}, poolgrad fwd+bwd", statistics.median(b for _, b in pairs),
        f"{ratio:.2f} of torch's, limit 1.5",
    )  # fmt: skip


def main() -> None:
    numpy_overhead()
    try:
        import torch
    except ImportError:
        print("torch is not installed: its overhead is not measured")
        return
    torch.set_num_threads(1)
    torch_overhead("cpu")
    if torch.cuda.is_available() and poolgrad.has_cuda():
        torch_overhead("cuda")


if __name__ == "__main__":
    main()
