"""cuDNN's graph API as a peer: resample operations of mode maxpool, with the index tensor where a gradient is wanted.

The numbers are those of cudnn_graph.h, version 9. A window that no engine takes is refused with cuDNN's status.
"""
import ctypes

import torch

# Kinds of descriptors, types of attributes, and attributes.
ENGINEHEUR, ENGINECFG, PLAN, GRAPH, PACK, TENSOR, RESAMPLE, FORWARD, BACKWARD = 4, 3, 5, 15, 16, 17, 24, 25, 26
HANDLE, DATA_TYPE, BOOLEAN, INT64, DOUBLE, POINTER, HEUR_MODE, NAN, DESCRIPTOR = 0, 1, 2, 3, 5, 6, 8, 10, 15
RESAMPLE_MODE, PADDING_MODE, FRACTION = 21, 22, 26
TYPES = {torch.float32: 0, torch.float16: 2, torch.int8: 3, torch.bfloat16: 9}
MAXPOOL, NEG_INF_PAD, PROPAGATE = 3, 1, 1
C_TYPES = {INT64: ctypes.c_int64, DOUBLE: ctypes.c_double, BOOLEAN: ctypes.c_bool, FRACTION: ctypes.c_int64}


class Graph:
    """One operation with the plan of the first engine that takes it."""

    def __init__(self, lib, handle):
        self.lib, self.handle = lib, handle

    def call(self, function, *arguments):
        status = getattr(self.lib, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} returned {status}")

    def make(self, kind, *attributes):
        """A finished descriptor; attributes: name, type, value or values."""
        made = ctypes.c_void_p()
        self.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
        for name, type_, values in attributes:
            values = values if isinstance(values, (list, tuple)) else [values]
            count = len(values)
            if type_ == FRACTION:  # each with its denominator
                values = [part for value in values for part in (value, 1)]
            if type_ in (HANDLE, POINTER, DESCRIPTOR):
                values = [getattr(value, "value", value) for value in values]
            c_type = ctypes.c_void_p if type_ in (HANDLE, POINTER, DESCRIPTOR) else C_TYPES.get(type_, ctypes.c_int)
            array = (c_type * len(values))(*values)
            self.call("cudnnBackendSetAttribute", made, name, type_, ctypes.c_int64(count), array)
        self.call("cudnnBackendFinalize", made)
        return made

    def tensor(self, number, t):
        return self.make(
            TENSOR, (901, DATA_TYPE, TYPES[t.dtype]), (902, INT64, list(t.shape)), (903, INT64, list(t.stride())),
            (900, INT64, 16), (906, INT64, number),
        )

    def plan(self, operation):
        graph = self.make(GRAPH, (800, HANDLE, self.handle), (801, DESCRIPTOR, operation))
        reason = RuntimeError("no engine takes it")
        for mode in (3, 2):  # the first guess, then what is always tried
            try:
                heuristics = self.make(ENGINEHEUR, (201, DESCRIPTOR, graph), (200, HEUR_MODE, mode))
            except RuntimeError as refused:
                reason = refused
                continue
            configs = (ctypes.c_void_p * 8)()
            for i in range(8):
                config = ctypes.c_void_p()
                self.call("cudnnBackendCreateDescriptor", ENGINECFG, ctypes.byref(config))
                configs[i] = config
            found = ctypes.c_int64()
            self.call(
                "cudnnBackendGetAttribute", heuristics, 202, DESCRIPTOR, ctypes.c_int64(8), ctypes.byref(found), configs
            )
            for i in range(found.value):
                try:
                    return self.make(PLAN, (400, HANDLE, self.handle), (401, DESCRIPTOR, configs[i]))
                except RuntimeError as refused:
                    reason = refused
        raise reason

    def runner(self, plan, sets):
        """run(s) for each set: {number: tensor}."""
        size, count = ctypes.c_int64(), ctypes.c_int64()
        self.call("cudnnBackendGetAttribute", plan, 402, INT64, ctypes.c_int64(1), ctypes.byref(count), ctypes.byref(size))
        work = torch.empty(max(size.value, 16), dtype=torch.uint8, device="cuda")
        packs = [
            self.make(
                PACK, (1000, INT64, list(tensors)), (1001, POINTER, [t.data_ptr() for t in tensors.values()]),
                (1003, POINTER, work.data_ptr()),
            )
            for tensors in sets
        ]

        def run(s, keep=(work, sets)):  # what packs point to
            self.call("cudnnBackendExecute", self.handle, plan, packs[s])

        return run


def operations(lib, handle, cell):
    """{op: run} of those that cuDNN takes, and why it refuses the others."""
    graph = Graph(lib, handle)
    resample = graph.make(
        RESAMPLE, (1700, RESAMPLE_MODE, MAXPOOL), (1701, DATA_TYPE, TYPES[torch.float32]), (1702, INT64, cell.rank),
        (1707, NAN, PROPAGATE), (1708, PADDING_MODE, NEG_INF_PAD), (1704, FRACTION, cell.pad),
        (1703, FRACTION, cell.pad), (1705, FRACTION, cell.stride), (1706, FRACTION, cell.kernel),
    )
    y, dx = torch.empty_like(cell.dy[0]), torch.empty_like(cell.x[0])
    index = [torch.empty_like(cell.dy[0], dtype=torch.int8) for _ in range(cell.sets)]
    x_, y_, i_ = graph.tensor(1, cell.x[0]), graph.tensor(2, y), graph.tensor(3, index[0])
    forward = [(1716, DESCRIPTOR, resample), (1710, DESCRIPTOR, x_), (1711, DESCRIPTOR, y_)]
    scale = lambda alpha, beta: [(alpha, DOUBLE, 1.0), (beta, DOUBLE, 0.0)]
    runs, refused = {}, {}

    def add(op, kind, attributes, sets, result):
        try:
            run = graph.runner(graph.plan(graph.make(kind, *attributes)), sets)
            run(0)
        except RuntimeError as reason:
            refused[op] = str(reason)
            return
        runs[op] = lambda s: run(s) or result

    rotated = range(cell.sets)
    add("fwd", FORWARD, forward + scale(1713, 1714), [{1: cell.x[s], 2: y} for s in rotated], y)
    with_index = forward + [(1712, DESCRIPTOR, i_)] + scale(1713, 1714)
    add("train", FORWARD, with_index, [{1: cell.x[s], 2: y, 3: index[s]} for s in rotated], y)
    if "train" not in runs:
        refused["bwd"] = "it makes no index"
        return runs, refused
    if cell.layout == "last" and cell.x[0].dtype != torch.float32:
        refused["bwd"] = "not asked: in halves it reads out of range (seen with cuDNN 9.19), which ends the process"
        return runs, refused
    for s in rotated:
        runs["train"](s)
    backward = [(1725, DESCRIPTOR, resample), (1720, DESCRIPTOR, x_), (1721, DESCRIPTOR, y_), (1722, DESCRIPTOR, i_)]
    add("bwd", BACKWARD, backward + scale(1723, 1724), [{1: dx, 2: cell.dy[s], 3: index[s]} for s in rotated], dx)
    return runs, refused
