"""MaxPool and ReLUMaxPool as modules, and convert, which swaps the pooling of a whole model and back."""

# No postponed annotations: TorchScript reads real ones.
from typing import Any, Callable, Optional, Tuple, TypeVar
from uuid import uuid4

import torch
from torch import nn

from . import functional
from ._export import scripted_pool
from ._fuse import find_pairs
from ._plans import PoolTypeError, PoolValueError, make_window
from .layers import LAYERS


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


class _Bias:
    """bias: None, the number of channels, whose biases are learned from 0 on, or a tensor of biases, one per channel."""

    def __init__(self, *arguments: Any, bias: Any = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        module: Any = self
        if isinstance(bias, int) and not isinstance(bias, bool):
            if bias < 0:
                raise PoolValueError(f"bias is {bias}; it must be the number of channels, at least 0, or a tensor")
            bias = torch.zeros(bias)
        if bias is not None and (not isinstance(bias, torch.Tensor) or bias.dim() != 1):
            told = tuple(bias.shape) if isinstance(bias, torch.Tensor) else repr(bias)
            raise PoolTypeError(f"bias is {told}; it must be the number of channels, or a tensor of one axis")
        module.register_parameter("bias", None if bias is None else nn.Parameter(bias))

    def _bias(self) -> Optional[torch.Tensor]:
        return self.__dict__["_parameters"].get("bias")  # convert makes modules that never had one

    def __prepare_scriptable__(self) -> Any:
        """Called by torch.jit.script alone, where `fixed` is read by torch.jit.trace, too."""
        if self._bias() is not None:
            raise PoolTypeError(f"{type(self).__name__} with a bias is not compiled by torch.jit.script; torch.jit.trace takes it")
        return self

    def extra_repr(self) -> str:
        told, bias = super().extra_repr(), self._bias()  # type: ignore[misc]
        return told if bias is None else f"{told}, bias={bias.numel()}"

    def forward(self, input: torch.Tensor):
        if torch.jit.is_scripting():
            return scripted_pool(
                input, self.fixed[0], self.fixed[1], self.fixed[2], self.fixed[3], self.fixed[4], self.fixed[5], self.fixed[6],
                self.return_indices, self.fixed[8],
            )  # fmt: skip
        return self._pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices, ties=self.ties,
            bias=self._bias(),
        )  # fmt: skip


class ReLUMaxPool1d(_Bias, MaxPool1d):
    """torch.nn.ReLU and then torch.nn.MaxPool1d, in one step; with a bias added first, where one is given."""

    _relu, _pool = True, staticmethod(functional.relu_max_pool1d)


class ReLUMaxPool2d(_Bias, MaxPool2d):
    """torch.nn.ReLU and then torch.nn.MaxPool2d, in one step; with a bias added first, where one is given."""

    _relu, _pool = True, staticmethod(functional.relu_max_pool2d)


class ReLUMaxPool3d(_Bias, MaxPool3d):
    """torch.nn.ReLU and then torch.nn.MaxPool3d, in one step; with a bias added first, where one is given."""

    _relu, _pool = True, staticmethod(functional.relu_max_pool3d)


