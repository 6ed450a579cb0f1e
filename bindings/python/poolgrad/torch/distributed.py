"""Pooling of a tensor that is cut in space among the ranks of a torch.distributed group, with the bits of one process.

>>> from poolgrad.torch import distributed as split
>>> y = split.max_pool3d(x, 3, stride=2, padding=1)                                     # dimension 2 is cut among all ranks
>>> y = split.max_pool3d(x, 3, stride=2, padding=1, dims=(2, 3), grid=(2, 4), group=g)  # two dimensions, among 2 x 4 ranks

Every rank gives its own piece and gets its own piece of y; an output belongs to the rank that has the first input of its window.
The library says who owns, reads and sends what (_shard); here boxes are moved. Forward exchanges the halo of x and pools the interior
meanwhile. Backward exchanges dy and routes of the border, never sums of dx: each rank gathers for its own inputs in the order of one
process, so that dx, too, has the same bits for any number of ranks.

All ranks must make the same calls. Before anything else they tell each other what they were given, so that a disagreement is an error
on every rank, and sizes may change from call to call. With fixed_shapes=True they do so only at the first call with a shape.
"""

from __future__ import annotations

import weakref
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.autograd import Function

from .. import _abi
from .._core import freeze, to_bool, to_int
from .._shard import At, Box, Split, around, inside, overlap, sizes_of
from . import functional, pooling
from ._autograd import has_tangents
from ._plain import PLAIN_TYPES
from ._plans import CHANNELS_LAST, DTYPES, PoolTypeError, PoolValueError, TorchPlan, Window, lies_channels_last, make_window, problem_of

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
    "relu_max_pool1d", "relu_max_pool2d", "relu_max_pool3d",
]  # fmt: skip


# ---- what the ranks tell each other --------------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """A call in plain integers. On the wire a tuple takes as much room as its default, so that all calls are equally long."""

    understood: int = 0  # 0: the rank refused its arguments, and says nothing else
    function: int = 0  # of __all__
    kernel_size: Tuple[int, ...] = (0,) * 3
    stride: Tuple[int, ...] = (0,) * 3
    padding: Tuple[int, ...] = (0,) * 6
    padding_kind: int = 0
    dilation: Tuple[int, ...] = (0,) * 3
    ceil_mode: int = 0
    ties: int = 0
    count_include_pad: int = 0
    divisor_override: int = 0
    dtype: int = 0
    requires_grad: int = 0
    dims: Tuple[int, ...] = (0,) * 3  # spatial axes
    grid: Tuple[int, ...] = (0,) * 3
    fixed_shapes: int = 0
    shape: Tuple[int, ...] = (0,) * 5  # of x_local: the one thing in which ranks may differ


_ROOM = tuple(len(field) if isinstance(field, tuple) else 0 for field in _Call())
_NOTHING = -(1 << 62)


def _to_numbers(call: _Call) -> List[int]:
    numbers: List[int] = []
    for field, room in zip(call, _ROOM):
        numbers += (*field, *(_NOTHING,) * (room - len(field))) if room else (field,)
    return numbers


def _of_numbers(numbers: Sequence[int]) -> _Call:
    fields: List[Any] = []
    for room in _ROOM:
        taken, numbers = numbers[: room or 1], numbers[room or 1 :]
        fields.append(tuple(n for n in taken if n != _NOTHING) if room else taken[0])
    return _Call(*fields)


def _word(names: Dict[Any, int], number: int) -> str:
    return next(str(name) for name, known in names.items() if known == number)


_WORDS: Dict[str, Callable[[Any], str]] = {
    "function": lambda number: __all__[number],
    "dtype": lambda number: _word(DTYPES, number),
    "ties": lambda number: repr(_word(_abi.TIES, number)),
    "padding_kind": lambda number: repr(_word(_abi.PADDINGS, number)),
    **{name: lambda number: str(bool(number)) for name in ("ceil_mode", "count_include_pad", "requires_grad", "fixed_shapes")},
}


