"""poolgrad: max pooling and its gradient, exact to the bit, with the smallest saved memory.

NumPy functions are here; `import poolgrad.torch` and `import poolgrad.jax` bring the other faces.

>>> import numpy as np, poolgrad
>>> y, routes = poolgrad.max_pool(np.random.rand(1, 3, 8, 8), 2, return_routes=True)
>>> dx = poolgrad.max_pool_grad(np.ones_like(y), routes)
"""

from ._core import has_cuda, simd_target, version
from ._numpy import (
    adaptive_avg_pool,
    adaptive_avg_pool_grad,
    adaptive_max_pool,
    avg_pool,
    avg_pool_grad,
    jacobian,
    jvp,
    max_pool,
    max_pool_bias_grad,
    max_pool_grad,
    unpool,
    vjp,
)
from ._plan import Plan, Routes

__version__ = "1.0.0"
__all__ = [
    "Plan",
    "Routes",
    "adaptive_avg_pool",
    "adaptive_avg_pool_grad",
    "adaptive_max_pool",
    "avg_pool",
    "avg_pool_grad",
    "has_cuda",
    "jacobian",
    "jvp",
    "max_pool",
    "max_pool_bias_grad",
    "max_pool_grad",
    "simd_target",
    "unpool",
    "version",
    "vjp",
]
