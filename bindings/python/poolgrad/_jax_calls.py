"""The XLA FFI calls behind poolgrad.jax, as JAX primitives with all their rules.

    forward         x -> y                  what runs when nobody differentiates; its tangent is gather's (ty = S tx)
    forward_routes  x -> y, routes
    gather          tx, routes -> ty        S, linear in its first operand
    scatter         dy, routes -> dx        S^T; gather's transpose, and gather is its
    average         x -> y                  averages: the same with a constant S, so forward is linear itself
    spread          dy -> dx                their S^T

With a bias before relu, R says which outputs have a route, each with its channel:

    forward_bias         x, bias -> y           its tangent is gather's and routed's
    forward_bias_routes  x, bias -> y, routes
    bias_sum             dy, routes -> dbias    R^T, in the library's order; routed's transpose, and routed is its
    routed               tbias, routes -> ty    R: gather of tbias spread over x

So reverse mode and higher orders follow. A call takes any number of leading axes, so vmap only moves its axis to the front, and as many
channels as its operands have: where arrays are sharded over leading axes or channels, every device makes the call on what it has.
"""

from __future__ import annotations

from ctypes import byref
from functools import lru_cache
from math import prod
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import BATCHING, CompoundFactor, SdyShardingRule, custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from . import _abi, _jax_build
from ._core import CorePlan, parse_problem

try:
    from jax._src.dispatch import prim_requires_devices_during_lowering as _need_devices
except ImportError:
    _need_devices = set()  # then lowering is given them anyway


# ---- problems: text with batch 1, which is hashable, and what the handlers read --------------------------------------------------


@lru_cache(maxsize=1024)
def plan_of(text: str) -> CorePlan:
    return CorePlan(parse_problem(text))


@lru_cache(maxsize=1024)
def _with_channels(text: str, channels: int) -> str:
    problem = parse_problem(text)
    if problem.channels == channels:
        return text
    problem.channels = channels
    return _abi.read_text(_abi.library().poolgrad_problem_format, byref(problem))


def channel_axis(text: str) -> int:
    """Counted from the end; leading axes come before it and before the spatial ones."""
    plan = plan_of(text)
    return -1 if plan.channels_last else -1 - plan.rank


def _shapes(text: str, operand: Sequence[int]) -> Dict[str, Tuple[int, ...]]:
    """The shapes of x, y and routes for an operand with any leading axes."""
    plan = plan_of(text)
    lead = tuple(operand[: len(operand) - plan.rank - 1])
    y = plan.y_shape[1:]
    line = (y[-1] * plan.route_bits + 7) // 8
    return {"x": (*lead, *plan.x_shape[1:]), "y": (*lead, *y), "routes": (*lead, *y[:-1], line)}


class _Call(NamedTuple):
    name: str
    target: str
    operands: Tuple[str, ...]
    results: Tuple[str, ...]


_CALLS = {
    name: _Call(name, target, operands, results)
    for name, target, operands, results in (
        ("forward", "forward", ("x",), ("y",)),
        ("forward_routes", "forward_routes", ("x",), ("y", "routes")),
        ("gather", "gather", ("x", "routes"), ("y",)),
        ("scatter", "scatter", ("y", "routes"), ("x",)),
        ("average", "forward", ("x",), ("y",)),
        ("spread", "spread", ("y",), ("x",)),
    )
}


@lru_cache(maxsize=1)
def _register() -> None:
    _jax_build.register()


def _run(call: _Call, text: str, *operands: Any) -> Tuple[Any, ...]:
    _register()
    first = operands[0]
    text = _with_channels(text, first.shape[channel_axis(text)])
    shapes = _shapes(text, first.shape)
    results = [jax.ShapeDtypeStruct(shapes[kind], jnp.uint8 if kind == "routes" else first.dtype) for kind in call.results]
    return tuple(jax.ffi.ffi_call(f"poolgrad_{call.target}", results, vmap_method="broadcast_all")(*operands, problem=text))


# ---- arrays that are sharded: leading axes are split at will, channels where every device gets whole bytes of routes ---------------


