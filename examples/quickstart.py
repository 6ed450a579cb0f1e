"""poolgrad with NumPy in a few lines: pool, keep routes, go backward, look at the Jacobian.

    pip install dist/poolgrad-*.whl && python examples/quickstart.py
"""

import numpy as np

import poolgrad

x = np.array([[1, 3, 2, 0], [4, 6, 5, 1], [7, 2, 8, 8], [0, 1, 8, 3]], np.float32).reshape(1, 1, 4, 4)
print("x\n", x[0, 0])

# Forward. Routes say which tap won each window; they are all that backward needs, and they are small.
y, routes = poolgrad.max_pool(x, kernel=2, return_routes=True)
print("y = max of every 2x2 window\n", y[0, 0])
print(f"kept for backward: {routes.nbytes} bytes (x is {x.nbytes}, PyTorch's indices would be {8 * y.size})")

# Backward: dy goes to the winners. Of the three 8s of the last window the first gets it...
dy = np.ones_like(y)
print("dx\n", poolgrad.max_pool_grad(dy, routes)[0, 0])

# ... or they share it.
_, shared = poolgrad.max_pool(x, 2, ties="split", return_routes=True)
print("dx, ties split\n", poolgrad.max_pool_grad(dy, shared)[0, 0].round(3))

# Forward mode is a gather by the same routes, and unpool puts y back where it came from.
_, ty = poolgrad.jvp(x, 10 * x, 2)
print("ty for tx = 10 x\n", ty[0, 0])
print("unpool(y)\n", poolgrad.unpool(y, routes)[0, 0])

# The numbering of a framework, on demand; and its rules, by name.
print("torch's indices", routes.indices("torch").ravel(), "tensorflow's", routes.indices("tensorflow").ravel())
print("TensorFlow's SAME:", poolgrad.max_pool(x, 3, 2, "same", dialect="tensorflow").shape)

# The Jacobian itself: a selection matrix, one 1 per row.
print("Jacobian\n", poolgrad.jacobian(x[:, :, :2], 2))

# For repeated use make a plan once and give it the outputs; it also explains its choices.
plan = poolgrad.Plan((8, 64, 56, 56), kernel=3, stride=2, padding=1)
out = np.empty(plan.y_shape, np.float32)
plan.forward(np.random.default_rng(0).standard_normal(plan.x_shape).astype(np.float32), out=out)
print(plan.explain())
