"""A bias per channel before ReLU and max pooling: NumPy and torch against adding, rectifying and pooling one after the other."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import poolgrad

WINDOWS = [((3,), (2,), (1,)), ((2, 3), (2, 1), (1, 1)), ((3, 3), (2, 2), (1, 1)), ((2, 2, 2), (2, 2, 2), (0, 1, 0))]


def shape_of(rank: int, layout: str, channels: int = 5) -> Any:
    spatial = (9, 8, 7)[:rank]
    return (2, *spatial, channels) if layout == "channels_last" else (2, channels, *spatial)


def spread(bias: Any, rank: int, layout: str) -> Any:
    return bias if layout == "channels_last" else bias.reshape(-1, *(1,) * rank)


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kernel,stride,padding", WINDOWS)
def test_numpy_agrees_with_the_steps(kernel: Any, stride: Any, padding: Any, dtype: Any, layout: str) -> None:
    rng, rank = np.random.default_rng(1), len(kernel)
    x = rng.integers(-6, 7, shape_of(rank, layout)).astype(dtype)  # sums are exact, so that adding makes no tie
    bias = rng.integers(-4, 5, 5).astype(dtype)
    window = {"kernel": kernel, "stride": stride, "padding": padding, "layout": layout, "relu": True, "return_routes": True}
    y, routes = poolgrad.max_pool(x, bias=bias, **window)
    steps, their_routes = poolgrad.max_pool(x + spread(bias, rank, layout), **window)
    assert y.tobytes() == steps.tobytes() and routes.data.tobytes() == their_routes.data.tobytes()
    dy = rng.integers(-8, 9, y.shape).astype(dtype)
    axes = tuple(axis for axis in range(rank + 2) if axis != (rank + 1 if layout == "channels_last" else 1))
    dbias = (dy * (y > 0)).sum(axis=axes, dtype=np.float64).astype(dtype)
    assert np.array_equal(poolgrad.max_pool_bias_grad(dy, routes), dbias)
    again, pullback = poolgrad.vjp(x, kernel, stride, padding, layout=layout, relu=True, bias=bias)
    dx, db = pullback(dy)
    assert np.array_equal(again, y) and np.array_equal(db, dbias) and np.array_equal(dx, poolgrad.max_pool_grad(dy, their_routes))


def test_numpy_refuses_what_cannot_be() -> None:
    x, bias = np.zeros((1, 3, 8, 8), np.float32), np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="bias was given; it goes with relu"):
        poolgrad.max_pool(x, 2, bias=bias)
    with pytest.raises(ValueError, match=r"bias has the shape \(4,\); the plan expects \(3,\)"):
        poolgrad.max_pool(x, 2, relu=True, bias=np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="bias has the type float64"):
        poolgrad.max_pool(x, 2, relu=True, bias=bias.astype(np.float64))
    with pytest.raises(ValueError, match="dtype is i32; a bias takes"):
        poolgrad.max_pool(x.astype(np.int32), 2, relu=True, bias=bias.astype(np.int32))
    plan = poolgrad.Plan((1, 3, 8, 8), 2, relu=True, bias=True)
    assert plan.text.endswith("relu bias") and "relu of x + bias" in plan.explain()
    with pytest.raises(ValueError, match="bias is None"):
        plan.forward(x)
    with pytest.raises(ValueError, match="keep the routes of poolgrad_forward_bias"):
        plan.backward_x(np.zeros((1, 3, 4, 4), np.float32), x)
    with pytest.raises(ValueError, match="the plan was made without one"):
        poolgrad.Plan((1, 3, 8, 8), 2, relu=True).forward(x, bias=bias)
    room = np.zeros((1, 3, 4, 4), np.float32)
    with pytest.raises(ValueError, match="out shares memory with bias"):
        plan.forward(x, room, bias=room.reshape(-1)[:3])
    with pytest.raises(ValueError, match="the problem has no bias"):
        poolgrad.max_pool_bias_grad(room, poolgrad.max_pool(x, 2, relu=True, return_routes=True)[1])
    assert pickle.loads(pickle.dumps(plan)).forward(x + 1, bias=bias - 0.5).max() == 0.5


# ---- torch ---------------------------------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch", reason="torch is not installed")
import poolgrad.torch as P  # noqa: E402

POOLS = {1: P.relu_max_pool1d, 2: P.relu_max_pool2d, 3: P.relu_max_pool3d}
THEIRS = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"))]


def steps(x: Any, bias: Any, rank: int, *window: Any) -> Any:
    return THEIRS[rank](torch.relu(x + bias.reshape(-1, *(1,) * rank)), *window)


def sample(rank: int, dtype: Any = torch.float64, device: str = "cpu", seed: int = 0, channels: int = 5) -> Any:
    made = torch.Generator().manual_seed(seed)
    x = torch.randn((3, channels, *(9, 8, 7)[:rank]), generator=made, dtype=torch.float64)
    bias = torch.randn(channels, generator=made, dtype=torch.float64) / 2
    return x.to(device, dtype).requires_grad_(), bias.to(device, dtype).requires_grad_()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kernel,stride,padding", WINDOWS)
def test_torch_agrees_with_the_steps(kernel: Any, stride: Any, padding: Any, dtype: Any, device: str) -> None:
    rank = len(kernel)
    x, bias = sample(rank, dtype, device)
    y = POOLS[rank](x, kernel, stride, padding, bias=bias)
    wide = dtype if rank == 2 and dtype is not torch.bfloat16 else torch.float64 if dtype is torch.float64 else torch.float32
    theirs = THEIRS[rank](torch.relu((x + bias.reshape(-1, *(1,) * rank)).to(wide)), kernel, stride, padding).to(dtype)
    assert torch.equal(y, theirs)  # not every type has a pooling of torch's own
    dy = torch.randn(y.shape, dtype=torch.float64).to(device, dtype)
    dx, dbias = torch.autograd.grad(y, (x, bias), dy)
    want_x, want_bias = torch.autograd.grad(theirs, (x, bias), dy)
    assert dbias.shape == bias.shape and dbias.dtype is dtype
    summed = (dy.double() * (y > 0)).sum(dim=[axis for axis in range(rank + 2) if axis != 1])
    torch.testing.assert_close(dbias.double(), summed, rtol=1e-2 if dtype is torch.bfloat16 else 1e-6, atol=1e-6)
    if dtype is not torch.bfloat16:  # where adding makes ties
        torch.testing.assert_close(dx, want_x)
        torch.testing.assert_close(dbias, want_bias)
    with torch.no_grad():
        assert torch.equal(POOLS[rank](x, kernel, stride, padding, bias=bias), y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_derivatives_of_every_order(rank: int, device: str) -> None:
    x, bias = sample(rank, device=device, channels=2)
    x = x.detach()[{1: (slice(2), slice(2)), 2: (slice(2), slice(2), slice(4), slice(3)), 3: (slice(1), slice(2), slice(3), slice(3), slice(2))}[rank]]
    x.requires_grad_()

    def pool(x: Any, bias: Any) -> Any:
        return POOLS[rank](x, 2, 1, bias=bias)

    assert torch.autograd.gradcheck(pool, (x, bias), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda bias: pool(x.detach(), bias), (bias,), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda x: pool(x, bias.detach()), (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(pool, (x, bias))


def test_layouts_shapes_and_saved_bytes() -> None:
    x, bias = sample(2, torch.float32)
    last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (kept.append(tensor), tensor)[1], lambda tensor: tensor):
        y = P.relu_max_pool2d(last, 3, 2, 1, bias=bias)
    assert [tensor.dtype for tensor in kept] == [torch.uint8]  # routes, and nothing of x or bias
    assert y.is_contiguous(memory_format=torch.channels_last)
    first = P.relu_max_pool2d(x, 3, 2, 1, bias=bias)
    assert torch.equal(y, first)
    dy = torch.randn(y.shape)
    (last_bias,), (first_bias,) = torch.autograd.grad(y, bias, dy), torch.autograd.grad(first, bias, dy)
    assert torch.equal(last_bias, first_bias)  # the same order
    assert torch.equal(P.relu_max_pool2d(x[0], 3, 2, 1, bias=bias), first[0])
    assert torch.equal(P.relu_max_pool2d(x, 3, 2, 1, bias=bias[:, None].expand(-1, 2).contiguous()[:, 0]), first)


def test_threads_change_no_bit() -> None:
    x, bias = torch.randn(4, 6, 61, 67), torch.randn(6)
    bias.requires_grad_()
    found, before = [], torch.get_num_threads()
    dy = torch.randn(4, 6, 31, 34)
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = P.relu_max_pool2d(x, 3, 2, 1, bias=bias)
            found.append((y, torch.autograd.grad(y, bias, dy)[0]))
    finally:
        torch.set_num_threads(before)
    for y, dbias in found[1:]:
        assert torch.equal(y, found[0][0]) and torch.equal(dbias, found[0][1])


def test_autocast_and_types() -> None:
    x, bias = sample(2, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = P.relu_max_pool2d(x.detach().bfloat16(), 2, bias=bias)
    y.sum().backward()
    assert y.dtype is torch.bfloat16 and bias.grad.dtype is torch.float32
    with pytest.raises(RuntimeError, match="bias has the type torch.float32; input has torch.float64"):
        P.relu_max_pool2d(x.double(), 2, bias=bias)
    with pytest.raises(RuntimeError, match=r"bias has the shape \(4,\); this pooling expects \(5,\)"):
        P.relu_max_pool2d(x, 2, bias=bias[:4])
    with pytest.raises(RuntimeError, match="return_indices is True; with a bias there are none"):
        P.relu_max_pool2d(x, 2, return_indices=True, bias=bias)
    with pytest.raises(TypeError, match="argument 'bias' is a list"):
        P.relu_max_pool2d(x, 2, bias=[1.0] * 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'bias'"):
        P.max_pool2d(x, 2, bias=bias)
    with pytest.raises(ValueError, match="a bias takes f32, f64, f16 and bf16"):
        P.relu_max_pool2d(x.to(torch.int32), 2, bias=bias.to(torch.int32))


def test_operators_and_tracing() -> None:
    x, bias = sample(2)
    want = P.relu_max_pool2d(x, 3, 2, 1, bias=bias)
    traced = torch.jit.trace(lambda x, bias: P.relu_max_pool2d(x, 3, 2, 1, bias=bias), (x, bias), check_trace=False)
    assert torch.equal(traced(x, bias), want)
    more = torch.randn(2, 5, 11, 9, dtype=torch.float64)
    assert torch.equal(traced(more, bias), P.relu_max_pool2d(more, 3, 2, 1, bias=bias))
    dy = torch.randn(want.shape, dtype=torch.float64)
    for one, two in zip(torch.autograd.grad(traced(x, bias), (x, bias), dy), torch.autograd.grad(want, (x, bias), dy)):
        assert torch.equal(one, two)
    meta = P.relu_max_pool2d(x.detach().to("meta"), 3, 2, 1, bias=bias.detach().to("meta"))
    assert meta.shape == want.shape and meta.device.type == "meta"


def test_batched_gradients() -> None:
    x, bias = sample(2)
    y = P.relu_max_pool2d(x, 3, 2, 1, bias=bias)
    dys = torch.randn(3, *y.shape, dtype=torch.float64)
    batched = torch.autograd.grad(y, (x, bias), dys, retain_graph=True, is_grads_batched=True)
    for i, dy in enumerate(dys):
        for many, one in zip(batched, torch.autograd.grad(y, (x, bias), dy, retain_graph=True)):
            assert torch.equal(many[i], one)


@pytest.mark.skipif(not hasattr(torch, "func"), reason="this torch has no torch.func")
def test_torch_func() -> None:
    x, bias = (tensor.detach() for tensor in sample(2))
    pool = lambda x, bias: P.relu_max_pool2d(x, 3, 2, 1, bias=bias)  # noqa: E731
    assert torch.equal(torch.func.vmap(pool, (None, 0))(x, torch.stack([bias, 2 * bias]))[1], pool(x, 2 * bias))
    ours = torch.func.grad(lambda *given: pool(*given).square().sum(), (0, 1))(x, bias)
    theirs = torch.func.grad(lambda *given: steps(*given, 2, 3, 2, 1).square().sum(), (0, 1))(x, bias)
    for one, two in zip(ours, theirs):
        torch.testing.assert_close(one, two)


@pytest.mark.skipif(not hasattr(torch, "compile") or not hasattr(torch.library, "custom_op"), reason="torch.compile takes operators from torch 2.4 on")
@pytest.mark.parametrize("device", DEVICES)
def test_compile(device: str) -> None:
    x, bias = sample(2, torch.float32, device)
    pool = torch.compile(lambda x, bias: P.relu_max_pool2d(x, 3, 2, 1, bias=bias), fullgraph=True, backend="aot_eager")
    y, want = pool(x, bias), P.relu_max_pool2d(x, 3, 2, 1, bias=bias)
    assert torch.equal(y, want)
    dy = torch.randn(y.shape).to(device)
    for one, two in zip(torch.autograd.grad(y, (x, bias), dy), torch.autograd.grad(want, (x, bias), dy)):
        assert torch.equal(one, two)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_modules(rank: int) -> None:
    kind = {1: P.ReLUMaxPool1d, 2: P.ReLUMaxPool2d, 3: P.ReLUMaxPool3d}[rank]
    x, bias = sample(rank, torch.float32)
    module = kind(3, 2, 1, bias=5)
    assert "bias=5" in repr(module) and [name for name, _ in module.named_parameters()] == ["bias"]
    assert torch.equal(module(x), kind(3, 2, 1)(x))
    module.load_state_dict({"bias": bias.detach()})
    want = POOLS[rank](x, 3, 2, 1, bias=bias)
    for one in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module)), kind(3, 2, 1, bias=bias.detach().clone())):
        assert torch.equal(one(x), want)
    module(x).sum().backward()
    assert module.bias.grad.shape == (5,) and module.double().bias.dtype is torch.float64
    assert not list(kind(3).state_dict())
    with pytest.raises(TypeError, match="bias is True; it must be the number of channels"):
        kind(3, bias=True)
    with pytest.raises(Exception, match="torch.jit.trace takes it"):
        torch.jit.script(module)
    traced = torch.jit.trace(module.float(), x.detach())
    assert torch.equal(traced(x + 1), module(x + 1)) and [name for name, _ in traced.named_parameters()] == ["bias"]
    torch.jit.script(kind(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_cuda_has_the_bits_of_the_cpu(dtype: Any, memory: Any) -> None:
    x = torch.randn(5, 70, 65, 63).to(dtype).to(memory_format=memory)
    bias, dy = torch.randn(70).to(dtype), torch.randn(5, 70, 33, 32).to(dtype)
    found = []
    for device in ("cpu", "cuda"):
        given = [tensor.to(device).requires_grad_() for tensor in (x, bias)]
        y = P.relu_max_pool2d(given[0], 3, 2, 1, bias=given[1])
        found.append([tensor.cpu() for tensor in (y, *torch.autograd.grad(y, given, dy.to(device)))])
    for one, two in zip(*found):
        assert torch.equal(one, two)
