"""What poolgrad changes in a network, measured in one run: time of forward and backward, bytes saved for backward, peak memory.

Stems by default: ResNet-50's is convolution 7x7/2, normalisation, ReLU, max pooling 3x3/2; VGG-16's features are its thirteen
convolutions with their ReLUs and five pools, its stem the first two blocks. Each stands as torch has it, converted
(poolgrad.torch.convert) and fused (convert(fuse=True): a ReLU before a pool becomes a part of it); all take turns, so that the
machine's mood is the same for all. Below them, the pooling layer of each alone.

--pairs: ReLU and pool alone on CUDA, one after the other and fused, with the fraction of the copy bandwidth on the fused bytes.
--whole: training steps of torchvision's ResNet-50, VGG-16 and SqueezeNet on CUDA, bf16, channels last, with torch.compile beside.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any, Callable, Dict, List, Sequence

import torch
import torch.nn.functional as F
from torch import nn

import poolgrad
import poolgrad.torch


def resnet_stem() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    )


def vgg_features(blocks: int = 5) -> nn.Module:
    layers: List[nn.Module] = []
    inputs = 3
    for outputs, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))[:blocks]:
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


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


def alternate(device: str, runs: Sequence[Callable[[], Any]], rounds: int) -> List[float]:
    """Median milliseconds of each, taken in turns."""
    times: List[List[float]] = [[] for _ in runs]
    for number in range(rounds + 2):
        for kept, run in zip(times, runs):
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            if number >= 2:
                kept.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(one) for one in times]


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


def train_step(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        model.zero_grad(set_to_none=True)
        y = model(x)
        y.backward(torch.ones_like(y))

    return run


def variants(make: Callable[[], nn.Module]) -> Dict[str, nn.Module]:
    """The same network three times, with the same parameters."""
    torch.manual_seed(0)
    theirs = make()
    return {
        "torch": theirs,
        "converted": poolgrad.torch.convert(copy.deepcopy(theirs)),
        "fused": poolgrad.torch.convert(copy.deepcopy(theirs), fuse=True),
    }


def in_layout(tensor: Any, channels_last: bool) -> Any:
    return tensor.to(memory_format=torch.channels_last) if channels_last else tensor


def measure(name: str, make: Callable[[], nn.Module], device: str, batch: int, rounds: int, channels_last: bool) -> None:
    models = {label: in_layout(model.to(device), channels_last) for label, model in variants(make).items()}
    x = in_layout(torch.randn(batch, 3, 224, 224, device=device), channels_last)
    times = alternate(device, [train_step(model, x) for model in models.values()], rounds)
    print(f"{name}, {device}, batch {batch}, {'channels last' if channels_last else 'contiguous'}")
    for (label, model), ms in zip(models.items(), times):
        told = f"  {label:<10} {ms:9.2f} ms  {ms / times[0]:5.3f} of torch  saved {saved_bytes(lambda: model(x)) / 1e6:8.1f} MB"
        if device == "cuda":
            told += f"  held {held_bytes(lambda: model(x)) / 1e6:8.1f} MB  peak {peak_bytes(train_step(model, x)) / 1e6:8.1f} MB"
        print(told, flush=True)
    pool = next(module for module in models["torch"].modules() if isinstance(module, nn.MaxPool2d))
    inner = torch.randn(batch, 64, *((112, 112) if name == "resnet stem" else (224, 224)), device=device)
    inner = in_layout(inner, channels_last).requires_grad_()
    converted = poolgrad.torch.convert(nn.MaxPool2d(pool.kernel_size, pool.stride, pool.padding))
    dy = torch.ones_like(pool(inner))
    runs = [lambda layer=layer: torch.autograd.grad(layer(inner), inner, dy) for layer in (pool, converted)]
    before, after = alternate(device, runs, rounds)
    print(f"  its first pool alone: torch {before:9.2f} ms  ours {after:9.2f} ms  ratio {after / before:5.3f}", flush=True)


def copy_bandwidth() -> float:
    """Bytes a second, read and written."""
    source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = gpu_seconds(lambda: target.copy_(source))
    return 2 * source.numel() / seconds


def gpu_seconds(run: Callable[[], Any], rounds: int = 15) -> float:
    """Median seconds of a call among several in flight."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(rounds + 3):
        start.record()
        for _ in range(4):
            run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 4e3)
    return statistics.median(times[3:])


