"""Whole stems with and without convert, measured in one run: time of forward+backward, bytes saved, memory held and its peak.

The ResNet-50 stem is convolution 7x7/2, normalisation, ReLU, max pooling 3x3/2; the VGG-16 stem is its first two blocks. Each
ratio is ours over torch's own; both sides alternate, so that the machine's mood is the same for both. Below them, the pooling
layer of each stem alone. --batch sets the batch size (small on the CPU, 256 for the memory figure on a GPU).
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable, List, Tuple

import torch
from torch import nn

import poolgrad
import poolgrad.torch


def resnet_stem() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    )


def vgg_stem() -> nn.Module:
    def block(inputs: int, outputs: int) -> List[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        ]  # fmt: skip

    return nn.Sequential(*block(3, 64), *block(64, 128))


def saved_bytes(run: Callable[[], Any]) -> int:
    """Bytes autograd keeps, each storage counted once: what two layers both keep costs nothing more."""
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def alternate(device: str, theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> Tuple[float, float]:
    """Median milliseconds of both, taken in turns."""
    times: Tuple[List[float], List[float]] = ([], [])
    for number in range(rounds + 2):
        for kept, run in zip(times, (theirs, ours)):
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            if number >= 2:
                kept.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def peak_bytes(run: Callable[[], Any]) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def held_bytes(forward: Callable[[], Any]) -> int:
    """What is allocated between forward and backward that was not before: what is saved, and the result."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = forward()
    held = torch.cuda.memory_allocated() - before
    del result
    return held


def measure(name: str, make: Callable[[], nn.Module], device: str, batch: int, rounds: int, channels_last: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(batch, 3, 224, 224, device=device)
    theirs, ours = make().to(device), make().to(device)
    ours.load_state_dict(theirs.state_dict())
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
        theirs, ours = (model.to(memory_format=torch.channels_last) for model in (theirs, ours))
    poolgrad.torch.convert(ours)

    def step(model: nn.Module) -> Callable[[], Any]:
        def run() -> None:
            model.zero_grad(set_to_none=True)
            y = model(x)
            y.backward(torch.ones_like(y))

        return run

    before, after = alternate(device, step(theirs), step(ours), rounds)
    layout = "channels_last" if channels_last else "contiguous"
    told = f"{name:<12} {device:<5} batch {batch:<4} {layout:<14} torch {before:9.2f} ms  ours {after:9.2f} ms  ratio {after / before:5.3f}"
    kept_before, kept_after = saved_bytes(lambda: theirs(x)), saved_bytes(lambda: ours(x))
    told += f"  saved {kept_before / 1e6:8.1f} -> {kept_after / 1e6:8.1f} MB"
    if device == "cuda":
        peaks = peak_bytes(step(theirs)), peak_bytes(step(ours))
        held = held_bytes(lambda: theirs(x)), held_bytes(lambda: ours(x))
        told += f"  held {held[0] / 1e6:8.1f} -> {held[1] / 1e6:8.1f} MB  peak {peaks[0] / 1e6:8.1f} -> {peaks[1] / 1e6:8.1f} MB"
    print(told, flush=True)

    pool = [module for module in theirs.modules() if isinstance(module, nn.MaxPool2d)][0]
    inner = torch.randn(batch, 64, *((112, 112) if name == "resnet stem" else (224, 224)), device=device)
    if channels_last:
        inner = inner.contiguous(memory_format=torch.channels_last)
    inner.requires_grad_()
    converted = poolgrad.torch.convert(nn.MaxPool2d(pool.kernel_size, pool.stride, pool.padding))
    dy = torch.ones_like(pool(inner))

    def alone(layer: nn.Module) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(layer(inner), inner, dy)

    before, after = alternate(device, alone(pool), alone(converted), rounds)
    print(f"{'  its pooling alone':<42} torch {before:9.2f} ms  ours {after:9.2f} ms  ratio {after / before:5.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=0, help="torch's threads; 0: its own choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, poolgrad {poolgrad.version()} {poolgrad.simd_target()}")
    for channels_last in (False, True):
        measure("resnet stem", resnet_stem, options.device, options.batch, options.rounds, channels_last)
        measure("vgg stem", vgg_stem, options.device, max(1, options.batch // 4), options.rounds, channels_last)


if __name__ == "__main__":
    main()
