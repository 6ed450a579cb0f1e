"""Trains a small CNN on handwritten digits twice, with torch's pooling and after poolgrad.torch.convert, and compares.

Same losses to the last bit, fewer bytes saved for backward. The digits come with scikit-learn; nothing is downloaded.

    pip install . && python examples/train_cnn.py --plot digits.png
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Dict, List, Tuple

import torch
from sklearn.datasets import load_digits
from torch import nn

import poolgrad.torch


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, stride=1, padding=1),
        nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(48 * 2 * 2, 10),
    )  # fmt: skip


def load() -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return x[:1440], y[:1440], x[1440:], y[1440:]


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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
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
    for (name, run), style in zip(runs.items(), ({"linewidth": 4, "alpha": 0.4}, {"linewidth": 1, "color": "black"})):
        curves.plot(run["losses"], label=f"{name}, accuracy {run['accuracy']:.3f}", **style)
    curves.set(xlabel="step", ylabel="loss", yscale="log", title="Losses: the same to the last bit")
    curves.legend()
    bars.bar(list(runs), [run["saved"] / 1024 for run in runs.values()], color=["tab:blue", "black"])
    bars.set(ylabel="KiB saved for backward", title="Saved per step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--plot", metavar="FILE", help="write a PNG or SVG of both runs (needs matplotlib)")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    data = load()
    runs = {}
    for name in ("torch", "poolgrad"):
        torch.manual_seed(0)
        model = make_model()
        if name == "poolgrad":
            poolgrad.torch.convert(model)
        runs[name] = train(name, model, data, options.epochs, options.batch)
    for name, run in runs.items():
        print(
            f"{name:<10} last loss {run['losses'][-1]:.6f}  accuracy {run['accuracy']:.3f}  {run['seconds']:5.1f} s  "
            f"saved for backward {run['saved'] / 1024:7.1f} KiB"
        )
    same = runs["torch"]["losses"] == runs["poolgrad"]["losses"]
    print("losses are", "the same to the last bit" if same else "DIFFERENT")
    if options.plot:
        plot(options.plot, runs)
        print("plot written to", options.plot)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
