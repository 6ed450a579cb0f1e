#!/usr/bin/env python3
"""Compares poolgrad with its peers on one GPU, in one run.

    bench/gpu/compare.py --library build/.../libpoolgrad.so [--json FILE] [--chart FILE.svg] [--table FILE.md] [--filter TEXT]

For every case, type, layout and operation: milliseconds a call (median of event-timed groups of calls on random data; inputs
larger than the cache and rotated among three sets), the fraction of the copy bandwidth measured in the same run (by the fewest bytes the
operation must move), the ratio to the best peer, and whether each peer repeats its bits (* after a time: it did not).
fwd: values. train: values and what backward needs. bwd: the gradient.

--random N --seed S: N windows drawn at random (draws.py) instead of the cases, against PyTorch eager unless --peers names
others; values are compared, and the report says how often we are behind and what fraction of copy is reached.

--adaptive: adaptive maxima and averages (adaptive.py) instead of the cases, against PyTorch eager, with the same report;
with --random N, of sizes drawn at random.
"""
import argparse
import ctypes
import datetime
import json
import math
import random
import statistics
import sys
import time

import torch

import adaptive
import chart
import draws
import peers as gpu_peers
import table

OPS = ("fwd", "train", "bwd")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# name: batch, channels, sizes, kernel, stride, padding
CASES = {
    "resnet_stem": (256, 64, (112, 112), 3, 2, 1),
    "vgg1": (64, 64, (224, 224), 2, 2, 0),
    "inception_s1": (256, 192, (28, 28), 3, 1, 1),
    "alexnet": (512, 96, (55, 55), 3, 2, 0),
    "sppf5": (64, 256, (40, 40), 5, 1, 2),
    "spp13": (64, 256, (40, 40), 13, 1, 6),
    "unet3d": (4, 32, (128, 128, 128), 2, 2, 0),
    "c3d_overlap": (8, 64, (16, 112, 112), 3, 2, 1),
    "global": (4096, 512, (7, 7), 7, 7, 0),
}
MAX_MS = 60  # measuring time for one operation of one library; a sixth of it for random windows
LAYOUTS = {(2, "first"): "nchw", (2, "last"): "nhwc", (3, "first"): "ncdhw", (3, "last"): "ndhwc"}


class Cell:
    """One case in one type and layout: its tensors, in `sets` copies."""

    sets = 3

    def __init__(self, name, case, dtype, layout):
        self.name, self.dtype, self.layout = name, dtype, layout
        batch, channels, sizes, kernel, stride, pad, *more = case
        self.rank = len(sizes)
        per_axis = lambda value: value if isinstance(value, list) else [value] * self.rank
        self.kernel, self.stride, self.pad = per_axis(kernel), per_axis(stride), per_axis(pad)
        self.dilation, self.ceil = (per_axis(more[0]), more[1]) if more else (per_axis(1), False)
        self.window = dict(
            kernel_size=self.kernel, stride=self.stride, padding=self.pad, dilation=self.dilation, ceil_mode=self.ceil
        )
        pool = gpu_peers.POOLS[self.rank]
        out = pool(torch.empty(1, 1, *sizes), **self.window).shape[2:]
        memory_format = torch.contiguous_format
        if layout == "last":
            memory_format = torch.channels_last if self.rank == 2 else torch.channels_last_3d
        make = lambda shape: torch.randn(batch, channels, *shape, device="cuda", dtype=TYPES[dtype]).contiguous(
            memory_format=memory_format
        )
        self.x = [make(sizes) for _ in range(self.sets)]
        self.dy = [make(out) for _ in range(self.sets)]
        shape = (batch, channels, *sizes) if layout == "first" else (batch, *sizes, channels)
        self.text = f"max {dtype} {LAYOUTS[self.rank, layout]} {'x'.join(map(str, shape))}"
        for letter, values in zip("kspd", (self.kernel, self.stride, self.pad, self.dilation)):
            self.text += f" {letter}{'x'.join(map(str, values))}"
        self.text += (" ceil" if self.ceil else "") + " torch cuda"

    def least_bytes(self, op, route_bytes):
        both = (self.x[0].numel() + self.dy[0].numel()) * self.x[0].element_size()
        return both + (0 if op == "fwd" else route_bytes)