def _check_agreement(calls: Sequence[_Call]) -> None:
    for rank, call in enumerate(calls):
        if not call.understood:
            raise PoolValueError(f"rank {rank} of the group refused its arguments; the error raised there says why")
    for rank, call in enumerate(calls):
        for name, first, other in zip(_Call._fields[:-1], calls[0], call):
            if first != other:
                what = {"function": "the call", "dtype": "x_local's type", "padding_kind": "padding"}.get(name, name)
                say = _WORDS.get(name, str)
                raise PoolValueError(
                    f"{what} is {say(other)} on rank {rank} of the group and {say(first)} on rank 0; all ranks must make the same call"
                )


# ---- the ranks of a group ------------------------------------------------------------------------------------------------------


class _Ranks:
    """What this process knows of a group, or of the ranks of `numbers` among all."""

    def __init__(self, group: Any, numbers: Sequence[int] = ()) -> None:
        self.size, self.me = dist.get_world_size(group), dist.get_rank(group)
        self.by_cpu = dist.get_backend(group) == "gloo"  # which moves no memory of a GPU
        self.by_gpu = dist.get_backend(group) == "nccl"  # which moves no other
        self.numbers = [rank if group is dist.group.WORLD else dist.get_global_rank(group, rank) for rank in range(self.size)]
        self.calls = self.agreements = 0
        if numbers:
            self.size, self.me, self.numbers = len(numbers), numbers.index(self.me), list(numbers)
            self.calls = 1 << 20  # so that their messages are nobody else's
        self.agreed: Dict[_Call, Any] = {}
        self.layouts: Dict[Any, "_Layout"] = {}


_known: "weakref.WeakKeyDictionary[Any, Dict[Tuple[int, ...], _Ranks]]" = weakref.WeakKeyDictionary()


def _ranks_of(group: Any, numbers: Tuple[int, ...] = ()) -> _Ranks:
    known = _known.setdefault(group, {})
    if numbers not in known:
        known[numbers] = _Ranks(group, numbers)
    return known[numbers]


def _failed(error: RuntimeError) -> RuntimeError:
    return RuntimeError(f"the exchange between the ranks failed: a rank has ended, or does not make this call ({error})")


class _Wire:
    """The messages of one call and of its gradient. Their tag says which call and what was agreed: what belongs to another never
    arrives (NCCL knows no tags)."""

    def __init__(self, group: Any, ranks: _Ranks, device: torch.device) -> None:
        self.group, self.ranks = group, ranks
        self.device = torch.device("cpu") if ranks.by_cpu else device
        if ranks.by_gpu and device.type != "cuda":  # which is refused, and the others are told
            self.device = torch.device("cuda", torch.cuda.current_device())
        ranks.calls += 1
        self.call, self.agreement = ranks.calls, 0

    def agree(self, call: _Call) -> Tuple[_Call, ...]:
        """The calls of all ranks, this being ours."""
        ranks = self.ranks
        calls, self.agreement = ranks.agreed.get(call, (None, 0))
        if calls is not None:
            return calls
        mine = torch.tensor(_to_numbers(call), dtype=torch.int64, device=self.device)
        all_ = [torch.empty_like(mine) for _ in range(ranks.size)]
        try:
            dist.all_gather(all_, mine, group=self.group)
        except RuntimeError as error:
            raise _failed(error) from error
        calls = tuple(_of_numbers(numbers.tolist()) for numbers in all_)
        if call.understood:
            _check_agreement(calls)
            _cuts(calls, _places(call.kernel_size, call.dims, call.grid))  # or an error: what is remembered below was right
        if call.fixed_shapes:
            if len(ranks.agreed) >= 1024:
                ranks.agreed.clear()  # on all ranks at once: they all come by here together
            ranks.agreements += 1
            self.agreement = ranks.agreements
            ranks.agreed[call] = calls, self.agreement
        return calls

    def post(self, step: int, sends: List[Tuple[int, torch.Tensor]], receives: List[Tuple[int, torch.Tensor]]) -> Callable[[], None]:
        """Starts all messages; what is returned waits for them."""
        tag = ((self.call * 64 + self.agreement % 64) * 4 + step) % (1 << 31)
        numbers = self.ranks.numbers
        try:
            posts = [dist.P2POp(dist.irecv, buffer, numbers[rank], self.group, tag) for rank, buffer in receives]
            posts += [dist.P2POp(dist.isend, buffer, numbers[rank], self.group, tag) for rank, buffer in sends]
            works = dist.batch_isend_irecv(posts) if posts else []  # at once: NCCL's messages would wait for each other
        except RuntimeError as error:
            raise _failed(error) from error

        def wait() -> None:
            try:
                for work in works:
                    work.wait()
            except RuntimeError as error:
                raise _failed(error) from error

        return wait