def _spec(call: _Call, text: str, mesh: Any, arrays: Sequence[Any]) -> PartitionSpec:
    """How all operands and results are split: as one of them is, where that can be."""
    dimensions = len(arrays[0].shape)
    channel = dimensions + channel_axis(text)
    spec: List[Any] = [None] * dimensions
    used: set = set()
    for axis in (*range(dimensions - plan_of(text).rank - 1), channel):
        for array in arrays:
            named = (*array.sharding.spec, *(None,) * dimensions)[axis]
            names = named if isinstance(named, tuple) else (named,)
            if named is not None and not used.intersection(names):
                spec[axis] = named
                used.update(names)
                break
    if spec[channel] is not None:
        names = spec[channel] if isinstance(spec[channel], tuple) else (spec[channel],)
        each, rest = divmod(arrays[0].shape[channel], prod(mesh.shape[name] for name in names))
        packed = plan_of(text).channels_last and "routes" in call.operands + call.results
        if rest or (packed and each * plan_of(text).route_bits % 8):
            spec[channel] = None
    return PartitionSpec(*spec)


@lru_cache(maxsize=1)
def _devices() -> int:
    """The most that a mesh can have."""
    return max(jax.device_count(), jax.device_count("cpu"))


def _sharding_rule(call: _Call, text: str) -> SdyShardingRule:
    """The same for Shardy: an axis that two arrays share has the same name in both. Several channels in a byte of routes, and several
    bytes of routes for a channel, are a compound of two."""
    plan = plan_of(text)
    bits, channels = plan.route_bits, plan.problem.channels
    names: Dict[str, Any] = {"x": "c", "y": "c", "routes": "c"}
    sizes: Dict[str, int] = {}
    if plan.channels_last and "routes" in call.operands + call.results and bits != 8:
        if bits < 8 and channels * bits % (8 * _devices()):  # bytes that some mesh would cut
            names = {"x": "cx", "y": "cy", "routes": "cr"}  # they are not split
        elif bits < 8:
            names["x"] = names["y"] = CompoundFactor("c", "code")
            sizes["code"] = 8 // bits
        else:
            names["routes"] = CompoundFactor("c", "byte")
            sizes["byte"] = bits // 8

    def mapping(kind: str) -> Tuple[Any, ...]:
        space = tuple(f"{kind}{axis}" for axis in range(plan.rank))
        return (BATCHING, *space, names[kind]) if plan.channels_last else (BATCHING, "c", *space)

    return SdyShardingRule(tuple(map(mapping, call.operands)), tuple(map(mapping, call.results)), **sizes)


@lru_cache(maxsize=1024)
def _partitioned(call: _Call, text: str) -> Any:
    def run(*operands: Any) -> Tuple[Any, ...]:
        return _run(call, text, *operands)

    def partition(mesh: Any, operands: Any, results: Any) -> Any:
        sharding = NamedSharding(mesh, _spec(call, text, mesh, (*operands, *results)))
        return mesh, run, (sharding,) * len(results), (sharding,) * len(operands)

    def infer(mesh: Any, operands: Any, results: Any) -> Any:  # for JAX before Shardy
        return (NamedSharding(mesh, _spec(call, text, mesh, operands)),) * len(results)

    partitioned = custom_partitioning(run)
    partitioned.def_partition(partition, infer_sharding_from_operands=infer, sharding_rule=_sharding_rule(call, text))
    return partitioned


@lru_cache(maxsize=1024)
def _jitted(call: _Call, text: str) -> Any:
    return jax.jit(lambda *operands: _partitioned(call, text)(*operands))


# ---- primitives ------------------------------------------------------------------------------------------------------------------


