"""everywhere(): torch's own pooling functions go through poolgrad, whoever calls them.

What is exchanged are attributes of torch and torch._C._nn: the functions below those of torch.nn.functional, which look them up at every
call. So a module of torch.nn, a model that says F.max_pool2d, and one that took `from torch.nn.functional import max_pool2d` long
before are all reached, and classes with __torch_function__ see torch's own functions. avg_pool1d, 2d, 3d and adaptive_avg_pool1d are C
functions in torch.nn.functional, too, and are exchanged there; who took one of these by name before keeps torch's.

The exchange is the process's, not a thread's: while one thread is inside, the others go through poolgrad, too, with the same results.
Entering and leaving is counted under a lock; a call that has begun ends as it began. Tensors with __torch_function__, and torch.jit
while it traces, are given torch's function; torch.jit.script cannot compile ours, so script outside.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
import torch.nn.functional as F
from torch.overrides import has_torch_function

from . import functional, pooling
from ._export import in_torchs, torchs_functions
from ._plain import is_compiling, is_tracing
from ._plans import PoolTypeError, PoolValueError
from ._script import UNSCRIPTABLE

_REFUSED = (PoolValueError, PoolTypeError, NotImplementedError)
_told: Set[str] = set()


def or_torchs(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """ours, and where it refuses, theirs; with a warning, once for every reason."""

    @wraps(ours)
    def pool(*arguments: Any, **keywords: Any) -> Any:
        if is_compiling():
            return ours(*arguments, **keywords)
        tensors = (*arguments[:2], *keywords.values())
        if getattr(in_torchs, "depth", 0) or is_tracing() or has_torch_function(tensors):
            return theirs(*arguments, **keywords)
        try:
            if "out" in keywords:
                raise PoolTypeError("out is given, and poolgrad's functions make their results themselves")
            return ours(*arguments, **keywords)
        except _REFUSED as error:
            reason = str(error)
        with torchs_functions():
            found = theirs(*arguments, **keywords)  # or its own error
        if reason not in _told:
            _told.add(reason)
            warnings.warn(f"{ours.__name__} is left to torch: {reason}", stacklevel=2)
        return found

    return pool


# ---- the functions below torch.nn.functional, with their own signatures -------------------------------------------------------


def _with_indices(rank: int) -> Callable[..., Any]:
    max_pool = getattr(functional, f"max_pool{rank}d")

    def with_indices(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Any:
        return max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)

    return pooling._named(with_indices, f"max_pool{rank}d_with_indices", ".")


def _adaptive_with_indices(rank: int) -> Callable[..., Any]:
    adaptive = getattr(pooling, f"adaptive_max_pool{rank}d")

    def with_indices(input: Any, output_size: Any) -> Any:
        return adaptive(input, output_size, return_indices=True)

    return pooling._named(with_indices, f"adaptive_max_pool{rank}d", ", with indices.")


def _fractional_with_samples(rank: int) -> Callable[..., Any]:
    fractional = getattr(pooling, f"fractional_max_pool{rank}d")

    def with_samples(input: Any, kernel_size: Any, output_size: Any, random_samples: Any) -> Any:
        return fractional(input, kernel_size, output_size, None, True, random_samples)

    return pooling._named(with_samples, f"fractional_max_pool{rank}d", ".")


def _unpool_to(rank: int) -> Callable[..., Any]:
    def unpool(input: Any, indices: Any, output_size: Any, stride: Any = None, padding: Any = None) -> Any:
        """Three dimensions come with stride and padding, which torch uses to check what F.max_unpool3d has computed from them. One
        dimension comes as two."""
        return pooling.unpool_to(input, indices, tuple(int(n) for n in output_size[-rank:]))

    return pooling._named(unpool, f"max_unpool{rank}d", ".")


def _exchanges() -> List[Tuple[Any, str, Callable[..., Any]]]:
    """(module, name, what goes there) of all that there is in this version of torch."""
    low = torch._C._nn
    ours: List[Tuple[Any, str, Callable[..., Any]]] = [
        (torch, "max_pool1d_with_indices", _with_indices(1)),
        (torch, "adaptive_max_pool1d", _adaptive_with_indices(1)),
    ]
    for rank in (1, 2, 3):
        ours.append((torch, f"max_pool{rank}d", getattr(functional, f"max_pool{rank}d")))
        for name in (f"avg_pool{rank}d", f"adaptive_avg_pool{rank}d"):
            ours.append((torch if rank == 1 else low, name, getattr(pooling, name)))
            if rank == 1 or not name.startswith("adaptive"):
                ours.append((F, name, getattr(pooling, name)))
        if rank > 1:
            ours += [
                (low, f"max_pool{rank}d_with_indices", _with_indices(rank)),
                (low, f"adaptive_max_pool{rank}d", _adaptive_with_indices(rank)),
                (low, f"fractional_max_pool{rank}d", _fractional_with_samples(rank)),
                (low, f"max_unpool{rank}d", _unpool_to(rank)),
            ]
    return [exchange for exchange in ours if hasattr(exchange[0], exchange[1])]


# ---- the switch ----------------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_inside = {False: 0, True: 0}  # by whether averages: how many have entered and not left; everywhere(True) is one of them
_for_the_process: Tuple[bool, ...] = ()
_torchs: Dict[Tuple[Any, str], Tuple[Any, Any]] = {}  # (module, name): (torch's, what we put there)


def _kinds(averages: bool) -> Tuple[bool, ...]:
    return (False, True) if averages else (False,)


def _is_average(name: str) -> bool:
    return "avg" in name


def _enter(kinds: Tuple[bool, ...]) -> None:
    for average in kinds:
        _inside[average] += 1
        if _inside[average] > 1:
            continue
        for module, name, ours in _exchanges():
            if _is_average(name) is average:
                theirs = getattr(module, name)
                put = or_torchs(ours, theirs)
                put.__module__, put.__qualname__ = module.__name__, name  # where pickle finds it
                if hasattr(put, UNSCRIPTABLE):
                    setattr(put, UNSCRIPTABLE, f"{name} is poolgrad's inside everywhere(), where it cannot be compiled; call torch.jit.script outside")
                setattr(module, name, put)
                _torchs[module, name] = (theirs, put)


def _leave(kinds: Tuple[bool, ...]) -> None:
    for average in kinds:
        _inside[average] -= 1
        if _inside[average]:
            continue
        for module, name in [key for key in _torchs if _is_average(key[1]) is average]:
            theirs, put = _torchs.pop((module, name))
            if getattr(module, name, None) is put:  # what others have put there since is theirs to take back
                setattr(module, name, theirs)


class _Everywhere(ContextDecorator):
    """May be entered again while it is inside, as a function that it decorates may call itself."""

    def __init__(self, kinds: Tuple[bool, ...]) -> None:
        self._kinds = kinds
        self._entered = 0

    def __enter__(self) -> None:
        with _lock:
            _enter(self._kinds)
            self._entered += 1

    def __exit__(self, *_: Any) -> None:
        with _lock:
            if not self._entered:
                raise RuntimeError("everywhere() is left, and was not entered")
            self._entered -= 1
            _leave(self._kinds)


def everywhere(on: Optional[bool] = None, *, averages: bool = False) -> Any:
    """`with everywhere():` has torch's pooling functions run by poolgrad, wherever they are called from, and so does a function
    decorated by @everywhere(); everywhere(True) does so for the process, until everywhere(False). averages=True takes average pooling, too: adaptive averages differ from
    torch's in their last bits.

    Where poolgrad refuses (a type, a device, a layout), torch's function runs, and a warning says why, once for every reason.
    """
    global _for_the_process
    if on is None:
        return _Everywhere(_kinds(averages))
    if not isinstance(on, bool):
        raise PoolTypeError(f"on is {on!r}; it must be True, False, or left out for a context manager")
    with _lock:
        wanted = _kinds(averages) if on else ()
        _enter(wanted)
        _leave(_for_the_process)
        _for_the_process = wanted
    return None