# ---- a tensor cut among them -----------------------------------------------------------------------------------------------------

Part = Tuple[Box, List[torch.Tensor]]  # one or several tensors over the same box of places


def _places(kernel: Sequence[int], dims: Sequence[int], grid: Sequence[int]) -> List[At]:
    """Which piece of every spatial axis each rank has: ranks are numbered over the grid in row-major order."""
    places = []
    for rank in range(prod(grid)):
        at, rest = [0] * len(kernel), rank
        for axis, parts in reversed(tuple(zip(dims, grid))):
            rest, at[axis] = divmod(rest, parts)
        places.append(tuple(at))
    return places


def _cuts(calls: Sequence[_Call], places: Sequence[At]) -> List[Tuple[int, ...]]:
    """Where the axes are cut, from the shapes of all pieces."""
    spatial = len(places[0])
    lead = calls[0].shape[:-spatial]
    sizes: List[Dict[int, Tuple[int, int]]] = [{} for _ in range(spatial)]
    for rank, (call, at) in enumerate(zip(calls, places)):
        if call.shape[:-spatial] != lead:
            raise PoolValueError(
                f"x_local has the shape {call.shape} on rank {rank} of the group and {calls[0].shape} on rank 0; they may differ in "
                "spatial dimensions only"
            )
        for axis, (piece, size) in enumerate(zip(at, call.shape[-spatial:])):
            first, expected = sizes[axis].setdefault(piece, (rank, size))
            if size != expected:
                raise PoolValueError(
                    f"x_local has {size} in dimension {len(lead) + axis} on rank {rank} of the group and {expected} on rank {first}; "
                    "both are at the same place of that dimension and must agree"
                )
    return [(0, *accumulate(size for _, (_, size) in sorted(axis.items()))) for axis in sizes]


Cuts = Sequence[Tuple[int, ...]]  # of every spatial axis


