"""The pooling modules of torch.nn but MaxPool (modules.py), run by poolgrad.

Each is torch's class with another forward: settings, names, hooks and state stay what they are. What poolgrad refuses (average pooling
of integers), torch's function does, with a warning that says why.
"""

from __future__ import annotations

from typing import Any, Dict

import torch.nn.functional as F
from torch import nn

from . import pooling
from ._everywhere import or_torchs
from ._script import refuse_to_script, scriptable_forward


def _run_by(base: Any, **members: Any) -> Any:
    name = base.__name__
    return type(name, (base,), {**members, "__module__": __name__, "__doc__": f"torch.nn.{name}, run by poolgrad."})


def _layer(name: str, function: str, *settings: str) -> Any:
    """torch.nn's class `name` with a forward that gives the function of this name its input and settings."""
    base: Any = getattr(nn, name)
    ours = getattr(pooling, function)
    members = {"forward": scriptable_forward(name, ours, settings), "_run": staticmethod(or_torchs(ours, getattr(F, function)))}
    if name.startswith("Fractional"):
        members["__prepare_scriptable__"] = refuse_to_script
    return _run_by(base, **members)


def _unpool_layer(rank: int) -> Any:
    base: Any = getattr(nn, f"MaxUnpool{rank}d")
    run = or_torchs(getattr(pooling, f"max_unpool{rank}d"), getattr(F, f"max_unpool{rank}d"))

    def forward(self: Any, input: Any, indices: Any, output_size: Any = None) -> Any:
        return run(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    return _run_by(base, forward=forward, __prepare_scriptable__=refuse_to_script)


_WINDOW = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_FRACTIONAL = ("kernel_size", "output_size", "output_ratio", "return_indices", "_random_samples")

AvgPool1d = _layer("AvgPool1d", "avg_pool1d", *_WINDOW)
AvgPool2d = _layer("AvgPool2d", "avg_pool2d", *_WINDOW, "divisor_override")
AvgPool3d = _layer("AvgPool3d", "avg_pool3d", *_WINDOW, "divisor_override")
AdaptiveMaxPool1d = _layer("AdaptiveMaxPool1d", "adaptive_max_pool1d", "output_size", "return_indices")
AdaptiveMaxPool2d = _layer("AdaptiveMaxPool2d", "adaptive_max_pool2d", "output_size", "return_indices")
AdaptiveMaxPool3d = _layer("AdaptiveMaxPool3d", "adaptive_max_pool3d", "output_size", "return_indices")
AdaptiveAvgPool1d = _layer("AdaptiveAvgPool1d", "adaptive_avg_pool1d", "output_size")
AdaptiveAvgPool2d = _layer("AdaptiveAvgPool2d", "adaptive_avg_pool2d", "output_size")
AdaptiveAvgPool3d = _layer("AdaptiveAvgPool3d", "adaptive_avg_pool3d", "output_size")
FractionalMaxPool2d = _layer("FractionalMaxPool2d", "fractional_max_pool2d", *_FRACTIONAL)
FractionalMaxPool3d = _layer("FractionalMaxPool3d", "fractional_max_pool3d", *_FRACTIONAL)
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = map(_unpool_layer, (1, 2, 3))

LAYERS: Dict[Any, Any] = {
    getattr(nn, layer.__name__): layer
    for layer in (
        AvgPool1d, AvgPool2d, AvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, AdaptiveAvgPool1d,
        AdaptiveAvgPool2d, AdaptiveAvgPool3d, FractionalMaxPool2d, FractionalMaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
    )  # fmt: skip
}  # ours by torch's
