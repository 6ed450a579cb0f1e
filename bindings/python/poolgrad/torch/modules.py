"""MaxPool1d, MaxPool2d and MaxPool3d as modules, and convert, which swaps the pooling of a whole model and back."""

# No postponed annotations: TorchScript reads real ones.
from typing import Any, TypeVar

import torch
from torch import nn

from . import functional
from ._export import scripted_pool
from ._plans import PoolTypeError, PoolValueError, make_window


class _Ties:
    """The arguments of torch's module, and ties; padding may be what poolgrad.torch.max_pool*d takes."""

    ties = "first"
    __constants__ = [*nn.MaxPool1d.__constants__, "fixed"]
    __jit_unused_properties__ = ["fixed"]  # read by torch.jit.script, not compiled
    _rank, _relu = 0, False
    _pool: Any = None

    @property
    def fixed(self) -> Any:
        """What the operators take, for torch.jit.script, whose compiled forward wants one type of each."""
        module: Any = self
        return tuple(
            make_window(
                self._rank, module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode, self.ties,
                relu=self._relu,
            )[:9]
        )

    def __init__(self, *arguments: Any, ties: str = "first", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ties = ties

    def extra_repr(self) -> str:
        told = super().extra_repr()  # type: ignore[misc]
        return told if self.ties == "first" else f"{told}, ties={self.ties}"

    # No return annotation: TorchScript finds out what is returned. It compiles the first branch alone; Python runs the rest.
    def forward(self, input: torch.Tensor):
        if torch.jit.is_scripting():
            return scripted_pool(
                input, self.fixed[0], self.fixed[1], self.fixed[2], self.fixed[3], self.fixed[4], self.fixed[5], self.fixed[6],
                self.return_indices, self.fixed[8],
            )  # fmt: skip
        return self._pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices, ties=self.ties
        )


class MaxPool1d(_Ties, nn.MaxPool1d):
    """torch.nn.MaxPool1d, run by poolgrad."""

    _rank, _pool = 1, staticmethod(functional.max_pool1d)


class MaxPool2d(_Ties, nn.MaxPool2d):
    """torch.nn.MaxPool2d, run by poolgrad."""

    _rank, _pool = 2, staticmethod(functional.max_pool2d)


class MaxPool3d(_Ties, nn.MaxPool3d):
    """torch.nn.MaxPool3d, run by poolgrad."""

    _rank, _pool = 3, staticmethod(functional.max_pool3d)


class ReLUMaxPool1d(MaxPool1d):
    """torch.nn.ReLU and then torch.nn.MaxPool1d, in one step."""

    _relu, _pool = True, staticmethod(functional.relu_max_pool1d)


class ReLUMaxPool2d(MaxPool2d):
    """torch.nn.ReLU and then torch.nn.MaxPool2d, in one step."""

    _relu, _pool = True, staticmethod(functional.relu_max_pool2d)


class ReLUMaxPool3d(MaxPool3d):
    """torch.nn.ReLU and then torch.nn.MaxPool3d, in one step."""

    _relu, _pool = True, staticmethod(functional.relu_max_pool3d)


_OURS = {nn.MaxPool1d: MaxPool1d, nn.MaxPool2d: MaxPool2d, nn.MaxPool3d: MaxPool3d}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_Model = TypeVar("_Model", bound=nn.Module)


def convert(model: _Model, back: bool = False) -> _Model:
    """Makes every nn.MaxPool* of `model` (itself included) poolgrad's, in place, and returns the model.

    Names, hooks, settings and the training flag stay; subclasses that others made of nn.MaxPool* are left alone. With
    back=True, poolgrad's become torch's again; one that torch cannot run (its ties or padding) is an error, and then nothing
    is changed.
    """
    if not isinstance(model, nn.Module):
        raise PoolTypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module")
    swaps = _THEIRS if back else _OURS
    found = [module for module in model.modules() if type(module) in swaps]
    for module in found if back else ():
        _check_torch_can(module)
    for module in found:
        module.__class__ = swaps[type(module)]
    return model


def _check_torch_can(module: Any) -> None:
    if module.ties != "first":
        raise PoolValueError(f"{module} has ties {module.ties!r}; torch's own pooling knows only 'first'")
    entries = module.padding if isinstance(module.padding, (list, tuple)) else (module.padding,)
    if not all(isinstance(entry, int) for entry in entries):
        raise PoolValueError(f"{module} has padding {module.padding!r}; torch's own pooling takes integers only")