class _Layout:
    """A rank's part of a pooling: its plans, and what it sends and receives. y is cut at `out_cuts`, if given; else an output belongs
    to the rank that has the first input of its window."""

    def __init__(
        self, me: int, places: Sequence[At], cuts: Cuts, window: Window, x: torch.Tensor, channels_last: bool,
        out_cuts: Optional[Cuts] = None,
    ) -> None:  # fmt: skip
        rank = len(window.kernel)
        self.lead = tuple(x.shape[:-rank])
        self.dtype, self.device, self.channels_last = x.dtype, x.device, channels_last
        self.element_size = x.element_size()
        self.format = CHANNELS_LAST[rank] if channels_last else torch.contiguous_format

        def plan(problem: Any, box: Box) -> TorchPlan:
            return TorchPlan((*self.lead, *sizes_of(box)), x.dtype, x.device, channels_last, window, problem)

        whole = (*self.lead, *(axis[-1] for axis in cuts))
        split = Split(problem_of(whole, x.dtype, x.device, channels_last, window), cuts, TorchPlan.words)
        shards = [split.shard(at) for at in places]
        outputs = [shard.outputs for shard in shards]
        pooled: List[Any] = shards  # whose forward problem each rank runs
        if out_cuts is None:
            pieces = split.pieces(places[me])
        else:
            outputs = [tuple((axis[i], axis[i + 1]) for axis, i in zip(out_cuts, at)) for at in places]
            pooled = [around(split.problem, box, TorchPlan.words) for box in outputs]
            pieces = [] if pooled[me] is None else [(pooled[me], True)]
        self.inputs, self.outputs, self.over = shards[me].inputs, outputs[me], shards[me].over
        self.pieces = [(plan(piece.forward, piece.read), piece, waits) for piece, waits in pieces]
        self.backward = None if shards[me].backward is None else plan(shards[me].backward, shards[me].inputs)
        plans = [*(made for made, _, _ in self.pieces), *([self.backward] if self.backward else [])]
        self.route_bytes = plans[0].route_bits // 8 if plans else 0  # of an output; 0 for averages

        given = {"x": [shard.inputs for shard in shards], "dy": outputs}
        taken = {
            "x": [None if shard is None or shard.forward is None else shard.read for shard in pooled],
            "dy": [None if shard.backward is None else shard.over for shard in shards],
        }

        def messages(what: str, sent: bool) -> List[Tuple[int, Box]]:
            found = []
            for other in range(len(places)):
                giver, taker = (me, other) if sent else (other, me)
                wanted = taken[what][taker]
                box = overlap(given[what][giver], wanted) if wanted else None
                if other != me and box and prod(self.lead):
                    found.append((other, box))
            return found

        self.sends = {what: messages(what, True) for what in ("x", "dy")}
        self.receives = {what: messages(what, False) for what in ("x", "dy")}

    # Places are in the order of torch's tensors; routes have one more dimension behind them, the bytes of an output.

    def _empty(self, box: Box, routes: bool = False) -> torch.Tensor:
        shape = (*self.lead, *sizes_of(box))
        if not routes:
            return torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=self.format)
        if not self.channels_last:
            return torch.empty((*shape, self.route_bytes), dtype=torch.uint8, device=self.device)
        made = torch.empty((shape[0], *shape[2:], shape[1], self.route_bytes), dtype=torch.uint8, device=self.device)
        return made.movedim(-2, 1)

    def _routes_of(self, plan: TorchPlan, routes: torch.Tensor) -> torch.Tensor:
        routes = routes.view(*(plan.y_shape if len(self.lead) == 2 else plan.tensor_y), self.route_bytes)
        return routes.movedim(-2, 1) if self.channels_last else routes

    def _dense(self, routes: torch.Tensor) -> torch.Tensor:
        return (routes.movedim(1, -2) if self.channels_last else routes).contiguous()

    def _slice(self, tensor: torch.Tensor, over: Box, box: Box) -> torch.Tensor:
        """`box` of a tensor that lies over another."""
        if box == over:
            return tensor
        inner = (slice(begin - first, end - first) for (begin, end), (first, _) in zip(box, over))
        return tensor[(slice(None),) * len(self.lead) + tuple(inner)]

    def _routes_over(self, box: Box, routes: torch.Tensor) -> torch.Tensor:
        """This rank's routes, over a box that may have more outputs: of those any bytes will do, as nobody looks at the result."""
        if inside(box, self.outputs):
            return self._slice(routes, self.outputs, box)
        whole = self._empty(box, routes=True)
        self._slice(whole, box, self.outputs).copy_(routes)
        return whole

    def _gathered(self, box: Box, parts: Sequence[Part]) -> List[torch.Tensor]:
        """The tensors over a box from parts that cover it; the first part itself, where that is enough."""
        over, tensors = parts[0]
        if inside(box, over):
            return [self._slice(tensor, over, box) for tensor in tensors]
        whole = [self._empty(box, routes=number > 0) for number in range(len(tensors))]
        for over, tensors in parts:
            both = overlap(over, box)
            if both:
                for to, tensor in zip(whole, tensors):
                    self._slice(to, box, both).copy_(self._slice(tensor, over, both))
        return whole

    def _message(self, box: Box, with_routes: bool, device: torch.device) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        """Memory for a tensor over a box, and routes: its bytes, and the tensors in it."""
        shape, behind = (*self.lead, *sizes_of(box)), (self.route_bytes if with_routes else 0)
        count, size = prod(shape), self.element_size
        buffer = torch.empty(count * (size + behind), dtype=torch.uint8, device=device)
        views = [buffer[: count * size].view(self.dtype).view(shape)]
        return buffer, [*views, buffer[count * size :].view(*shape, behind)] if with_routes else views

    def _exchange(self, wire: _Wire, step: int, what: str, mine: Part) -> Callable[[], List[Part]]:
        """Sends what others need of `mine`; what is returned waits, and gives `mine` and the parts received."""
        over, tensors = mine
        sends, receives, parts = [], [], [mine]
        for rank, box in self.receives[what]:
            buffer, views = self._message(box, len(tensors) > 1, wire.device)
            receives.append((rank, buffer))
            parts.append((box, views))
        for rank, box in self.sends[what]:
            buffer, views = self._message(box, len(tensors) > 1, wire.device)
            for view, tensor in zip(views, tensors):
                view.copy_(self._slice(tensor, over, box))
            sends.append((rank, buffer))
        wait: Any = wire.post(step, sends, receives)

        def received() -> List[Part]:
            nonlocal wait
            if wait is not None:
                wait()
                wait = None
            return parts

        return received

    def _over_pieces(self, wire: _Wire, step: int, x: torch.Tensor, run: Callable[..., Any]) -> List[torch.Tensor]:
        """run(plan, x) for every piece of the outputs; those that wait for nobody first, while the halo is on its way."""
        mine: Part = (self.inputs, [x])
        received = self._exchange(wire, step, "x", mine)
        results: List[Part] = []
        for plan, piece, waits in self.pieces:
            (read,) = self._gathered(piece.read, received() if waits else [mine])
            results.append((piece.outputs, run(plan, read, piece.outputs)))
        received()
        if not results:
            return [self._empty(self.outputs), self._empty(self.outputs, routes=True)]
        return self._gathered(self.outputs, results)

    def pool(self, x: torch.Tensor, wire: _Wire) -> torch.Tensor:
        return self._over_pieces(wire, 0, x, lambda plan, x, _: [plan.forward(x)])[0]

    def pool_with_routes(self, x: torch.Tensor, wire: _Wire) -> List[torch.Tensor]:
        def run(plan: TorchPlan, x: torch.Tensor, _: Box) -> List[torch.Tensor]:
            y, routes = plan.forward_routes(x)
            return [y, self._routes_of(plan, routes)]

        return self._over_pieces(wire, 0, x, run)

    def gather(self, tx: torch.Tensor, routes: torch.Tensor, wire: _Wire) -> torch.Tensor:
        """ty = S tx."""

        def run(plan: TorchPlan, tx: torch.Tensor, box: Box) -> List[torch.Tensor]:
            return [plan.gather(tx, self._dense(self._routes_over(box, routes)))]

        return self._over_pieces(wire, 2, tx, run)[0]

    def scatter(self, dy: torch.Tensor, routes: torch.Tensor, wire: _Wire) -> torch.Tensor:
        """dx = S^T dy."""
        parts = self._exchange(wire, 1, "dy", (self.outputs, [dy, routes]))()
        if self.backward is None:  # no window reaches these inputs
            return self._empty(self.inputs).zero_()
        dy, routes = self._gathered(self.over, parts)
        return self.backward.scatter(dy, self._dense(routes))


