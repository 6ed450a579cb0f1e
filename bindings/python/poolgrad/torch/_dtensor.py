"""DTensors: those sharded over batch or channels are pooled where they lie, those sharded in space exchange borders; nothing is gathered.

Their pieces are pooled like any tensor, between DTensor's own to_local and from_local, which autograd knows; so there are no sharding
rules to register. In space, y is cut as DTensor cuts: poolgrad.torch.distributed knows how, and the bits are those of one process.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch

from ._plans import CHANNELS_LAST, PoolTypeError, PoolValueError, Window, lies_channels_last

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def is_dtensor(x: Any) -> bool:
    """By name: to import it takes longer than all of poolgrad."""
    return type(x).__name__ == "DTensor" and hasattr(x, "to_local")


def pool(name: str, rank: int, x: Any, run: Callable[[torch.Tensor], Any], make: Callable[[Any], Window], return_indices: bool) -> Any:
    """run(x), which pools `rank` spatial dimensions by the window make(x), for a DTensor."""
    if _VERSION < (2, 4):
        raise PoolTypeError(f"input is a DTensor; {name} takes those from torch 2.4 on, and this is {torch.__version__}: give it x.to_local()")
    first = x.dim() - rank
    for placement in x.placements:
        if placement.is_partial():
            raise PoolValueError(f"input is a DTensor of partial sums; call redistribute on it first: {name} is not linear")
    spatial = [i for i, placement in enumerate(x.placements) if placement.is_shard() and placement.dim % x.dim() >= first]
    if spatial:
        piece, sizes = _pool_in_space(name, rank, x, spatial, make(x), return_indices)
        return _whole(x, piece, sizes)
    found = run(x.to_local())
    if isinstance(found, tuple):
        return tuple(_whole(x, one, one.shape[-rank:]) for one in found)
    return _whole(x, found, found.shape[-rank:])


def _pool_in_space(name: str, rank: int, x: Any, spatial: Sequence[int], window: Window, return_indices: bool) -> Tuple[torch.Tensor, Sequence[int]]:
    """(this rank's piece of y, its whole spatial sizes). `spatial` are the mesh dimensions that cut spatial ones."""
    from .distributed import pool_chunks, pooled_sizes

    cut = [x.placements[i].dim % x.dim() for i in spatial]
    told = f"input is a DTensor sharded in dimension {', '.join(map(str, cut))}, a spatial one"
    if window.outputs or return_indices:
        what = "no indices" if return_indices else "no windows of different sizes"
        raise PoolValueError(f"{told}; {name} has {what} there: call redistribute on it first, to shard batch or channels instead")
    if len(set(cut)) < len(cut) or any(type(x.placements[i]).__name__ != "Shard" for i in spatial):
        raise PoolValueError(f"{told} by the placements {tuple(x.placements)}; give each such dimension one mesh dimension and plain Shard")
    mesh, here = x.device_mesh, x.device_mesh.get_coordinate()
    if here is None:
        raise PoolValueError(f"input is a DTensor of a mesh that this rank is not in; {name} pools it on the ranks of its mesh")
    ranks = mesh.mesh[tuple(slice(None) if i in spatial else here[i] for i in range(mesh.ndim))]
    sizes = tuple(x.shape[x.dim() - rank :])
    dims, grid = tuple(dim - (x.dim() - rank) for dim in cut), tuple(ranks.shape)
    piece = pool_chunks(x.to_local(), window, sizes, dims, grid, tuple(ranks.flatten().tolist()))
    return piece, pooled_sizes(window, sizes, x.dtype)


def _whole(x: Any, piece: torch.Tensor, sizes: Sequence[int]) -> Any:
    """The DTensor of these spatial sizes whose piece this is. Its shape and strides, in x's format, are said, since pieces may be uneven."""
    rank = len(sizes)
    shape = torch.Size((*x.shape[:-rank], *sizes))
    last = lies_channels_last(x.shape, x.stride(), rank)
    like = torch.empty(shape, device="meta", memory_format=CHANNELS_LAST[rank] if last else torch.contiguous_format)
    return type(x).from_local(piece, x.device_mesh, x.placements, run_check=False, shape=shape, stride=like.stride())