class Problem(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_uint64)]
        + [(name, ctypes.c_int32) for name in (
            "kind dtype layout dialect rank padding rounding ties nan route_bits count_padding device device_index reserved"
        ).split()]
        + [(name, ctypes.c_int64) for name in ("divisor", "batch", "channels")]
        + [(name, ctypes.c_int64 * 3) for name in ("in_", "kernel", "stride", "dilation", "pad_lo", "pad_hi")]
        + [("relu", ctypes.c_int32), ("reserved2", ctypes.c_int32), ("outputs", ctypes.c_int64 * 3)]
        + [("starts", ctypes.c_void_p * 3), ("sizes", ctypes.c_void_p * 3)]
        + [(name, ctypes.c_int64 * 3) for name in ("whole_in", "whole_at", "whole_pad_lo", "whole_pad_hi")]
    )


class Info(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_uint64)]
        + [(name, ctypes.c_int64 * 3) for name in ("out", "pad_lo", "pad_hi")]
        + [(name, ctypes.c_int64) for name in ("x_elements", "y_elements", "x_bytes", "y_bytes", "taps")]
        + [("route_bits", ctypes.c_int32), ("route_masks", ctypes.c_int32), ("route_bytes", ctypes.c_int64)]
        + [(name, ctypes.c_int32) for name in ("may_have_no_route", "ties", "nan", "rounding")]
    )


class Exec(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint64), ("threads", ctypes.c_int32), ("reserved", ctypes.c_int32),
        ("parallel_for", ctypes.c_void_p), ("parallel_for_context", ctypes.c_void_p), ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_uint64), ("stream", ctypes.c_void_p),
    ]


class Poolgrad:
    name = "poolgrad"

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.poolgrad_last_error.restype = ctypes.c_char_p
        self.lib.poolgrad_plan_algorithm.restype = ctypes.c_char_p

    def call(self, function, *arguments):
        if getattr(self.lib, function)(*arguments) != 0:
            raise RuntimeError(f"{function}: {self.lib.poolgrad_last_error().decode()}")

    def __call__(self, cell):
        problem, plan = Problem(), ctypes.c_void_p()
        size = ctypes.c_size_t(ctypes.sizeof(Problem))
        self.call("poolgrad_problem_parse_sized", cell.text.encode(), ctypes.byref(problem), size)
        self.call("poolgrad_plan_create", ctypes.byref(problem), None, ctypes.byref(plan))
        info = Info(struct_size=ctypes.sizeof(Info))
        self.call("poolgrad_plan_info", plan, ctypes.byref(info))
        cell.route_bytes = info.route_bytes
        y, dx = torch.empty_like(cell.dy[0]), torch.empty_like(cell.x[0])
        routes = [torch.empty(info.route_bytes, dtype=torch.uint8, device="cuda") for _ in range(cell.sets)]
        stream = Exec(struct_size=ctypes.sizeof(Exec), stream=torch.cuda.current_stream().cuda_stream)
        pointer = lambda t: ctypes.c_void_p(t.data_ptr())

        def forward(s):
            self.call("poolgrad_forward", plan, pointer(cell.x[s]), pointer(y), None, ctypes.byref(stream))
            return y

        def train(s):
            self.call("poolgrad_forward", plan, pointer(cell.x[s]), pointer(y), pointer(routes[s]), ctypes.byref(stream))
            return y

        def backward(s):
            self.call(
                "poolgrad_backward", plan, pointer(cell.dy[s]), pointer(routes[s]), pointer(dx), ctypes.byref(stream)
            )
            return dx

        runs = {"fwd": forward, "train": train, "bwd": backward}
        if problem.kind != 0:  # averages keep no routes
            del runs["train"]
        for s in range(cell.sets if "train" in runs else 0):
            train(s)
        self.algorithms = {op: self.lib.poolgrad_plan_algorithm(plan, OPS.index(op)).decode() for op in runs}
        return runs