class PassedReLU(nn.ReLU):
    """A ReLU that the max pool behind it does: what goes in comes out. Made by convert(model, fuse=True)."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input


_OURS = {nn.MaxPool1d: MaxPool1d, nn.MaxPool2d: MaxPool2d, nn.MaxPool3d: MaxPool3d, **LAYERS}
_AVERAGES = {theirs for theirs in _OURS if "Avg" in theirs.__name__}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_FUSED = {MaxPool1d: ReLUMaxPool1d, MaxPool2d: ReLUMaxPool2d, MaxPool3d: ReLUMaxPool3d}
_FUSED_BACK = {ReLUMaxPool1d: nn.MaxPool1d, ReLUMaxPool2d: nn.MaxPool2d, ReLUMaxPool3d: nn.MaxPool3d, PassedReLU: nn.ReLU}
_PAIRS = "poolgrad_pairs"  # an attribute of fused modules: a word for every pair they are one of
_Model = TypeVar("_Model", bound=nn.Module)


def convert(
    model: _Model, back: bool = False, *, fuse: bool = False, averages: bool = False, report: Optional[Callable[[str], Any]] = print
) -> _Model:
    """Makes every max pooling module of `model` (itself included; adaptive, fractional and unpooling ones, too) poolgrad's, in place, and
    returns the model. averages=True takes average pooling, too: adaptive averages differ from torch's in their last bits.

    Names, hooks, settings and the training flag stay; subclasses that others made of torch's are left alone. With back=True,
    poolgrad's become torch's again; one that torch cannot run (its ties or padding) is an error, and then nothing is changed.

    With fuse=True, an nn.ReLU that feeds nothing but one max pool becomes a part of it: the ReLU then hands its input on, and
    nothing of that input is kept for backward. report is given a line for every ReLU with a max pool behind it, what was done or why
    not; None: no lines. back=True undoes this, too.
    """
    if not isinstance(model, nn.Module):
        raise PoolTypeError(f"model is a {type(model).__name__}; it must be a torch.nn.Module")
    if back and fuse:
        raise PoolValueError("back and fuse are both True; fuse what is to be poolgrad's, or give all of it back")
    if back:
        _convert_back(model)
        return model
    wanted = _OURS.keys() if averages else _OURS.keys() - _AVERAGES
    for module in [module for module in model.modules() if type(module) in wanted]:
        module.__class__ = _OURS[type(module)]
    if fuse:
        _fuse(model, report or (lambda _: None))
    return model


def _fuse(model: nn.Module, report: Callable[[str], Any]) -> None:
    pairs, untraced = find_pairs(model, tuple(_FUSED))
    if untraced:
        report(
            f"nothing was fused: torch.fx cannot trace {type(model).__name__} ({untraced}); convert(part, fuse=True) looks at a part "
            "of it alone"
        )
    for pair in pairs:
        if pair.why_not:
            report(f"{pair.told}: not fused, because {pair.why_not}")
            continue
        word = uuid4().hex
        for module in (pair.relu, pair.pool):
            setattr(module, _PAIRS, (*_pairs_of(module), word))
        pair.relu.__class__ = PassedReLU
        pair.pool.__class__ = _FUSED.get(type(pair.pool), type(pair.pool))
        report(f"{pair.told}: fused")


def _pairs_of(module: nn.Module) -> Tuple[str, ...]:
    return module.__dict__.get(_PAIRS, ())


def _convert_back(model: nn.Module) -> None:
    found = [module for module in model.modules() if type(module) in _THEIRS or type(module) in _FUSED_BACK]
    relus = {word for module in found if type(module) is PassedReLU for word in _pairs_of(module)}
    pools = {word for module in found if type(module) is not PassedReLU for word in _pairs_of(module)}
    for module in found:
        if type(module) in _FUSED_BACK:
            if not _pairs_of(module):
                raise PoolValueError(f"{module} was not made by convert(fuse=True); torch has no module that rectifies and pools")
            if not relus & pools >= set(_pairs_of(module)):
                raise PoolValueError(f"{module} was fused with a module that is not in this model; convert the whole of it back")
        if isinstance(module, _Ties):
            _check_torch_can(module)
    for module in found:
        module.__class__ = _THEIRS.get(type(module)) or _FUSED_BACK[type(module)]
        module.__dict__.pop(_PAIRS, None)


def _check_torch_can(module: Any) -> None:
    if module.ties != "first":
        raise PoolValueError(f"{module} has ties {module.ties!r}; torch's own pooling knows only 'first'")
    entries = module.padding if isinstance(module.padding, (list, tuple)) else (module.padding,)
    if not all(isinstance(entry, int) for entry in entries):
        raise PoolValueError(f"{module} has padding {module.padding!r}; torch's own pooling takes integers only")
