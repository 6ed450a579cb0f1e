"""poolgrad for PyTorch (1.13 to 2.11, CPU and CUDA): the pooling of torch.nn, saving only routes for backward.

>>> import poolgrad.torch
>>> model = poolgrad.torch.convert(model)             # every max pooling module of the model, in place
>>> model = poolgrad.torch.convert(model, fuse=True)  # and a ReLU before a max pool becomes a part of it
>>> y = poolgrad.torch.max_pool2d(x, 3, stride=2, padding=1)
>>> with poolgrad.torch.everywhere():                 # whoever calls torch's pooling functions calls poolgrad's
...     y = model(x)
"""

from . import distributed  # noqa: F401
from ._everywhere import everywhere
from .functional import max_pool1d, max_pool2d, max_pool3d, relu_max_pool1d, relu_max_pool2d, relu_max_pool3d
from .layers import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)
from .modules import MaxPool1d, MaxPool2d, MaxPool3d, ReLUMaxPool1d, ReLUMaxPool2d, ReLUMaxPool3d, convert
from .pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "ReLUMaxPool1d",
    "ReLUMaxPool2d",
    "ReLUMaxPool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "convert",
    "everywhere",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "relu_max_pool1d",
    "relu_max_pool2d",
    "relu_max_pool3d",
]
