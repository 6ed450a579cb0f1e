"""The GPU peers, each as functions of one cell: PyTorch eager, inductor, cuDNN's legacy pooling, its graph API and JAX.

A peer's factory takes a Cell and returns {op: run}, where run(set) works on the cell's buffers of that set and returns
the result tensor (for the check that its bits repeat). A peer that cannot do a cell leaves the operation out.
"""
import collections
import ctypes
import multiprocessing
import os
import pathlib
import time

import torch
import torch.nn.functional as F

import cudnn_graph

POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


class Eager:
    name = "torch"

    def __call__(self, cell):
        pool = POOLS[cell.rank]
        window = cell.window
        indices = [pool(cell.x[s], return_indices=True, **window)[1] for s in range(cell.sets)]
        return {
            "fwd": lambda s: pool(cell.x[s], **window),
            "train": lambda s: pool(cell.x[s], return_indices=True, **window)[0],
            "bwd": lambda s: self.backward(cell, s, indices[s]),
        }

    @staticmethod
    def backward(cell, s, index):
        ops = {2: torch.ops.aten.max_pool2d_with_indices_backward, 3: torch.ops.aten.max_pool3d_with_indices_backward}
        return ops[cell.rank](
            cell.dy[s], cell.x[s], cell.kernel, cell.stride, cell.pad, cell.dilation, cell.ceil, index
        )


class Inductor:
    """Compiling takes seconds a cell, so a budget of them stops it."""

    name = "inductor"

    def __init__(self, seconds):
        self.left = seconds

    def __call__(self, cell):
        if self.left <= 0:
            return {}
        begin = time.perf_counter()
        torch._dynamo.reset()
        pool = POOLS[cell.rank]
        window = cell.window
        forward = torch.compile(lambda x: pool(x, **window), dynamic=False)
        train = torch.compile(lambda x: pool(x, return_indices=True, **window), dynamic=False)
        indices = [train(cell.x[s])[1] for s in range(cell.sets)]
        ops = {2: torch.ops.aten.max_pool2d_with_indices_backward, 3: torch.ops.aten.max_pool3d_with_indices_backward}
        backward = torch.compile(
            lambda dy, x, i: ops[cell.rank](dy, x, cell.kernel, cell.stride, cell.pad, cell.dilation, cell.ceil, i),
            dynamic=False,
        )
        forward(cell.x[0])
        backward(cell.dy[0], cell.x[0], indices[0])
        torch.cuda.synchronize()
        self.left -= time.perf_counter() - begin
        return {
            "fwd": lambda s: forward(cell.x[s]),
            "train": lambda s: train(cell.x[s])[0],
            "bwd": lambda s: backward(cell.dy[s], cell.x[s], indices[s]),
        }


def compile_ahead(make, cells, workers):
    """Fills inductor's cache with the kernels of cells, by processes side by side; make(*cell) gives the Cell."""
    if not cells or workers < 2:
        return
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=compile_some, args=(make, cells[i::workers])) for i in range(min(workers, len(cells)))
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def compile_some(make, cells):
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    inductor = Inductor(float("inf"))
    for cell in cells:
        try:
            inductor(make(*cell))
        except Exception as reason:  # the measuring process says so again
            print(f"inductor cannot compile {cell[0]}: {str(reason).splitlines()[0]}")