PAIRS = {  # shape, kernel, stride, padding
    "3x3/2": ((256, 64, 112, 112), 3, 2, 1),
    "2x2/2": ((64, 64, 224, 224), 2, 2, 0),
}


def pairs() -> None:
    copied = copy_bandwidth()
    print(f"copy {copied / 1e12:.2f} TB/s; ms of torch's ReLU and pool, of torch's ReLU and ours, fused; how much faster; fraction of copy")
    for name, (shape, *window) in PAIRS.items():
        for dtype in (torch.float32, torch.bfloat16):
            for channels_last in (False, True):
                x = in_layout(torch.randn(shape, device="cuda", dtype=dtype), channels_last).requires_grad_()
                pools = (
                    lambda t: F.max_pool2d(F.relu(t), *window),
                    lambda t: poolgrad.torch.max_pool2d(F.relu(t), *window),
                    lambda t: poolgrad.torch.relu_max_pool2d(t, *window),
                )
                dy = torch.randn_like(pools[0](x).detach())
                ms = [gpu_seconds(lambda pool=pool: torch.autograd.grad(pool(x), x, dy)) * 1e3 for pool in pools]
                with torch.no_grad():
                    plain, rectified = (
                        gpu_seconds(lambda run=run: run(x, *window)) * 1e3
                        for run in (poolgrad.torch.max_pool2d, poolgrad.torch.relu_max_pool2d)
                    )
                # Forward reads x and writes y and routes (4 bits an output), backward the other way round.
                moved = 2 * ((x.numel() + dy.numel()) * x.element_size() + dy.numel() // 2)
                print(
                    f"  {name} {str(dtype)[6:]:<9}{'channels last' if channels_last else 'channels first':<15}"
                    f"{ms[0]:8.3f} {ms[1]:8.3f} {ms[2]:8.3f}  {ms[0] / ms[2]:5.2f}x {ms[1] / ms[2]:5.2f}x"
                    f"  {moved / (ms[2] * 1e-3) / copied:5.2f}  forward alone {rectified / plain:5.3f} of plain",
                    flush=True,
                )


def whole(rounds: int) -> None:
    import torchvision.models as vision

    for name, make, batch in (
        ("resnet50", vision.resnet50, 128), ("vgg16", vision.vgg16, 64), ("squeezenet1_1", vision.squeezenet1_1, 128),
    ):  # fmt: skip
        models = {label: in_layout(model.cuda().bfloat16(), True) for label, model in variants(make).items()}
        models["compiled"] = torch.compile(copy.deepcopy(models["torch"]))
        x = in_layout(torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16), True)
        steps = [train_step(model, x) for model in models.values()]
        times = alternate("cuda", steps, rounds)
        print(f"{name}, batch {batch}, bf16, channels last")
        for label, step, ms in zip(models, steps, times):
            print(f"  {label:<10} {ms:8.2f} ms  {ms / times[0]:5.3f} of torch  peak {peak_bytes(step) / 1e6:9.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=0, help="torch's threads; 0: its own choice")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.pairs:
        return pairs()
    if options.whole:
        return whole(options.rounds)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, poolgrad {poolgrad.version()} {poolgrad.simd_target()}")
    for channels_last in (False, True):
        measure("resnet stem", resnet_stem, options.device, options.batch, options.rounds, channels_last)
        measure("vgg stem", lambda: vgg_features(2), options.device, max(1, options.batch // 4), options.rounds, channels_last)
        measure("vgg features", vgg_features, options.device, max(1, options.batch // 4), options.rounds, channels_last)


if __name__ == "__main__":
    main()
