"""Whether a tensor's memory can be read straight away, without asking torch's dispatcher.

It can unless something watches or rewrites what is done (tracing, a mode, a transform of torch.func, a class with
__torch_function__), or the tensor is not what its memory says (a lazy negative, a zero that was never written, names to be
passed on). Then the call goes through the operators of _library, where the dispatcher sees to each of those. Tensors without
memory of their own (legacy vmap's, mkldnn's) need no question here: torch refuses to tell their address.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.overrides import has_torch_function_unary

PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))

functorch_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
is_tracing: Callable[[], bool] = torch._C._is_tracing
dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", lambda: False)


def is_plain(x: Any) -> bool:
    """All of it but torch.func, which autograd functions look for where they start: below, its wrappers are gone."""
    return (
        type(x) in PLAIN_TYPES
        and not has_torch_function_unary(x)
        and not is_tracing()
        and not dispatch_modes()
        and not x.is_neg()
        and not x._is_zerotensor()
        and not x.has_names()
    )