def _make(call: _Call) -> Any:
    """A primitive with the rules that all of them share."""
    primitive = Primitive(f"poolgrad_{call.name}")
    primitive.multiple_results = True

    def abstract_eval(first: Any, *_: Any, text: str) -> Any:
        shapes = _shapes(_with_channels(text, first.shape[channel_axis(text)]), first.shape)
        return [
            first.update(shape=shapes[kind], dtype=jnp.dtype("uint8") if kind == "routes" else first.dtype, weak_type=False)
            for kind in call.results
        ]

    def batch(operands: Any, dims: Any, *, text: str) -> Any:
        size = next(operand.shape[dim] for operand, dim in zip(operands, dims) if dim is not None)
        moved = (
            jnp.broadcast_to(operand, (size, *operand.shape)) if dim is None else jnp.moveaxis(operand, dim, 0)
            for operand, dim in zip(operands, dims)
        )
        return primitive.bind(*moved, text=text), [0] * len(call.results)

    primitive.def_impl(lambda *operands, text: _jitted(call, text)(*operands))
    primitive.def_abstract_eval(abstract_eval)
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(
        primitive, mlir.lower_fun(lambda *operands, text: _partitioned(call, text)(*operands), multiple_results=True)
    )
    _need_devices.add(primitive)  # custom_partitioning, which comes in with the lowering, asks for them
    return primitive


def _no_tangent(value: Any) -> Any:
    typeof = jax.typeof if hasattr(jax, "typeof") else jax.core.get_aval  # before 0.6
    return ad.Zero(typeof(value).to_tangent_aval())


def _make_linear(primitive: Any, transpose: Any) -> None:
    """(vector) or (vector, routes) -> vector, linear in the vector."""

    def jvp(primals: Any, tangents: Any, *, text: str) -> Any:
        out = primitive.bind(*primals, text=text)
        if type(tangents[0]) is ad.Zero:
            return out, [_no_tangent(out[0])]
        return out, primitive.bind(tangents[0], *primals[1:], text=text)

    def transpose_rule(cotangents: Any, vector: Any, *routes: Any, text: str) -> Any:
        if type(cotangents[0]) is ad.Zero:
            return [None] * (1 + len(routes))
        return [*transpose.bind(cotangents[0], *routes, text=text), *(None,) * len(routes)]

    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose_rule


forward_p, forward_routes_p, gather_p, scatter_p, average_p, spread_p = map(_make, _CALLS.values())
for _one, _other in ((gather_p, scatter_p), (average_p, spread_p)):
    _make_linear(_one, _other)
    _make_linear(_other, _one)


def _forward_jvp(primals: Any, tangents: Any, *, text: str) -> Any:
    if type(tangents[0]) is ad.Zero:
        y = forward_p.bind(*primals, text=text)
        return y, [_no_tangent(y[0])]
    y, routes = forward_routes_p.bind(*primals, text=text)
    return [y], gather_p.bind(tangents[0], routes, text=text)


def _forward_routes_jvp(primals: Any, tangents: Any, *, text: str) -> Any:
    y, routes = forward_routes_p.bind(*primals, text=text)
    along = type(tangents[0]) is not ad.Zero
    ty = gather_p.bind(tangents[0], routes, text=text)[0] if along else _no_tangent(y)
    return [y, routes], [ty, _no_tangent(routes)]


ad.primitive_jvps[forward_p] = _forward_jvp
ad.primitive_jvps[forward_routes_p] = _forward_routes_jvp


# ---- a bias: XLA gathers what is sharded before these ------------------------------------------------------------------------------


def _bias_shapes(name: str, text: str, operands: Sequence[Any]) -> Tuple[str, Dict[str, Tuple[int, ...]]]:
    """The problem of these operands, and the shapes of its x, y, routes and bias."""
    channels = operands[0].shape[0] if name == "routed" else operands[0].shape[channel_axis(text)]
    text = _with_channels(text, channels)
    array = operands[1 if name == "routed" else 0]  # with the leading axes; routes have as many others as x
    return text, {**_shapes(text, array.shape), "bias": (channels,)}


_BIAS_RESULTS = {"forward_bias": ("y",), "forward_bias_routes": ("y", "routes"), "bias_sum": ("bias",), "routed": ("y",)}


