"""Trains a small CNN in JAX twice, with lax.reduce_window and with poolgrad.jax.max_pool; compares time and memory.

The images, a bar or a pole in noise, are drawn on the spot. What is kept for backward is counted in what jax.vjp holds on to.

    pip install dist/poolgrad-*.whl && python examples/train_jax.py
"""

from __future__ import annotations

import math
import sys
import time
from functools import partial
from typing import Any, Callable, Dict, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import poolgrad.jax

Pool = Callable[[jax.Array], jax.Array]


def stock(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def ours(x: jax.Array) -> jax.Array:
    return poolgrad.jax.max_pool(x, (3, 3), (2, 2), "SAME")


def draw(count: int) -> Tuple[np.ndarray, np.ndarray]:
    """Images of 24x24x1 with a bar (0) or a pole (1) somewhere in noise."""
    random = np.random.default_rng(0)
    x = 0.25 * random.standard_normal((count, 24, 24, 1), np.float32)
    y = random.integers(0, 2, count)
    for image, kind, (row, column) in zip(x, y, random.integers(0, 16, (count, 2))):
        image[(row, slice(column, column + 8)) if kind == 0 else (slice(row, row + 8), column)] += 1
    return x, y


def loss(pool: Pool, weights: Dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    for layer in ("first", "second"):
        x = lax.conv_general_dilated(x, weights[layer], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = pool(jax.nn.relu(x))
    logits = x.mean((1, 2)) @ weights["last"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


def train(pool: Pool, steps: int = 120, batch: int = 64) -> Dict[str, Any]:
    x, y = draw(steps * batch)
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = {"first": (3, 3, 1, 16), "second": (3, 3, 16, 32), "last": (32, 2)}
    weights = {name: jax.random.normal(key, shape) * (2 / math.prod(shape[:-1])) ** 0.5 for key, (name, shape) in zip(keys, shapes.items())}
    step = jax.jit(jax.value_and_grad(partial(loss, pool)))
    step(weights, x[:batch], y[:batch])  # compiles
    losses, start = [], time.perf_counter()
    for i in range(0, len(x), batch):
        value, gradient = step(weights, x[i : i + batch], y[i : i + batch])
        weights = {name: weights[name] - 0.15 * gradient[name] for name in weights}
        losses.append(float(value))
    seconds = time.perf_counter() - start
    _, pullback = jax.vjp(pool, jnp.zeros((batch, 24, 24, 16)))
    kept = sum(leaf.nbytes for leaf in jax.tree_util.tree_leaves(pullback))
    return {"losses": losses, "seconds": seconds, "kept": kept}


if __name__ == "__main__":
    runs = {"lax": train(stock), "poolgrad": train(ours)}
    for name, run in runs.items():
        first, last = np.mean(run["losses"][:5]), np.mean(run["losses"][-5:])
        print(f"{name:<10} loss {first:.3f} -> {last:.3f}  {run['seconds']:5.2f} s  kept by the first pool {run['kept'] / 1024:7.1f} KiB")
    apart = np.max(np.abs(np.subtract(runs["lax"]["losses"], runs["poolgrad"]["losses"])[:10]))
    print(f"the first ten losses are at most {apart:.1e} apart")  # sums may be rounded in another order
    sys.exit(0 if apart < 1e-3 and last < 0.8 * first else 1)