class Cudnn:
    MODES = {"cudnn": 0, "cudnn_det": 3}  # CUDNN_POOLING_MAX, CUDNN_POOLING_MAX_DETERMINISTIC
    TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 9}

    def __init__(self, name):
        self.name = name
        torch.backends.cudnn.version()
        self.lib = ctypes.CDLL(self.find())
        self.handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(self.handle))
        self.call("cudnnSetStream", self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    @staticmethod
    def find():
        root = pathlib.Path(torch.__file__).resolve().parent.parent
        found = sorted(root.glob("nvidia/cudnn/lib/libcudnn.so.*")) + sorted(root.glob("nvidia/*/lib/libcudnn.so.*"))
        return str(found[0]) if found else "libcudnn.so.9"

    def call(self, function, *arguments):
        status = getattr(self.lib, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} returned {status}")

    def tensor(self, t):
        descriptor = ctypes.c_void_p()
        self.call("cudnnCreateTensorDescriptor", ctypes.byref(descriptor))
        ints = ctypes.c_int * t.dim()
        self.call("cudnnSetTensorNdDescriptor", descriptor, self.TYPES[t.dtype], t.dim(), ints(*t.shape), ints(*t.stride()))
        return descriptor

    def __call__(self, cell):
        if cell.ceil or any(d != 1 for d in cell.dilation):
            return {}  # it has neither
        pooling = ctypes.c_void_p()
        self.call("cudnnCreatePoolingDescriptor", ctypes.byref(pooling))
        ints = ctypes.c_int * cell.rank
        self.call(
            "cudnnSetPoolingNdDescriptor", pooling, self.MODES[self.name], 1, cell.rank,
            ints(*cell.kernel), ints(*cell.pad), ints(*cell.stride),
        )
        x, y = self.tensor(cell.x[0]), self.tensor(cell.dy[0])
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        out = torch.empty_like(cell.dy[0])
        dx = torch.empty_like(cell.x[0])
        pointer = lambda t: ctypes.c_void_p(t.data_ptr())

        def forward(s, into=out):
            self.call("cudnnPoolingForward", self.handle, pooling, one, x, pointer(cell.x[s]), zero, y, pointer(into))
            return into

        outs = [forward(s, torch.empty_like(out)) for s in range(cell.sets)]

        def backward(s):
            self.call(
                "cudnnPoolingBackward", self.handle, pooling, one, y, pointer(outs[s]), y, pointer(cell.dy[s]), x,
                pointer(cell.x[s]), zero, x, pointer(dx),
            )
            return dx

        return {"fwd": forward, "bwd": backward} if self.name == "cudnn" else {"bwd": backward}


class CudnnGraph(Cudnn):
    """The newer way, which keeps an index; `refused` counts what no engine takes, by operation and reason."""

    def __init__(self):
        super().__init__("cudnn_graph")
        self.refused = collections.Counter()

    def __call__(self, cell):
        if cell.ceil or any(d != 1 for d in cell.dilation):
            self.refused["any: it has neither ceil nor dilation"] += 1
            return {}
        runs, refused = cudnn_graph.operations(self.lib, self.handle, cell)
        self.refused.update(f"{op}: {reason}" for op, reason in refused.items())
        return runs


class Jax:
    """Channels last only: JAX has no other layout for windows. Timed from the host over many calls in flight."""

    name = "jax"
    host_timed = True

    def __init__(self):
        # Its memory is taken at once: growing it bit by bit calls cudaMalloc, which costs more than the pooling.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.25")
        import jax

        self.jax = jax
        if jax.default_backend() != "gpu":
            raise RuntimeError("JAX sees no GPU")

    def __call__(self, cell):
        if cell.layout != "last" or cell.ceil:
            return {}
        jax, lax = self.jax, self.jax.lax
        window = (1, *cell.kernel, 1)
        strides = (1, *cell.stride, 1)
        pads = ((0, 0), *((p, p) for p in cell.pad), (0, 0))
        spatial = list(range(2, 2 + cell.rank))
        device = jax.devices("gpu")[0]

        def convert(t):  # a copy in JAX's own memory
            shared = jax.dlpack.from_dlpack(t.permute(0, *spatial, 1).contiguous())
            return jax.device_put(jax.numpy.array(shared, copy=True), device).block_until_ready()

        x = [convert(t) for t in cell.x]
        dy = [convert(t) for t in cell.dy]
        # A Python number as the start: with an array JAX would not see a maximum, and would not know its gradient.
        pool = lambda a: lax.reduce_window(
            a, float("-inf"), lax.max, window, strides, pads, window_dilation=(1, *cell.dilation, 1)
        )
        torch.cuda.synchronize()
        forward = jax.jit(pool)
        backward = jax.jit(lambda a, g: jax.vjp(pool, a)[1](g)[0])
        return {"fwd": lambda s: forward(x[s]), "bwd": lambda s: backward(x[s], dy[s])}


def available(inductor_seconds, names=None):
    """The peers that can be imported here (of `names`, if given), and why the others cannot."""
    makers = {
        "torch": Eager, "inductor": lambda: Inductor(inductor_seconds), "cudnn": lambda: Cudnn("cudnn"),
        "cudnn_det": lambda: Cudnn("cudnn_det"), "cudnn_graph": CudnnGraph, "jax": Jax,
    }
    peers, missing = [], []
    for name, make in makers.items():
        if names and name not in names:
            continue
        try:
            peers.append(make())
        except Exception as reason:  # whatever a missing or broken peer raises, the others go on
            missing.append(str(reason).splitlines()[0])
    return peers, missing