def _run_bias(name: str, given: str, *operands: Any) -> Any:
    text, shapes = _bias_shapes(name, given, operands)
    if name == "routed":
        tbias, routes = operands
        spread = tbias if plan_of(text).channels_last else tbias.reshape(-1, *(1,) * plan_of(text).rank)
        return gather_p.bind(jnp.broadcast_to(spread, shapes["x"]), routes, text=text)
    _register()
    dtype = operands[0].dtype
    results = [jax.ShapeDtypeStruct(shapes[kind], jnp.uint8 if kind == "routes" else dtype) for kind in _BIAS_RESULTS[name]]
    return tuple(jax.ffi.ffi_call(f"poolgrad_{name}", results, vmap_method="sequential")(*operands, problem=text))


@lru_cache(maxsize=1024)
def _jitted_bias(name: str, text: str) -> Any:
    return jax.jit(lambda *operands: _run_bias(name, text, *operands))


def _make_bias(name: str) -> Any:
    primitive = Primitive(f"poolgrad_{name}")
    primitive.multiple_results = True

    def abstract_eval(first: Any, *rest: Any, text: str) -> Any:
        shapes = _bias_shapes(name, text, (first, *rest))[1]
        types = [(shapes[kind], jnp.dtype("uint8") if kind == "routes" else first.dtype) for kind in _BIAS_RESULTS[name]]
        if len(types[0][0]) != len(first.shape):  # what first says of its axes means nothing then
            return [type(first)(shape, dtype) for shape, dtype in types]
        return [first.update(shape=shape, dtype=dtype, weak_type=False) for shape, dtype in types]

    def batch(operands: Any, dims: Any, *, text: str) -> Any:
        count = len(_BIAS_RESULTS[name])
        if name.startswith("forward") and dims[1] is None:
            return primitive.bind(jnp.moveaxis(operands[0], dims[0], 0), operands[1], text=text), [0] * count
        size = next(operand.shape[dim] for operand, dim in zip(operands, dims) if dim is not None)
        moved = tuple(
            jnp.broadcast_to(operand, (size, *operand.shape)) if dim is None else jnp.moveaxis(operand, dim, 0)
            for operand, dim in zip(operands, dims)
        )
        return list(jax.lax.map(lambda one: tuple(primitive.bind(*one, text=text)), moved)), [0] * count

    primitive.def_impl(lambda *operands, text: _jitted_bias(name, text)(*operands))
    primitive.def_abstract_eval(abstract_eval)
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(
        primitive, mlir.lower_fun(lambda *operands, text: _run_bias(name, text, *operands), multiple_results=True)
    )
    _need_devices.add(primitive)  # for gather's, inside routed
    return primitive


forward_bias_p, forward_bias_routes_p, bias_sum_p, routed_p = map(_make_bias, _BIAS_RESULTS)
_make_linear(bias_sum_p, routed_p)
_make_linear(routed_p, bias_sum_p)


def _bias_tangent(y: Any, routes: Any, tangents: Any, text: str) -> Any:
    along = [
        primitive.bind(tangent, routes, text=text)[0]
        for primitive, tangent in zip((gather_p, routed_p), tangents)
        if type(tangent) is not ad.Zero
    ]
    return along[0] + along[1] if len(along) == 2 else along[0] if along else _no_tangent(y)


def _forward_bias_jvp(primals: Any, tangents: Any, *, text: str) -> Any:
    if all(type(tangent) is ad.Zero for tangent in tangents):
        y = forward_bias_p.bind(*primals, text=text)
        return y, [_no_tangent(y[0])]
    y, routes = forward_bias_routes_p.bind(*primals, text=text)
    return [y], [_bias_tangent(y, routes, tangents, text)]


def _forward_bias_routes_jvp(primals: Any, tangents: Any, *, text: str) -> Any:
    y, routes = forward_bias_routes_p.bind(*primals, text=text)
    return [y, routes], [_bias_tangent(y, routes, tangents, text), _no_tangent(routes)]


ad.primitive_jvps[forward_bias_p] = _forward_bias_jvp
ad.primitive_jvps[forward_bias_routes_p] = _forward_bias_routes_jvp
