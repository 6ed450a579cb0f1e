"""What torch.jit.script compiles where a scripted function calls one of poolgrad's.

TorchScript reads types from source, and a window's are a number or so many numbers as there are axes (BroadcastingList2[int]): so the
functions of every rank are made from one text. They are compiled when somebody scripts them. As in torch.nn.functional, return_indices
must be a constant, which chooses between two of them; windows are integers, without the words and pairs that eager calls may give.
"""

# No postponed annotations: TorchScript reads real ones.
import linecache
from typing import Any, List, Optional, Sequence, Tuple  # noqa: F401  # some for the text below

import torch
from torch import Tensor  # noqa: F401
from torch._jit_internal import BroadcastingList1, BroadcastingList2, BroadcastingList3, boolean_dispatched  # noqa: F401

from ._plans import PoolTypeError


_NOT_COMPILED = (
    "of poolgrad.torch cannot be compiled by torch.jit.script; torch.jit.trace takes it, and convert(model, back=True) gives a model "
    "torch's own pooling back"
)
UNSCRIPTABLE = "__script_unsupported"  # the attribute with which torch.jit.script is told why it cannot
_ASKS_FUNCTIONS = int(torch.__version__.split(".")[0]) > 1  # for __prepare_scriptable__; before, modules only


def _or(given: Optional[List[int]], default: List[int]) -> List[int]:
    if given is None or len(given) == 0:
        return default
    return given


def _rule(ties: str) -> int:
    names = ["first", "last", "split", "all"]
    for i in range(4):
        if names[i] == ties:
            return i + 1
    raise ValueError("ties is '" + ties + "'; it must be one of: first, last, split, all")


def _divisor(given: Optional[int]) -> int:
    if given is None:
        return 0
    if given < 1:
        raise ValueError("divisor_override is " + str(given) + "; it must be at least 1, or None")
    return given


_SETTINGS = {
    "max": """kernel_size: BroadcastingList{n}[int], stride: Optional[BroadcastingList{n}[int]] = None,
    padding: Optional[BroadcastingList{n}[int]] = None, dilation: Optional[BroadcastingList{n}[int]] = None, ceil_mode: bool = False,
    return_indices: bool = False, ties: str = "first",""",
    "avg": """kernel_size: BroadcastingList{n}[int], stride: Optional[BroadcastingList{n}[int]] = None,
    padding: Optional[BroadcastingList{n}[int]] = None, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Optional[int] = None,""",
    "adaptive_max": "output_size: BroadcastingList{n}[int], return_indices: bool = False,",
    "adaptive_avg": "output_size: BroadcastingList{n}[int],",
}
# What the operators take after their tensors (_library), but for the numbers that all have in common.
_WINDOWS = {
    "max": "kernel_size, _or(stride, kernel_size), _or(padding, [0] * {n}) * 2, 0, _or(dilation, [1] * {n}), ceil_mode, _rule(ties), -1, 0, {relu}",
    "avg": """kernel_size, _or(stride, kernel_size), _or(padding, [0] * {n}) * 2, 0, [1] * {n}, ceil_mode, 1, -1, 1, False,
        torch.jit.annotate(List[int], []), torch.jit.annotate(List[int], []), count_include_pad,
        _divisor(divisor_override)""",
    "adaptive_max": "[0] * {n}, [1] * {n}, [0] * {n} * 2, 0, [1] * {n}, False, 1, -1, 0, False, output_size",
    "adaptive_avg": "[0] * {n}, [1] * {n}, [0] * {n} * 2, 0, [1] * {n}, False, 1, -1, 1, False, output_size",
}
_VALUES = """
def {name}(
    input: Tensor, {settings}
) -> Tensor:
    return torch.ops.poolgrad.max_pool(
        input, {window}
    )[0]
"""
_WITH_INDICES = """
def {name}(
    input: Tensor, {settings}
) -> Tuple[Tensor, Tensor]:
    y, routes = torch.ops.poolgrad.max_pool(
        input, {window}
    )
    indices = torch.ops.poolgrad.max_pool_indices(
        input.detach(), routes, {window}
    )
    return y, indices
"""


_FORWARD = """
def forward(self, input: Tensor):
    if torch.jit.is_scripting():
        return scripted(input, {settings})
    return self._run(input, {settings})
"""


def _made(source: str, name: str, told: str, **names: Any) -> Any:
    file, found = f"<poolgrad.torch, {told}>", {**globals(), **names}
    exec(compile(source, file, "exec"), found)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # where TorchScript looks for it
    return found[name]


def make_scriptable(function: Any, kind: str, rank: int, relu: bool = False) -> None:
    """torch.jit.script takes `function`, one of poolgrad.torch's, from now on."""
    settings, window = _SETTINGS[kind].format(n=rank), _WINDOWS[kind].format(n=rank, relu=relu)

    def made(text: str, name: str) -> Any:
        return _made(text.format(name=name, settings=settings, window=window), name, name)

    values = made(_VALUES, function.__name__)
    if _ASKS_FUNCTIONS:
        function.__prepare_scriptable__ = lambda: values
    else:  # as torch.jit.script_if_tracing says it
        function.__script_if_tracing_wrapper, function.__original_fn = True, values
    if kind.endswith("max"):
        boolean_dispatched[function] = {
            "if_true": made(_WITH_INDICES, f"{function.__name__}_with_indices"), "if_false": values,
            "index": 6 if kind == "max" else 2, "default": False, "arg_name": "return_indices",
        }  # fmt: skip


def make_unscriptable(function: Any) -> None:
    """torch.jit.script says why it does not take `function`."""
    setattr(function, UNSCRIPTABLE, f"{function.__name__} {_NOT_COMPILED}")


def scriptable_forward(name: str, function: Any, settings: Sequence[str]) -> Any:
    """The forward of a module: function(input, *settings) where it is scripted, else self._run."""
    text = _FORWARD.format(settings=", ".join(f"self.{setting}" for setting in settings))
    return _made(text, "forward", name, scripted=function)


def refuse_to_script(module: Any) -> Any:
    raise PoolTypeError(f"{type(module).__name__} {_NOT_COMPILED}")