# ---- autograd: each function's derivative is the other, as in _autograd ------------------------------------------------------------


class _Pool(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layout: _Layout, wire: _Wire) -> torch.Tensor:
        y, routes = layout.pool_with_routes(x, wire)
        ctx.save_for_backward(routes)
        ctx.layout, ctx.wire = layout, wire
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        return _Scatter.apply(dy, ctx.saved_tensors[0], ctx.layout, ctx.wire), None, None


def _linear(name: str) -> Any:
    class Linear(Function):
        transpose: Any

        @staticmethod
        def forward(ctx: Any, vector: torch.Tensor, routes: torch.Tensor, layout: _Layout, wire: _Wire) -> torch.Tensor:
            ctx.save_for_backward(routes)
            ctx.layout, ctx.wire = layout, wire
            return getattr(layout, name)(vector, routes, wire)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return Linear.transpose.apply(gradient, ctx.saved_tensors[0], ctx.layout, ctx.wire), None, None, None

    return Linear


_Scatter, _Gather = _linear("scatter"), _linear("gather")
_Scatter.transpose, _Gather.transpose = _Gather, _Scatter


def _pool(x: torch.Tensor, layout: _Layout, wire: _Wire, recorded: bool) -> torch.Tensor:
    if recorded or has_tangents():  # which torch refuses, where x has one
        return _Pool.apply(x, layout, wire)
    return layout.pool(x, wire)


# ---- calls -----------------------------------------------------------------------------------------------------------------------