def event_time(run, sets):
    """Milliseconds a call: the median of enough groups of calls to fill MAX_MS, at least 3 and at most 20.

    A group is as many calls as take a millisecond, so that it is their work that is timed, and not the launching of the first."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def group(calls):
        start.record()
        for i in range(calls):
            run(i % sets)
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / calls

    group(1)
    first = group(1)
    calls = 1 if first >= 2 else max(4, min(64, math.ceil(1 / first)))
    repeats = max(3, min(20, int(MAX_MS / max(first * calls, 1e-3))))
    return statistics.median(group(calls) for _ in range(repeats))


def host_time(run, sets):
    """Milliseconds a call with many in flight, for peers without a CUDA stream of ours."""
    wait = lambda value: value.block_until_ready()

    def many(count):  # results are dropped at once, so that their memory is used again
        begin = time.perf_counter()
        for i in range(count):
            result = run(i % sets)
        wait(result)
        return (time.perf_counter() - begin) * 1e3

    torch.cuda.synchronize()
    many(sets)
    repeats = max(3, min(100, int(MAX_MS / max(many(3) / 3, 1e-3))))
    return statistics.median(many(repeats) / repeats for _ in range(3))


def repeats_bits(run, host_timed):
    first = run(0)
    if host_timed:
        return bool((first == run(0)).all())
    first = first.clone()
    return all(torch.equal(first, run(0)) for _ in range(2))


def copy_bandwidth():
    a = torch.empty(1 << 28, dtype=torch.float32, device="cuda").normal_()
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / event_time(lambda s: b.copy_(a), 1) * 1e3


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else float("nan")


def same_values(ours, peer, cell):
    """Whether two libraries' forward results are equal (ours writes into one buffer, so it is compared at once)."""
    a, b = ours(cell)["fwd"](0), peer(cell)["fwd"](0)
    # Adaptive averages are divided once by us, and by each axis in turn by PyTorch.
    return torch.allclose(a, b, rtol=0.02, atol=1e-3) if getattr(cell, "kind", "max") == "avg" else torch.equal(a, b)


def make_cell(options, name, case, dtype, layout):
    return adaptive.Cell(name, case, dtype, layout, TYPES[dtype], LAYOUTS) if options.adaptive else Cell(name, case, dtype, layout)


def chosen(options, cases):
    """The cells to measure: name, case, type and layout."""
    for name, case in cases.items():
        for dtype in options.types.split(","):
            for layout in ("first", "last"):
                if options.filter in f"{name} {dtype} {layout}":
                    yield name, case, dtype, layout


def measure(ours, peers, options, bandwidth, rows, cases):
    """Appends to rows, cell by cell; yields after each."""
    for name, case, dtype, layout in chosen(options, cases):
        cell = make_cell(options, name, case, dtype, layout)
        times = {op: {} for op in OPS}
        for peer in [ours] + peers:
            host_timed = getattr(peer, "host_timed", False)
            try:
                for op, run in peer(cell).items():
                    ms = (host_time if host_timed else event_time)(run, cell.sets)
                    times[op][peer.name] = (ms, repeats_bits(run, host_timed))
            except Exception as reason:  # a peer that fails one cell stays in for the others
                print(f"{peer.name} cannot do {name} {dtype} {layout}: {str(reason).splitlines()[0]}", file=sys.stderr)
        eager = adaptive.Eager() if options.adaptive else gpu_peers.Eager()
        if (options.random or options.adaptive) and not same_values(ours, eager, cell):
            print(f"DIFFERENT VALUES: {cell.text}", flush=True)
        for op in OPS:
            if ours.name in times[op]:
                rows.append(row_of(cell, op, times[op], ours, bandwidth))
                print(line_of(rows[-1]), flush=True)
        del cell
        torch.cuda.empty_cache()
        yield


def row_of(cell, op, times, ours, bandwidth):
    least = cell.least_bytes(op, cell.route_bytes)
    ms, repeats = times[ours.name]
    others = {name: value for name, value in times.items() if name != ours.name}
    best = min(others, key=lambda name: others[name][0]) if others else None
    return {
        "case": cell.name, "text": cell.text, "taps": math.prod(cell.kernel), "dtype": cell.dtype, "layout": cell.layout, "op": op,
        "algorithm": ours.algorithms[op],
        "ms": ms, "fraction": least / ms * 1e3 / bandwidth, "repeats": repeats, "best_peer": best,
        "ratio": others[best][0] / ms if best else None,
        "peers": {name: {"ms": v[0], "fraction": least / v[0] * 1e3 / bandwidth, "repeats": v[1]} for name, v in others.items()},
    }


