"""The checks of poolgrad.torch.distributed, run by real processes over gloo: ranks.py FOLDER, started by test_torch_distributed.py.

torch is imported once; the ranks are forked before it has computed anything. Every rank runs the checks in order and writes down for each
what went wrong, or nothing; the first failure ends it, since the others no longer make the calls it would make.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import sys
import time
import traceback
from itertools import accumulate, product
from math import prod
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist
from conftest import random_window

import poolgrad.torch as one_process
from poolgrad.torch import distributed as split
from poolgrad.torch._plans import CHANNELS_LAST, make_window
from poolgrad.torch.pooling import average_window

SIZES = (2, 4)
CHECKS: Dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


# ---- tensors cut among the ranks -------------------------------------------------------------------------------------------------


class Cut:
    """Where a tensor is cut: the same on every rank."""

    def __init__(self, axes: Tuple[int, ...], grid: Tuple[int, ...], cuts: List[List[int]]) -> None:
        self.axes, self.grid, self.cuts = axes, grid, cuts
        self.at = tuple(product(*map(range, grid)))  # of every rank: row-major

    def piece(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        for axis, cuts, k in zip(self.axes, self.cuts, self.at[rank]):
            whole = whole.narrow(axis - len(SPATIAL[0]), cuts[k], cuts[k + 1] - cuts[k])
        return whole

    def of_outputs(self, mine: torch.Tensor) -> "Cut":
        """How y is cut, from the shapes of all its pieces."""
        shapes: List[Any] = [None] * len(self.at)
        dist.all_gather_object(shapes, tuple(mine.shape))
        spatial = len(SPATIAL[0])
        cuts = []
        for i, axis in enumerate(self.axes):
            sizes: Dict[int, int] = {}
            for at, shape in zip(self.at, shapes):
                assert sizes.setdefault(at[i], shape[axis - spatial]) == shape[axis - spatial]
            cuts.append([0, *accumulate(sizes[k] for k in sorted(sizes))])
        return Cut(self.axes, self.grid, cuts)


SPATIAL: List[List[int]] = [[]]  # the spatial sizes of the problem at hand


def random_cut(rng: random.Random, spatial: List[int]) -> Cut:
    """Any axes, any grid of the ranks over them, any places: pieces may be empty."""
    size = dist.get_world_size()
    SPATIAL[0] = spatial
    axes = rng.sample(range(len(spatial)), rng.randint(1, len(spatial)))
    grid = rng.choice([grid for grid in product(range(1, size + 1), repeat=len(axes)) if prod(grid) == size])
    if rng.random() < 0.3:
        cuts = [[0, *sorted(rng.randint(0, spatial[axis]) for _ in range(parts - 1)), spatial[axis]] for axis, parts in zip(axes, grid)]
    else:
        cuts = [[spatial[axis] * k // parts for k in range(parts + 1)] for axis, parts in zip(axes, grid)]
    return Cut(tuple(axes), tuple(grid), cuts)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().contiguous()
    return tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def assert_same_bits(found: torch.Tensor, expected: torch.Tensor, told: str) -> None:
    assert found.shape == expected.shape and found.dtype == expected.dtype, f"{told}: {found.shape}, {expected.shape}"
    assert torch.equal(bits(found), bits(expected)), told


def compare(
    name: str, x: torch.Tensor, cut: Cut, arguments: Tuple[Any, ...], keywords: Dict[str, Any], gradients: int, more: Dict[str, Any]
) -> None:
    """Values, and with gradients=1 dx, and with 2 the gradient of dx, too."""
    rank, generator = dist.get_rank(), torch.Generator().manual_seed(5)
    told = f"{name} {tuple(x.shape)} {x.dtype} {arguments} {keywords} {more} axes {cut.axes} grid {cut.grid} cuts {cut.cuts}"
    whole, mine = x.clone(), cut.piece(x, rank).clone()
    if gradients:
        whole.requires_grad_(), mine.requires_grad_()
    y = getattr(one_process, name)(whole, *arguments, **keywords)
    dims = tuple(x.dim() - len(SPATIAL[0]) + axis for axis in cut.axes)
    found = getattr(split, name)(mine, *arguments, **keywords, **more, dims=dims, grid=cut.grid)
    y_cut = cut.of_outputs(found)
    assert all(cuts[-1] == y.shape[axis - len(SPATIAL[0])] for axis, cuts in zip(cut.axes, y_cut.cuts)), told
    assert_same_bits(found, y_cut.piece(y, rank), f"y of {told}")
    if not gradients:
        return
    dy = torch.randn(y.shape, generator=generator).to(x.dtype)
    my_dy = y_cut.piece(dy, rank).clone()
    if gradients == 2:
        dy.requires_grad_(), my_dy.requires_grad_()
    (dx,) = torch.autograd.grad(y, whole, dy, create_graph=gradients == 2)
    (my_dx,) = torch.autograd.grad(found, mine, my_dy, create_graph=gradients == 2)
    assert_same_bits(my_dx, cut.piece(dx, rank), f"dx of {told}")
    if gradients == 2:
        v = torch.randn(x.shape, generator=generator).to(x.dtype)
        (ddy,) = torch.autograd.grad(dx, dy, v)
        (my_ddy,) = torch.autograd.grad(my_dx, my_dy, cut.piece(v, rank).clone())
        assert_same_bits(my_ddy, y_cut.piece(ddy, rank), f"the gradient of dx of {told}")


def random_problems(dimensions: int) -> None:
    rng = random.Random(dimensions)  # the same on every rank
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    for number in range(40):
        spatial, (kernel, stride, padding, dilation, ceil) = random_window(rng, dimensions)
        lead = [rng.randint(1, 2), rng.randint(1, 5)][rng.random() < 0.2 :]
        dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16])
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(*lead, *spatial, generator=generator)
        if rng.random() < 0.4:
            x = (2 * x).round()  # ties, and -0
        if rng.random() < 0.2:
            x[torch.rand(x.shape, generator=generator) < 0.1] = float("nan")
        x = x.to(dtype)
        if dimensions > 1 and len(lead) == 2 and rng.random() < 0.4:
            x = x.contiguous(memory_format=formats[dimensions])
        cut = random_cut(rng, spatial)
        kind = rng.choice(["max", "max", "relu_max", "avg"])
        keywords: Dict[str, Any] = {"ceil_mode": ceil}
        if kind == "avg":
            kernel = [min(k, n) for k, n in zip(kernel, spatial)]
            padding = [min(p, k // 2) for p, k in zip(padding, kernel)]
            keywords["count_include_pad"] = rng.random() < 0.5
            if dimensions > 1 and rng.random() < 0.3:
                keywords["divisor_override"] = rng.randint(1, 5)
            arguments: Tuple[Any, ...] = (kernel, stride, padding)
        else:
            keywords["ties"] = rng.choice(["first", "first", "last", "split", "all"])
            arguments = (kernel, stride, padding, dilation)
        gradients = rng.choice([0, 1, 1, 2])
        compare(f"{kind}_pool{dimensions}d", x, cut, arguments, keywords, gradients, {"fixed_shapes": rng.random() < 0.3})


@check
def one_dimension() -> None:
    random_problems(1)


@check
def two_dimensions() -> None:
    random_problems(2)


@check
def three_dimensions() -> None:
    random_problems(3)


@check
def windows_wider_than_a_neighbour() -> None:
    size = dist.get_world_size()
    generator = torch.Generator().manual_seed(0)
    for spatial, arguments in (([9], (7, 1, 3)), ([9], (3, 1, 1, 4)), ([12], (5, 5)), ([5], (5,)), ([40], (2, 9))):
        SPATIAL[0] = spatial
        cuts = [[0, *(min(k, spatial[0]) for k in range(2, size + 1)), spatial[0]]]  # most ranks have one input
        x = torch.randn(2, 3, *spatial, generator=generator)
        compare("max_pool1d", x, Cut((0,), (size,), cuts), arguments, {}, 2, {})
    SPATIAL[0] = [8, 6]
    compare("max_pool2d", torch.zeros(0, 3, 8, 6), Cut((0,), (size,), [[8 * k // size for k in range(size + 1)]]), (3, 2, 1), {}, 1, {})


@check
def a_group_of_some_ranks() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    group = dist.new_group([size - 2, size - 1])
    x = torch.arange(22.0).reshape(1, 1, 22).flip(2)
    if rank < size - 2:
        try:
            split.max_pool1d(x, 3, group=group)
        except ValueError as error:
            assert "this process is not a rank of the given group" in str(error), error
            return
        raise AssertionError("a process outside the group pooled")
    place = rank - (size - 2)
    y = split.max_pool1d(x[..., :10] if place == 0 else x[..., 10:], 3, 2, group=group)
    assert y.flatten().tolist() == one_process.max_pool1d(x, 3, 2).flatten().tolist()[: 5 if place == 0 else None][0 if place == 0 else 5 :]


@check
def pieces_of_y_may_be_cut_like_those_of_x() -> None:
    """As DTensor wants them: both as torch.chunk cuts. Random windows, values, dx and the gradient of dx."""
    rng, size, rank = random.Random(11), dist.get_world_size(), dist.get_rank()
    for number in range(40):
        dimensions = rng.randint(1, 3)
        spatial, (kernel, stride, padding, dilation, ceil) = random_window(rng, dimensions)
        SPATIAL[0] = spatial
        grids = [grid for grid in product((1, 2, 4), repeat=dimensions) if prod(grid) == size]
        axes, grid = tuple(rng.sample(range(dimensions), dimensions)), rng.choice(grids)
        average, relu = rng.random() < 0.3, rng.random() < 0.3
        if average:
            window = average_window(dimensions, kernel, stride, padding, ceil, rng.random() < 0.5, None)
            pool = lambda x: getattr(one_process, f"avg_pool{dimensions}d")(x, kernel, stride, padding, ceil, window.count_padding)  # noqa: B023, E731
        else:
            window = make_window(dimensions, kernel, stride, padding, dilation, ceil, "first", relu=relu)
            name = f"{'relu_' * relu}max_pool{dimensions}d"
            pool = lambda x: getattr(one_process, name)(x, kernel, stride, padding, dilation, ceil)  # noqa: B023, E731
        form = CHANNELS_LAST[dimensions] if dimensions > 1 and rng.random() < 0.5 else torch.contiguous_format
        x = torch.randn(2, 3, *spatial, generator=torch.Generator().manual_seed(number)).contiguous(memory_format=form)
        whole = x.clone().requires_grad_()
        y = pool(whole)
        told = f"{window} {spatial} {axes} {grid}"
        chunk = lambda n, parts: [min(k * -(-n // parts), n) for k in range(parts + 1)]  # noqa: E731
        x_cut, y_cut = (
            Cut(axes, grid, [chunk(sizes[axis], parts) for axis, parts in zip(axes, grid)]) for sizes in (spatial, list(y.shape[2:]))
        )
        mine = x_cut.piece(x, rank).clone().requires_grad_()
        found = split.pool_chunks(mine, window, tuple(spatial), axes, grid, tuple(range(size)))
        assert_same_bits(found, y_cut.piece(y, rank), f"y of {told}")
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(7))
        my_dy = y_cut.piece(dy, rank).clone().requires_grad_()
        dy.requires_grad_()
        (dx,) = torch.autograd.grad(y, whole, dy, create_graph=True)
        (my_dx,) = torch.autograd.grad(found, mine, my_dy, create_graph=True)
        assert_same_bits(my_dx, x_cut.piece(dx, rank), f"dx of {told}")
        (ddy,) = torch.autograd.grad(dx, dy, x)
        (my_ddy,) = torch.autograd.grad(my_dx, my_dy, x_cut.piece(x, rank).clone())
        assert_same_bits(my_ddy, y_cut.piece(ddy, rank), f"the gradient of dx of {told}")


HAS_DTENSOR = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)
if HAS_DTENSOR:

    @check
    def dtensors_are_pooled_where_they_lie() -> None:
        dtensor, generator = imported_dtensor(), torch.Generator().manual_seed(0)
        mesh = dtensor.DeviceMesh("cpu", list(range(dist.get_world_size())))
        for dim, form in product((0, 1, 2, 3), (torch.contiguous_format, torch.channels_last)):
            x = torch.randn(6, 5, 9, 8, generator=generator).contiguous(memory_format=form)  # uneven over 4 ranks
            for name, arguments in (("max_pool2d", (3, 2, 1)), ("relu_max_pool2d", (2, 3)), ("avg_pool2d", (3, 1, 1))):
                compare_dtensor(name, x, arguments, mesh, [dtensor.Shard(dim)])

    @check
    def dtensors_of_two_mesh_dimensions() -> None:
        dtensor, size = imported_dtensor(), dist.get_world_size()
        mesh = dtensor.DeviceMesh("cpu", torch.arange(size).view(2, size // 2))
        x = torch.randn(4, 6, 9, 10, generator=torch.Generator().manual_seed(1))
        S, R = dtensor.Shard, dtensor.Replicate
        for placements in ([S(2), S(3)], [S(3), S(2)], [S(0), S(2)], [S(3), R()], [S(1), S(3)]):
            compare_dtensor("max_pool2d", x, (3, 2, 1), mesh, placements)

    @check
    def dtensors_that_cannot_be_pooled_in_space() -> None:
        dtensor = imported_dtensor()
        mesh = dtensor.DeviceMesh("cpu", list(range(dist.get_world_size())))
        cut = dtensor.distribute_tensor(torch.ones(2, 3, 8, 8), mesh, [dtensor.Shard(2)])
        assert_all_raise(lambda: one_process.max_pool2d(cut, 2, return_indices=True), "sharded in dimension 2, a spatial one", "no indices")
        assert_all_raise(lambda: one_process.adaptive_max_pool2d(cut, 3), "no windows of different sizes there")


def imported_dtensor() -> Any:
    try:
        from torch.distributed import tensor as dtensor
    except ImportError:  # where it was before 2.5
        from torch.distributed import _tensor as dtensor
    return dtensor


def compare_dtensor(name: str, x: torch.Tensor, arguments: Tuple[Any, ...], mesh: Any, placements: List[Any]) -> None:
    dtensor, told = imported_dtensor(), f"{name} of a DTensor with {placements}"
    cut = dtensor.distribute_tensor(x, mesh, placements).requires_grad_()
    whole = x.clone().requires_grad_()
    pool = getattr(one_process, name)
    y, found = pool(whole, *arguments), pool(cut, *arguments)
    assert found.placements == cut.placements and found.shape == y.shape and found.stride() == y.stride(), told
    assert_same_bits(found.full_tensor(), y, f"y of {told}")
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    (dx,) = torch.autograd.grad(y, whole, dy)
    # Not by .backward(): what it keeps in .grad of uneven pieces is gathered by torch itself.
    (found_dx,) = torch.autograd.grad(found, cut, dtensor.distribute_tensor(dy, mesh, placements))
    assert tuple(found_dx.placements) == tuple(cut.placements), f"{told}: {found_dx.placements}"
    assert_same_bits(found_dx.full_tensor(), dx, f"dx of {told}")


# ---- ranks that disagree ---------------------------------------------------------------------------------------------------------


def assert_all_raise(run: Callable[[], Any], *sentences: str, others: Tuple[str, ...] = ()) -> None:
    """On the last rank with the first sentences, on the others with `others` if given."""
    try:
        run()
    except (ValueError, TypeError) as error:
        last = dist.get_rank() == dist.get_world_size() - 1
        for part in sentences if last or not others else others:
            assert part in str(error), f"{part!r} is not in {error}"
        return
    raise AssertionError(f"nothing was raised; expected {sentences}")


@check
def disagreements_are_errors_on_every_rank() -> None:
    size, rank = dist.get_world_size(), dist.get_rank()
    odd, last = rank == size - 1, size - 1
    x = torch.randn(2, 3, 8, 6)
    both = (f"on rank {last} of the group", "on rank 0")
    assert_all_raise(lambda: split.max_pool2d(x, 3, 1 if odd else 2), "stride is (1, 1)", "and (2, 2)", *both)
    assert_all_raise(lambda: split.max_pool2d(x, 3, padding="same" if odd else 0), "padding", *both)
    assert_all_raise(lambda: split.max_pool2d(x, 3, ties="all" if odd else "first"), "ties is 'all'", "and 'first'", *both)
    assert_all_raise(lambda: (split.avg_pool2d if odd else split.max_pool2d)(x, 3), "the call is avg_pool2d", "and max_pool2d", *both)
    assert_all_raise(lambda: split.max_pool2d(x.double() if odd else x, 3), "x_local's type is torch.float64", *both)
    assert_all_raise(lambda: split.max_pool2d(x, 3, dims=3 if odd else 2), "dims is (1,)", *both)
    assert_all_raise(lambda: split.max_pool2d(x.clone().requires_grad_(odd), 3), "requires_grad is True", "and False", *both)
    assert_all_raise(lambda: split.max_pool2d(x, 3, fixed_shapes=odd), "fixed_shapes is True", *both)
    assert_all_raise(lambda: split.max_pool2d(x[:, : 2 if odd else 3], 3), f"the shape (2, 2, 8, 6) on rank {last}", "(2, 3, 8, 6) on rank 0")
    assert_all_raise(lambda: split.max_pool2d(x[..., : 5 if odd else 6], 3), f"x_local has 5 in dimension 3 on rank {last}", "6 on rank 0")
    assert_all_raise(lambda: split.max_pool2d(x, 2.5 if odd else 3), "kernel_size is 2.5", others=(f"rank {last} of the group refused",))
    assert_all_raise(lambda: split.max_pool2d(None if odd else x, 3), "'x_local' is a NoneType", others=(f"rank {last} of the group refused",))
    for other in (x.to_sparse(), x.to("meta"), *([x.to_mkldnn()] if torch.backends.mkldnn.is_available() else [])):
        assert_all_raise(lambda: split.max_pool2d(other if odd else x, 3), f"x_local is {other.layout} on {other.device}", others=("refused",))  # noqa: B023
    assert_all_raise(lambda: split.max_pool2d(torch._efficientzerotensor(x.shape) if odd else x, 3), "must be a dense tensor", others=("refused",))
    assert_all_raise(lambda: split.max_pool2d(x[0, 0] if odd else x, 3), "x_local has the shape (8, 6)", others=("refused",))
    assert_all_raise(lambda: split.max_pool2d(x, 3, dims="h" if odd else 2), "dims is 'h'; it must be an integer", others=("refused",))
    assert_all_raise(lambda: split.max_pool2d(x, 3, dims=2**70 if odd else 2), f"dims is {2**70}; it must lie", others=("refused",))
    assert_all_raise(lambda: split.max_pool2d(x, 3, grid=(None,) if odd else size), "grid is None; it must be", others=("refused",))
    assert_all_raise(lambda: split.max_pool2d(x, 3, fixed_shapes="no" if odd else False), "fixed_shapes is 'no'; it must be", others=("refused",))
    # and what is wrong on all of them
    assert_all_raise(lambda: split.max_pool2d(x, 3, padding=2), "padding[0] is 2; it may be at most half of the window")
    assert_all_raise(lambda: split.max_pool2d(x.long(), 3), "x_local has the type torch.int64")
    assert_all_raise(lambda: split.max_pool2d(x, 3, dims=1), "dims is 1; it must name spatial dimensions of x_local, each once: 2 to 3")
    assert_all_raise(lambda: split.max_pool2d(x, 3, dims=(2, 3)), "grid is None", f"{size} in all")
    assert_all_raise(lambda: split.max_pool2d(x, 3, grid=size + 1), f"grid is {size + 1}", f"{size} in all")
    compare_even("max_pool2d", torch.randn(2, 3, 8, 6, generator=torch.Generator().manual_seed(1)), (3, 2, 1))  # as if nothing had been


def compare_even(name: str, x: torch.Tensor, arguments: Tuple[Any, ...], **more: Any) -> None:
    size, spatial = dist.get_world_size(), list(x.shape[2:])
    SPATIAL[0] = spatial
    compare(name, x, Cut((0,), (size,), [[spatial[0] * k // size for k in range(size + 1)]]), arguments, {}, 1, more)


@check
def forward_mode_is_refused() -> None:
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        for x in (torch.ones(1, 2, 8), torch.ones(1, 2, 8, requires_grad=True)):
            try:
                split.max_pool1d(forward_ad.make_dual(x, x.detach()), 2)
            except RuntimeError as error:  # torch's
                assert "jvp" in str(error), error
            else:
                raise AssertionError("the tangent was lost")
        assert split.max_pool1d(torch.ones(1, 2, 8), 2).shape == (1, 2, 4)


@check
def autocast_gives_the_type_of_one_process() -> None:
    with torch.autocast("cpu"):
        for name in ("max_pool2d", "avg_pool2d", "max_pool3d", "relu_max_pool3d", "avg_pool3d"):
            compare_even(name, torch.randn(1, 2, *(6,) * int(name[-2]), generator=torch.Generator().manual_seed(2)).bfloat16(), (3, 1))
        # and as DTensors have it done
        size, x, window = dist.get_world_size(), torch.randn(1, 2, 4, 4, 4).bfloat16(), make_window(3, 2, None, 0, 1, False, "first")
        y = split.pool_chunks(x.chunk(size, 2)[dist.get_rank()], window, (4, 4, 4), (0,), (size,), tuple(range(size)))
        assert y.dtype == one_process.max_pool3d(x, 2).dtype, y.dtype


@check
def sizes_may_change_on_one_rank() -> None:
    """The last rank's piece stays, and so do its arguments: only the others know that its windows begin elsewhere now."""
    size = dist.get_world_size()
    for longer in (0, 1, 0, 3, 1):
        SPATIAL[0] = [4 * size + longer]
        cuts = [0, *(4 * k + longer for k in range(1, size + 1))]
        x = torch.randn(1, 2, SPATIAL[0][0], generator=torch.Generator().manual_seed(longer))
        compare("max_pool1d", x, Cut((0,), (size,), [cuts]), (3, 2, 1), {}, 1, {})