def _integers(name: str, value: Any) -> Tuple[int, ...]:
    frozen = pooling._checked(freeze, name, value)
    return tuple(pooling._checked(to_int, name, entry) for entry in (frozen if isinstance(frozen, tuple) else (frozen,)))


def _axes(dims: Any, grid: Any, rank: int, dimensions: int, size: int) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """The spatial axes that are cut, and the ranks along each."""
    named = _integers("dims", -rank if dims is None else dims)
    counts = None if grid is None else _integers("grid", grid)
    first = dimensions - rank
    axes = tuple(dim - first if dim >= 0 else dim + rank for dim in named)
    if not named or len(set(axes)) != len(axes) or not all(0 <= axis < rank for axis in axes):
        raise PoolValueError(f"dims is {dims!r}; it must name spatial dimensions of x_local, each once: {first} to {dimensions - 1}")
    if counts is None and len(axes) == 1:
        counts = (size,)
    if counts is None or len(counts) != len(axes) or any(n < 1 for n in counts) or prod(counts) != size:
        raise PoolValueError(
            f"grid is {grid!r}; it must say how many ranks there are along each of the {len(axes)} dimensions that are cut, {size} in all"
        )
    return axes, counts


def _describe(
    function: str, window: Window, x: torch.Tensor, dims: Any, grid: Any, recorded: bool, fixed_shapes: bool, size: int
) -> _Call:
    rank = len(window.kernel)
    if x.dim() not in (rank + 1, rank + 2):
        raise PoolValueError(
            f"x_local has the shape {tuple(x.shape)}; {function} takes {rank + 2} dimensions, or {rank + 1} without a batch"
        )
    if x.dtype not in DTYPES:
        raise PoolTypeError(f"x_local has the type {x.dtype}; poolgrad takes {', '.join(str(known) for known in DTYPES)}")
    axes, counts = _axes(dims, grid, rank, x.dim(), size)
    return _Call(
        1, __all__.index(function), window.kernel, window.stride, window.padding, window.padding_kind, window.dilation,
        int(window.ceil_mode), window.ties, int(window.count_padding), window.divisor, DTYPES[x.dtype], int(recorded), axes, counts,
        int(fixed_shapes), tuple(x.shape),
    )  # fmt: skip


_PROBES = {name: partial(getattr(pooling if "avg" in name else functional, name), kernel_size=1) for name in __all__}


def _run(function: str, x: Any, make: Callable[[], Window], dims: Any, grid: Any, group: Any, fixed_shapes: bool) -> torch.Tensor:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(f"{function} runs in a process group; call torch.distributed.init_process_group first")
    group = dist.group.WORLD if group is None else group
    if dist.get_rank(group) < 0:
        raise PoolValueError("this process is not a rank of the given group")
    ranks = _ranks_of(group)
    refused: Optional[Exception] = None
    call, window = _Call(), None
    device = x.device if isinstance(x, torch.Tensor) else torch.device("cpu")
    try:
        if type(x) not in PLAIN_TYPES:
            piece = "; give the rank's own piece, x.to_local()" if type(x).__name__ == "DTensor" else ""
            raise PoolTypeError(f"{function}(): argument 'x_local' is a {type(x).__name__}; it must be a Tensor{piece}")
        if x.layout is not torch.strided or x.device.type not in ("cpu", "cuda") or x._is_zerotensor():
            raise PoolTypeError(f"x_local is {x.layout} on {x.device}; it must be a dense tensor in the memory of a CPU or GPU")
        if ranks.by_gpu and x.device.type != "cuda":
            raise PoolValueError(f"x_local is on {x.device}; the group's backend is nccl, which moves memory of GPUs only")
        window = make()
        x = functional.autocast(_PROBES[function], len(window.kernel), x)
        recorded = x.requires_grad and torch.is_grad_enabled()
        fixed = pooling._checked(to_bool, "fixed_shapes", fixed_shapes)
        call = _describe(function, window, x, dims, grid, recorded, fixed, ranks.size)
    except Exception as error:  # whatever it is: the others are told before it is raised
        refused = error
    wire = _Wire(group, ranks, device)
    calls = wire.agree(call)
    if refused is not None or window is None:
        raise refused or AssertionError
    channels_last = lies_channels_last(x.shape, x.stride(), len(window.kernel))
    key = (calls, x.device, channels_last)
    layout = ranks.layouts.get(key)
    if layout is None:
        if len(ranks.layouts) >= 256:
            ranks.layouts.clear()
        try:
            places = _places(call.kernel_size, call.dims, call.grid)
            layout = ranks.layouts[key] = _Layout(ranks.me, places, _cuts(calls, places), window, x, channels_last)
        except ValueError as error:
            raise PoolValueError(str(error)) from None
    return _pool(x, layout, wire, bool(call.requires_grad))


