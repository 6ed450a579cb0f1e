"""DTensors that are sharded over batch or channels: every plane is pooled where it lies, and nothing is gathered.

Their pieces are pooled like any tensor, between DTensor's own to_local and from_local, which autograd knows; so there are no sharding
rules to register. Pieces of planes (Shard of a spatial dimension) have halos, and may give uneven pieces of y that a DTensor cannot
be: those are poolgrad.torch.distributed's.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from ._plans import CHANNELS_LAST, PoolTypeError, PoolValueError, lies_channels_last

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def is_dtensor(x: Any) -> bool:
    """By name: to import it takes longer than all of poolgrad."""
    return type(x).__name__ == "DTensor" and hasattr(x, "to_local")


def pool(name: str, rank: int, x: Any, run: Callable[[torch.Tensor], Any]) -> Any:
    """run(x), which pools `rank` spatial dimensions, for a DTensor."""
    if _VERSION < (2, 4):
        raise PoolTypeError(f"input is a DTensor; {name} takes those from torch 2.4 on, and this is {torch.__version__}: give it x.to_local()")
    for placement in x.placements:
        if placement.is_shard() and placement.dim % x.dim() >= x.dim() - rank:
            raise PoolValueError(
                f"input is a DTensor sharded in dimension {placement.dim}, a spatial one; give its pieces, x.to_local(), to "
                f"poolgrad.torch.distributed.{name}, with dims={placement.dim}"
            )
        if placement.is_partial():
            raise PoolValueError(f"input is a DTensor of partial sums; call redistribute on it first: {name} is not linear")
    found = run(x.to_local())
    if isinstance(found, tuple):
        return tuple(_whole(x, rank, one) for one in found)
    return _whole(x, rank, found)


def _whole(x: Any, rank: int, piece: torch.Tensor) -> Any:
    """The DTensor whose piece this is. Its shape is said, since pieces may be uneven."""
    shape = torch.Size((*x.shape[:-rank], *piece.shape[-rank:]))
    last = lies_channels_last(piece.shape, piece.stride(), rank)
    like = torch.empty(shape, device="meta", memory_format=CHANNELS_LAST[rank] if last else torch.contiguous_format)
    return type(x).from_local(piece, x.device_mesh, x.placements, run_check=False, shape=shape, stride=like.stride())
