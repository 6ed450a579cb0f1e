"""poolgrad for PyTorch (1.13 to 2.11, CPU and CUDA): the pooling of torch.nn, bit for bit, saving only routes for backward.

>>> import poolgrad.torch
>>> model = poolgrad.torch.convert(model)       # every nn.MaxPool* of the model, in place
>>> y = poolgrad.torch.max_pool2d(x, 3, stride=2, padding=1)
"""

from .functional import max_pool1d, max_pool2d, max_pool3d, relu_max_pool1d, relu_max_pool2d, relu_max_pool3d
from .modules import MaxPool1d, MaxPool2d, MaxPool3d, ReLUMaxPool1d, ReLUMaxPool2d, ReLUMaxPool3d, convert

__all__ = [
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "ReLUMaxPool1d",
    "ReLUMaxPool2d",
    "ReLUMaxPool3d",
    "convert",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "relu_max_pool1d",
    "relu_max_pool2d",
    "relu_max_pool3d",
]