def pooled_sizes(window: Window, spatial: Tuple[int, ...], dtype: torch.dtype) -> Tuple[int, ...]:
    """y's spatial sizes."""
    return TorchPlan((1, 1, *spatial), dtype, torch.device("meta"), False, window).tensor_y[2:]


def pool_chunks(
    x: torch.Tensor, window: Window, spatial: Tuple[int, ...], dims: Tuple[int, ...], grid: Tuple[int, ...], numbers: Tuple[int, ...]
) -> torch.Tensor:
    """What a DTensor needs: x is this rank's piece of a tensor of these spatial sizes, cut as torch.chunk cuts among the ranks of
    `numbers`, and y is cut so, too. All of them know all of this, so there is nothing to agree on."""
    ranks = _ranks_of(dist.group.WORLD, numbers)
    x = functional.autocast(_PROBES[window.name], len(spatial), x)
    wire = _Wire(dist.group.WORLD, ranks, x.device)
    channels_last = lies_channels_last(x.shape, x.stride(), len(window.kernel))
    key = (tuple(x.shape), x.dtype, x.device, channels_last, window, spatial, dims, grid)
    layout = ranks.layouts.get(key)
    if layout is None:
        parts = [grid[dims.index(axis)] if axis in dims else 1 for axis in range(len(spatial))]
        cuts, out_cuts = (
            [tuple(min(i * -(-size // count), size) for i in range(count + 1)) for size, count in zip(sizes, parts)]
            for sizes in (spatial, pooled_sizes(window, spatial, x.dtype))
        )
        places = _places(window.kernel, dims, grid)
        layout = ranks.layouts[key] = _Layout(ranks.me, places, cuts, window, x, channels_last, out_cuts)
    return _pool(x, layout, wire, x.requires_grad and torch.is_grad_enabled())


def _make_max(rank: int, relu: bool) -> Callable[..., torch.Tensor]:
    name = f"{'relu_' if relu else ''}max_pool{rank}d"

    def max_pool(
        x_local: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, *,
        ties: str = "first", dims: Any = None, grid: Any = None, group: Any = None, fixed_shapes: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        def make() -> Window:
            return make_window(rank, *functional.frozen(kernel_size, stride, padding, dilation), ceil_mode, ties, relu=relu)

        return _run(name, x_local, make, dims, grid, group, fixed_shapes)

    return _named(max_pool, name)


def _make_avg(rank: int) -> Callable[..., torch.Tensor]:
    name = f"avg_pool{rank}d"

    def avg_pool(
        x_local: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Optional[int] = None, *, dims: Any = None, grid: Any = None,
        group: Any = None, fixed_shapes: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        def make() -> Window:
            return pooling.average_window(rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

        return _run(name, x_local, make, dims, grid, group, fixed_shapes)

    return _named(avg_pool, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""poolgrad.torch.{name} of a tensor that is cut in space: this rank's piece of y from its piece of x.

    dims: the dimension or dimensions that are cut, the first spatial one unless said; grid: how many ranks there are along each, needed
    for more than one. The ranks of `group` (all, unless given) are numbered over the grid in row-major order. fixed_shapes=True
    promises that all ranks come back with the same shapes together; they then agree once, and not at every call."""
    return function


max_pool1d, max_pool2d, max_pool3d = (_make_max(rank, False) for rank in (1, 2, 3))
relu_max_pool1d, relu_max_pool2d, relu_max_pool3d = (_make_max(rank, True) for rank in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_make_avg, (1, 2, 3))