@check
def fixed_shapes_cost_nothing() -> None:
    calls, theirs = [], dist.all_gather
    dist.all_gather = lambda *arguments, **keywords: (calls.append(1), theirs(*arguments, **keywords))
    try:
        x = torch.randn(1, 2, 20)
        for _ in range(3):
            split.max_pool1d(x, 4, 3, fixed_shapes=True)
            split.max_pool1d(x[..., 2:], 4, 3, fixed_shapes=True)
        assert len(calls) == 2, calls
        split.max_pool1d(x, 4, 3)
        split.max_pool1d(x, 4, 3)
        assert len(calls) == 4, calls
    finally:
        dist.all_gather = theirs


@check
def bytes_are_those_of_the_core() -> None:
    """What crosses is what poolgrad_shard_halo says, and what docs/scale.md says of a 3x3x3 window at stride 2."""
    sent: List[int] = []
    theirs = dist.batch_isend_irecv

    def counted(posts: List[Any]) -> Any:
        sent.extend(post.tensor.numel() for post in posts if post.op is dist.isend)
        return theirs(posts)

    dist.batch_isend_irecv = counted
    try:
        size, rank = dist.get_world_size(), dist.get_rank()
        x = torch.randn(2, 3, 8, 10, 12, requires_grad=True)
        y = split.max_pool3d(x, 3, 2, 1)
        forward, sent[:] = list(sent), []
        y.backward(torch.ones_like(y))
        layer, output_layer = 2 * 3 * 10 * 12, 2 * 3 * 5 * 6
        assert forward == ([4 * 2 * layer] if rank > 0 else []), forward  # its first two layers, to the rank before
        assert sent == ([5 * output_layer] if rank < size - 1 else []), sent  # dy and a byte of routes of its last, to the next
    finally:
        dist.batch_isend_irecv = theirs


