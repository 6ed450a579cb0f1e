"""The worked example of docs/derivation.md by an installed package: prints its version and place, fails when it is wrong."""

import importlib.metadata

import numpy as np

import poolgrad

x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
y, routes = poolgrad.max_pool(x, 2, stride=1, return_routes=True)
dx = poolgrad.max_pool_grad(np.array([1, 10, 100, 1000], np.float32).reshape(y.shape), routes)
assert y.ravel().tolist() == [5, 6, 8, 9], y
assert dx.ravel().tolist() == [0, 0, 0, 0, 1, 10, 0, 100, 1000], dx
assert importlib.metadata.version("poolgrad").split("+")[0] == poolgrad.__version__ == poolgrad.version()
print(f"poolgrad {poolgrad.version()} ({poolgrad.simd_target()}) in {poolgrad.__path__[0]}")
