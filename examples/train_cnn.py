"""Trains a small CNN three times, with torch's pooling, with poolgrad's, and with each ReLU inside its pool; compares time and memory.

Same losses to the last bit, fewer bytes saved for backward. The images, four shapes in noise, are drawn on the spot.

    pip install dist/poolgrad-*.whl && python examples/train_cnn.py --plot shapes.png
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Dict, List, Tuple

import torch
from torch import nn

import poolgrad.torch


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=1, padding=1),
        nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(24 * 6 * 6, 4),
    )  # fmt: skip


def draw(count: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Images of 24x24 with a bar, a pole, a cross or a frame somewhere in noise; and which of them it is."""
    random = torch.Generator().manual_seed(0)
    x = 0.25 * torch.randn(count, 1, 24, 24, generator=random)
    y = torch.randint(4, (count,), generator=random)
    for image, kind, (row, column) in zip(x[:, 0], y.tolist(), torch.randint(16, (count, 2), generator=random).tolist()):
        box = image[row : row + 9, column : column + 9]
        if kind in (0, 2):
            box[4, :] += 1
        if kind in (1, 2):
            box[:, 4] += 1
        if kind == 3:
            box[[0, 8], :] += 1
            box[:, [0, 8]] += 1
    return x, y


def load() -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    x, y = draw(1500)
    return x[:1200], y[:1200], x[1200:], y[1200:]


def saved_bytes(model: nn.Module, x: torch.Tensor) -> int:
    """What autograd keeps between forward and backward; a tensor two layers both keep is counted once."""
    kept: Dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(x)
    return sum(kept.values())


def progress(label: str, done: int, total: int, loss: float) -> None:
    if sys.stderr.isatty() or done == total:
        filled = 30 * done // total
        end = "\n" if done == total else ""
        print(f"\r{label:<10}[{'#' * filled}{'.' * (30 - filled)}] {done}/{total}  loss {loss:.4f}", end=end, file=sys.stderr)


def train(label: str, model: nn.Module, data: Any, epochs: int, batch: int) -> Dict[str, Any]:
    x, y, test_x, test_y = data
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses: List[float] = []
    steps = (len(x) + batch - 1) // batch
    start = time.perf_counter()
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for step in range(steps):
            chosen = order[step * batch : (step + 1) * batch]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            progress(label, len(losses), epochs * steps, losses[-1])
    seconds = time.perf_counter() - start
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
    return {"losses": losses, "seconds": seconds, "accuracy": accuracy, "saved": saved_bytes(model, x[:batch])}


def plot(path: str, runs: Dict[str, Dict[str, Any]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (curves, bars) = plt.subplots(1, 2, figsize=(10, 4), gridspec_kw={"width_ratios": [3, 1]})
    for (name, run), width in zip(runs.items(), (7, 4, 1)):
        curves.plot(run["losses"], label=f"{name}, accuracy {run['accuracy']:.3f}", linewidth=width)
    curves.set(xlabel="step", ylabel="loss", yscale="log", title="Losses: the same to the last bit")
    curves.legend()
    bars.bar(list(runs), [run["saved"] / 1024 for run in runs.values()])
    bars.set(ylabel="KiB saved for backward", title="Saved per step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--plot", metavar="FILE", help="write a PNG or SVG of both runs (needs matplotlib)")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    data = load()
    runs = {}
    for name in ("torch", "poolgrad", "fused"):
        torch.manual_seed(0)
        model = make_model()
        if name != "torch":
            model = poolgrad.torch.convert(model, fuse=name == "fused")
        runs[name] = train(name, model, data, options.epochs, options.batch)
    for name, run in runs.items():
        print(
            f"{name:<10} last loss {run['losses'][-1]:.6f}  accuracy {run['accuracy']:.3f}  {run['seconds']:5.1f} s  "
            f"saved for backward {run['saved'] / 1024:7.1f} KiB"
        )
    same = all(run["losses"] == runs["torch"]["losses"] for run in runs.values())
    print("losses are", "the same to the last bit" if same else "DIFFERENT")
    if options.plot:
        plot(options.plot, runs)
        print("plot written to", options.plot)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