# ---- ranks that are missing; the last checks, since a group does not survive them ---------------------------------------------------


def assert_ends_in_time(run: Callable[[], Any], seconds: float) -> None:
    begun = time.monotonic()
    try:
        run()
    except RuntimeError as error:
        assert "the exchange between the ranks failed" in str(error), error
    else:
        raise AssertionError("a rank was missing, and nothing was raised")
    assert time.monotonic() - begun < seconds, time.monotonic() - begun


TIMEOUT = 5.0
SLACK = 20.0  # the machine may be busy


def short_lived_group() -> Any:
    dist.barrier()  # so that all make it at the same time
    return dist.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))


@check
def one_that_breaks_its_promise_is_an_error() -> None:
    """fixed_shapes, and one rank comes with another shape."""
    group = short_lived_group()
    rank, x = dist.get_rank(), torch.randn(1, 1, 20)
    run = lambda x: split.max_pool1d(x, 3, 1, 1, group=group, fixed_shapes=True)  # noqa: E731
    run(x), run(x[..., 3:])
    dist.barrier()
    if rank < 2:  # rank 0 has a shape agreed on before, but not the one that the others bring: no message is for both
        assert_ends_in_time(lambda: run(x if rank else x[..., 3:]), TIMEOUT + SLACK)
    else:
        run(x)  # which exchanges nothing with rank 0
    dist.barrier()


@check
def a_rank_that_ends_is_an_error() -> None:
    group = short_lived_group()
    x = torch.randn(1, 1, 20, requires_grad=True)
    y = split.max_pool1d(x, 3, 1, 1, group=group)
    if dist.get_rank() == 0:
        return  # and it leaves
    if dist.get_rank() == 1:
        assert_ends_in_time(lambda: y.backward(torch.ones_like(y)), TIMEOUT + SLACK)
    assert_ends_in_time(lambda: split.max_pool1d(x, 3, 1, 1, group=group), TIMEOUT + SLACK)


def run_rank(folder: str, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    found: Dict[str, str] = {}
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60)
        )
        for name, function in CHECKS.items():
            function()
            found[name] = ""
    except BaseException:
        found[name] = traceback.format_exc()
    with open(f"{folder}/{size}-{rank}.json", "w") as file:
        json.dump(found, file)
    os._exit(0)  # as a rank that fails would: without a word to the others


def main() -> None:
    children = []
    for size, rank in ((size, rank) for size in SIZES for rank in range(size)):  # two worlds, side by side
        children.append(os.fork())
        if children[-1] == 0:
            run_rank(sys.argv[1], rank, size)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
