"""PyTorch on the CPU, answering the questions described in cell.h.

Argument 1 is the variant: `torch` allocates its output in the timed call, as users do; `torch_out` writes into tensors
that exist; `torch_amax` reduces over space, for windows that cover the plane. Results are held as long as inputs are, so
that those allocated take turns in memory like all other buffers: dropped at once, the next call would be handed the same
memory and find it in cache. Channels last is PyTorch's own memory format; signals, which have none, are pooled as images
one pixel high.
"""
import sys
import time

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SHORTEST_SAMPLE = 20e-6
FEWEST_SAMPLES = 5
PATIENCE = 8
RANDOM = torch.rand((1 << 20) + 7) * 2 - 1


def measure(seconds, sets, run):
    """The rule of cli/timing.h: median milliseconds, and the middle half's width over the median. `run(i)` works on set i."""
    held = [None] * sets

    def call(index):
        held[index % sets] = run(index % sets)

    for index in range(sets):
        call(index)
    start = time.perf_counter()
    call(1)
    repeats = int(SHORTEST_SAMPLE / max(time.perf_counter() - start, 1e-9)) + 1
    index, samples, begin, elapsed = 2, [], time.perf_counter(), 0.0
    while elapsed < seconds or (len(samples) < FEWEST_SAMPLES and elapsed < PATIENCE * seconds):
        start = time.perf_counter()
        for _ in range(repeats):
            call(index)
            index += 1
        end = time.perf_counter()
        samples.append((end - start) / repeats)
        elapsed = end - begin
    samples.sort()
    quarter = [samples[int(q * (len(samples) - 1) + 0.5)] for q in (0.25, 0.5, 0.75)]
    return quarter[1] * 1e3, (quarter[2] - quarter[0]) / quarter[1]


class Cell:
    def __init__(self, line):
        words = line.split()
        self.op, self.dtype, self.layout = words[0], DTYPES[words[1]], words[2]
        self.threads, self.seconds, self.sets = int(words[3]), float(words[4]), int(words[5])
        self.batch, self.channels, self.rank = (int(w) for w in words[6:9])
        numbers = [int(w) for w in words[9:]]
        axes = [numbers[i : i + 7] for i in (0, 7, 14)]
        # PyTorch has no channels last for signals; as images of height 1 they have.
        self.signal = self.rank == 1
        self.rank = max(self.rank, 2)
        self.axes = axes[3 - self.rank :]
        self.inputs, self.outputs, self.kernel, self.stride, self.padding, pad_hi, self.dilation = (
            list(c) for c in zip(*self.axes)
        )
        floor = [
            (i + 2 * p - (k - 1) * d - 1) // s + 1
            for i, k, s, p, d in zip(self.inputs, self.kernel, self.stride, self.padding, self.dilation)
        ]
        self.ceil = floor != self.outputs

    def tensor(self, spatial):
        shape = [self.batch, self.channels, *spatial]
        if self.layout == "nhwc":
            formats = {2: torch.channels_last, 3: torch.channels_last_3d}
            return torch.empty(shape, dtype=self.dtype, memory_format=formats[self.rank])
        return torch.empty(shape, dtype=self.dtype)

    def filled(self, spatial):
        """Random numbers between -1 and 1. The same few MiB are repeated, as in cli/bench.cc: drawing all takes seconds."""
        tensor = self.tensor(spatial)
        for part in tensor.as_strided([tensor.numel()], [1]).split(RANDOM.numel()):
            part.copy_(RANDOM[: part.numel()])
        return tensor

    @property
    def window(self):
        return self.kernel, self.stride, self.padding, self.dilation, self.ceil


def amax(cell):
    if cell.op != "fwd" or cell.kernel != cell.inputs or any(cell.padding):
        raise ValueError("only forward, and windows that cover the plane")
    xs = [cell.filled(cell.inputs) for _ in range(cell.sets)]
    axes = list(range(2, 2 + cell.rank))
    return measure(cell.seconds, cell.sets, lambda i: xs[i].amax(axes))


def pool(cell, into_given):
    aten = torch.ops.aten
    forward = {2: aten.max_pool2d_with_indices, 3: aten.max_pool3d_with_indices}[cell.rank]
    backward = {2: aten.max_pool2d_with_indices_backward, 3: aten.max_pool3d_with_indices_backward}[cell.rank]
    xs = [cell.filled(cell.inputs) for _ in range(cell.sets)]
    window = cell.window

    def timed(run):
        return measure(cell.seconds, cell.sets, run)

    if cell.op == "bwd":
        saved = [forward(x, *window)[1] for x in xs]
        dys = [cell.filled(cell.outputs) for _ in xs]
        if not into_given:
            return timed(lambda i: backward(dys[i], xs[i], *window, saved[i]))
        dxs = [torch.empty_like(x) for x in xs]
        return timed(lambda i: backward.grad_input(dys[i], xs[i], *window, saved[i], grad_input=dxs[i]))
    if into_given:
        given = [forward(x, *window) for x in xs]
        return timed(lambda i: forward.out(xs[i], *window, out=given[i][0], indices=given[i][1]))
    if cell.op == "train":
        return timed(lambda i: forward(xs[i], *window))
    plain = {2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}[cell.rank]
    if cell.signal and cell.layout == "nchw":
        xs = [x.squeeze(2) for x in xs]
        plain = torch.nn.functional.max_pool1d
        window = [part[1:] if isinstance(part, list) else part for part in window]
    kernel, stride, padding, dilation, ceil = window
    return timed(lambda i: plain(xs[i], kernel, stride, padding, dilation, ceil))


def main():
    variant = sys.argv[1]
    for line in sys.stdin:
        try:
            cell = Cell(line)
            torch.set_num_threads(cell.threads)
            with torch.no_grad():
                ms, spread = amax(cell) if variant == "torch_amax" else pool(cell, variant == "torch_out")
            print(f"{ms:.6f} {spread:.4f}", flush=True)
        except (RuntimeError, ValueError, KeyError, NotImplementedError) as error:
            print("no", " ".join(str(error).split())[:200], flush=True)


if __name__ == "__main__":
    main()
