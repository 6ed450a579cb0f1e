"""Max pooling where a model leaves Python's eager hands: TorchScript and ONNX.

torch.jit.trace records the operators of _library by itself; torch.jit.script compiles what is here in place of a module's forward.
Both kinds of graph export to ONNX as MaxPool. Exporters that start from torch.export are given torch's own pooling, whose
outputs and indices are the same to the bit.
"""

# No postponed annotations: TorchScript reads real ones.
import threading
from contextlib import contextmanager
from typing import Any, Iterator, List, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch._jit_internal import boolean_dispatch

from ._plans import PoolValueError, Window, plan_of

# As they are now: who puts poolgrad in their place still means torch's here, and torchs_functions keeps everywhere() out of them.
THEIRS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGES = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE = {
    0: {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d},
    1: {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d},
}  # by poolgrad_kind

in_torchs = threading.local()  # .depth: how many torchs_functions() this thread is in


@contextmanager
def torchs_functions() -> Iterator[None]:
    """In this thread, torch's pooling functions are torch's."""
    in_torchs.depth = getattr(in_torchs, "depth", 0) + 1
    try:
        yield
    finally:
        in_torchs.depth -= 1


# ---- TorchScript: which of the two is compiled depends on return_indices, as in torch.nn.functional ----------------------------


def _pool(
    input: torch.Tensor, kernel: List[int], stride: List[int], padding: List[int], padding_kind: int, dilation: List[int],
    ceil_mode: bool, ties: int, return_indices: bool = False, relu: bool = False,
) -> torch.Tensor:  # fmt: skip
    return torch.ops.poolgrad.max_pool(input, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, -1, 0, relu)[0]


def _pool_with_indices(
    input: torch.Tensor, kernel: List[int], stride: List[int], padding: List[int], padding_kind: int, dilation: List[int],
    ceil_mode: bool, ties: int, return_indices: bool = False, relu: bool = False,
) -> Tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    y, routes = torch.ops.poolgrad.max_pool(input, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, -1, 0, relu)
    found = torch.ops.poolgrad.max_pool_indices(
        input.detach(), routes, kernel, stride, padding, padding_kind, dilation, ceil_mode, ties, -1, 0, relu
    )
    return y, found


scripted_pool = boolean_dispatch(
    arg_name="return_indices", arg_index=8, default=False, if_true=_pool_with_indices, if_false=_pool,
    module_name=__name__, func_name="scripted_pool",
)  # fmt: skip


# ---- ONNX ---------------------------------------------------------------------------------------------------------------------

_ATTRIBUTES = ("is", "is", "is", "i", "is", "i", "i", "i", "i", "i", "is", "is", "i", "i", "i")  # of what follows the tensors, as symbolic_helper reads constants
_AUTO_PAD = {2: "SAME_UPPER", 3: "SAME_LOWER"}  # by poolgrad_padding; valid is padding 0


def _max_pool_node(g: Any, x: Any, fixed: Sequence[Any], outputs: int) -> Any:
    from torch.onnx import symbolic_helper

    kernel, stride, padding, kind, dilation, ceil_mode, ties, _, average, relu, counts, starts, count_padding, divisor, _ = (
        symbolic_helper._maybe_get_const(value, form) for value, form in zip(fixed, _ATTRIBUTES)
    )
    if relu:
        x = g.op("Relu", x)
    if counts and not starts and all(count == 1 for count in counts) and outputs == 1:
        return g.op("GlobalAveragePool" if average else "GlobalMaxPool", x)
    if counts:
        raise PoolValueError("ONNX has no node for adaptive and fractional pooling, but for output_size 1 without indices")
    if divisor:
        raise PoolValueError(f"divisor_override is {divisor}; ONNX's AveragePool has no divisor of its own")
    dimensions = symbolic_helper._get_tensor_rank(x)
    if dimensions is not None and dimensions != len(kernel) + 2:
        wanted = len(kernel) + 2
        raise PoolValueError(f"input has {dimensions} dimensions; ONNX's MaxPool takes a batch, so export it with {wanted}")
    if outputs == 2 and ties != 1:
        raise PoolValueError("ties is not 'first'; ONNX's MaxPool knows no other rule for the indices it returns")
    attributes = {"kernel_shape_i": kernel, "strides_i": stride}
    if kind in _AUTO_PAD:
        attributes["auto_pad_s"] = _AUTO_PAD[kind]
    else:
        attributes["pads_i"], attributes["ceil_mode_i"] = padding, int(ceil_mode)
    if any(step != 1 for step in dilation):
        attributes["dilations_i"] = dilation
    if average:
        # Where there is no padding none is counted: a runtime that counts it may count what a last window of ceil_mode lacks, too.
        counted = bool(count_padding) and (kind in _AUTO_PAD or any(padding))
        return g.op("AveragePool", x, count_include_pad_i=int(counted), **attributes)
    return g.op("MaxPool", x, outputs=outputs, **attributes)


def _symbolic_pool(g: Any, x: Any, *fixed: Any) -> Any:
    routes = g.op("Constant", value_t=torch.zeros(0, dtype=torch.uint8))  # for the node of indices, which does without
    return _max_pool_node(g, x, fixed, 1), routes


def _symbolic_indices(g: Any, x: Any, routes: Any, *fixed: Any) -> Any:
    """ONNX numbers the elements of all planes one after the other, torch those of each plane."""
    from torch.onnx import symbolic_helper

    rank = len(symbolic_helper._maybe_get_const(fixed[0], "is"))
    spatial = symbolic_helper._slice_helper(g, g.op("Shape", x), axes=[0], starts=[-rank], ends=[2**31])
    plane = g.op("ReduceProd", spatial, keepdims_i=0)
    return g.op("Mod", _max_pool_node(g, x, fixed, 2)[1], plane)


try:
    for _name, _symbolic in (("max_pool", _symbolic_pool), ("max_pool_indices", _symbolic_indices)):
        torch.onnx.register_custom_op_symbolic(f"poolgrad::{_name}", _symbolic, 10)  # the first with dilation and ceil_mode
except (AttributeError, ImportError):
    pass  # a torch that has given up this exporter


@torchs_functions()
def torchs_own(input: torch.Tensor, window: Window, return_indices: bool) -> Any:
    """The same by torch's own function, for an exporter that knows nothing else."""
    rank = len(window.kernel)
    if window.starts:
        raise PoolValueError("fractional pooling by given samples has no function that an exporter knows")
    if window.outputs:
        return _ADAPTIVE[window.kind][rank](input, window.outputs, *([return_indices] if not window.kind else []))
    if window.relu:
        input = torch.relu(input)
    plan = plan_of((1, 1, *(int(n) for n in input.shape[-rank:])), input.dtype, torch.device("cpu"), False, window)
    low, high = zip(*plan.pads)
    if low != high or (return_indices and window.ties != 1):
        what = f"padding {low} before and {high} behind" if low != high else "indices by a rule of ties other than 'first'"
        raise PoolValueError(f"this pooling has {what}, which torch's own has not; torch.onnx.export(dynamo=False) exports it")
    if window.kind:
        more = (window.divisor or None,) if rank > 1 else ()
        return _AVERAGES[rank](input, window.kernel, window.stride, low, window.ceil_mode, window.count_padding, *more)
    return THEIRS[rank](input, window.kernel, window.stride, low, window.dilation, window.ceil_mode, return_indices)
