"""Pooling of arrays that are split in space, inside jax.shard_map: what split= of poolgrad.jax's functions runs.

Borders travel by ppermute. Forward exchanges x; backward exchanges dy and routes, never sums of dx: each device gathers for its own inputs
in the order of one process, so that y and dx have its bits for any number of devices. Devices at the ends and between them have problems
of their own (_halo), of which each runs its one (lax.switch).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from ._halo import Job, Layout, layout_of
from ._jax_calls import average_p, forward_p, forward_routes_p, plan_of, scatter_p, spread_p


def axis_size(name: Any) -> int:
    try:
        return lax.axis_size(name) if hasattr(lax, "axis_size") else lax.psum(1, name)
    except NameError:
        raise ValueError(f"split names the mesh axis {name!r}, which is not known here; call this inside jax.shard_map over it") from None


class Split(NamedTuple):
    """A whole problem, and the mesh axis that each spatial axis is cut along, or None."""

    text: str
    names: Tuple[Any, ...]

    @property
    def parts(self) -> Tuple[int, ...]:
        return tuple(1 if name is None else axis_size(name) for name in self.names)

    @property
    def layout(self) -> Layout:
        return layout_of(self.text, self.parts)

    @property
    def averages(self) -> bool:
        return self.layout.route_bytes == 0

    def first_axis(self, array: Any) -> int:
        """Where the spatial axes of x or y begin."""
        return array.ndim - len(self.names) - int(plan_of(self.text).channels_last)


def _cut(array: Any, first: int, at: Sequence[int], size: Sequence[int]) -> Any:
    for axis, (begin, count) in enumerate(zip(at, size), first):
        array = lax.slice_in_dim(array, begin, begin + count, axis=axis)
    return array


def _neighbours(array: Any, axis: int, name: Any, parts: int, width: int, side: int) -> List[Any]:
    """`width` places before (side -1) or after (1) a piece, from as many devices as have them, in order."""
    size, found = array.shape[axis], []
    for step in range(1, -(-width // size) + 1):
        count = min(size, width - (step - 1) * size)
        begin = 0 if side > 0 else size - count
        part = lax.slice_in_dim(array, begin, begin + count, axis=axis)
        found.append(lax.ppermute(part, name, [(i, i - side * step) for i in range(parts) if 0 <= i - side * step < parts]))
    return found[::side]


def _bordered(split: Split, array: Any, first: int, border: Any) -> Any:
    """A piece and what its neighbours have beside it, axis by axis, so that corners come along. Beyond the ends are zeros, which
    nobody reads."""
    for axis, (name, parts, before, after) in enumerate(zip(split.names, split.parts, *border), first):
        around = _neighbours(array, axis, name, parts, before, -1), [array], _neighbours(array, axis, name, parts, after, 1)
        array = jnp.concatenate(sum(around, []), axis) if before or after else array
    return array


def _own_job(split: Split, jobs: Sequence[Job], run: Callable[..., Any], *operands: Any) -> Any:
    """run(job, *operands) with this device's job."""
    distinct = list(dict.fromkeys(jobs))
    if len(distinct) == 1:
        return run(distinct[0], *operands)
    place: Any = 0
    for name, parts in zip(split.names, split.parts):
        place = place * parts + (0 if name is None else lax.axis_index(name))
    number = jnp.asarray([distinct.index(job) for job in jobs], jnp.int32)[place]
    return lax.switch(number, [partial(run, job) for job in distinct], *operands)


def _unfold(split: Split, routes: Any, y_shape: Sequence[int]) -> Any:
    """Routes with an axis of their own for the bytes of an output: so they are cut like y."""
    return routes.reshape((*y_shape, split.layout.route_bytes))


def _forward(split: Split, x: Any, with_routes: bool) -> Any:
    layout, first = split.layout, split.first_axis(x)

    def run(job: Job, x: Any) -> List[Any]:
        read = _cut(x, first, job.at, job.size)
        if not with_routes:
            made = (average_p if split.averages else forward_p).bind(read, text=job.text)
        else:
            y, routes = forward_routes_p.bind(read, text=job.text)
            made = (y, _unfold(split, routes, y.shape))
        return [_cut(one, first, job.keep, layout.outputs) for one in made]

    return _own_job(split, layout.forward, run, _bordered(split, x, first, layout.x_border))


def _backward(split: Split, dy: Any, *routes: Any) -> Any:
    layout, first = split.layout, split.first_axis(dy)

    def run(job: Job, dy: Any, *routes: Any) -> Any:
        if job.text is None:
            last = plan_of(split.text).channels_last
            shape = (*dy.shape[:first], *layout.inputs, *dy.shape[dy.ndim - int(last) :])
            return jnp.broadcast_to(jnp.where(False, dy.ravel()[:1], 0), shape)  # zeros that vary over the mesh, as dy does
        dy, *routes = (_cut(one, first, job.at, job.size) for one in (dy, *routes))
        folded = [one.reshape((*dy.shape[:-1], dy.shape[-1] * layout.route_bytes)) for one in routes]
        return (scatter_p if folded else spread_p).bind(dy, *folded, text=job.text)[0]

    return _own_job(split, layout.backward, run, *(_bordered(split, one, first, layout.dy_border) for one in (dy, *routes)))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def pool(split: Split, x: Any) -> Any:
    return _forward(split, x, with_routes=False)[0]


def _pool_forward(split: Split, x: Any) -> Any:
    y, *routes = _forward(split, x, with_routes=not split.averages)
    return y, tuple(routes)


def _pool_backward(split: Split, routes: Any, dy: Any) -> Any:
    return (_backward(split, dy, *routes),)


pool.defvjp(_pool_forward, _pool_backward)