def line_of(row):
    peers = ", ".join(f"{name} {p['ms']:.3f}{'' if p['repeats'] else '*'}" for name, p in sorted(row["peers"].items(), key=lambda i: i[1]["ms"]))
    ratio = f"{row['ratio']:5.2f}x" if row["ratio"] else "    - "
    mark = "" if row["repeats"] else "*"
    return f"{row['case']:<14} {row['dtype']:<4} {row['layout']:<5} {row['op']:<5} {row['ms']:7.3f}{mark} {row['fraction']:.2f} {ratio} {row['algorithm']} | {peers}"


def report_refusals(peers):
    for peer in peers:
        for reason, count in sorted(getattr(peer, "refused", {}).items()):
            print(f"{peer.name} refuses {count} cells, {reason}")


def save(options, machine, rows):
    for path, text in (
        (options.json, lambda: json.dumps({"machine": machine, "cells": rows}, indent=1)),
        (options.chart, lambda: chart.draw(machine, rows)),
        (options.table, lambda: table.draw(machine, rows)),
    ):
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libpoolgrad.so, built with CUDA")
    parser.add_argument("--types", default="f32,bf16", help="of f32, bf16, f16 (default %(default)s)")
    parser.add_argument("--filter", default="", help="only cells whose 'case type layout' has this in it")
    parser.add_argument("--inductor-seconds", type=float, default=60, help="compiling time to spend on inductor in all")
    parser.add_argument("--inductor-workers", type=int, default=12, help="processes that compile for it beforehand")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N windows drawn at random instead of the cases")
    parser.add_argument("--adaptive", action="store_true", help="adaptive pooling instead of the cases")
    parser.add_argument("--seed", type=int, default=1, help="of the draws (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=1e9, help="measure no further cell after so long")
    parser.add_argument("--peers", default="", help="only these, e.g. torch,jax (default: all; torch for random windows)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--chart", metavar="FILE.svg")
    parser.add_argument("--table", metavar="FILE.md")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        return 77
    bandwidth = copy_bandwidth()
    wanted = (options.peers or ("torch" if options.random else "")).split(",")
    peers, missing = gpu_peers.available(options.inductor_seconds, wanted if wanted != [""] else None)
    cases = CASES
    global MAX_MS
    if options.random or options.adaptive:
        MAX_MS /= 6
    if options.adaptive:
        peers, missing = [adaptive.Eager()], []
        cases = {**adaptive.cases("max"), **adaptive.cases("avg")}
    if options.random:
        source = random.Random(options.seed)
        draw = adaptive.draw if options.adaptive else draws.draw
        cases = {f"draw{i}": draw(source, 24 << 20) for i in range(options.random)}
    machine = {
        "gpu": torch.cuda.get_device_name(), "copy_GBps": bandwidth / 1e9, "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "date": datetime.date.today().isoformat(), "missing_peers": missing,
    }
    print(json.dumps(machine))
    if any(peer.name == "inductor" for peer in peers):
        gpu_peers.compile_ahead(Cell, list(chosen(options, cases)), options.inductor_workers)
    rows = []
    begin = time.perf_counter()
    for _ in measure(Poolgrad(options.library), peers, options, bandwidth, rows, cases):
        save(options, machine, rows)  # each time, so that a run cut short leaves what it had
        if time.perf_counter() - begin > options.seconds:
            break
    if options.random or options.adaptive:
        for peer in peers:
            print("\n".join(draws.against(rows, [peer.name])))
        if len(peers) > 2:
            print("\n".join(draws.against(rows, [peer.name for peer in peers if peer.name != "torch"])))
        print("\n".join(draws.fractions(rows)))
        report_refusals(peers)
        return 0
    for op in OPS:
        ratios = [r["ratio"] for r in rows if r["op"] == op and r["ratio"]]
        if ratios:
            print(f"{op}: geometric mean {geometric_mean(ratios):.2f}x the best peer, least {min(ratios):.2f}x, of {len(ratios)} cells")
    report_refusals(peers)
    for name in ["poolgrad"] + [peer.name for peer in peers]:
        repeats = [r["repeats"] if name == "poolgrad" else r["peers"][name]["repeats"] for r in rows if name in ("poolgrad", *r["peers"])]
        if repeats:
            print(f"{name}: the same bits from run to run in {sum(repeats)} of {len(repeats)} cells")
    return 0


if __name__ == "__main__":
    sys.exit(main())
