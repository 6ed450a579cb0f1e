"""What newer torch adds: operators that pass opcheck, torch.compile, torch.func, and CUDA's own habits."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402

import poolgrad  # noqa: E402
import poolgrad.torch as P  # noqa: E402

VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])
needs_library = pytest.mark.skipif(
    VERSION < (2, 4), reason=f"torch.library.custom_op, opcheck and is_compiling need torch 2.4; this is {torch.__version__}"
)
needs_func = pytest.mark.skipif(VERSION < (2, 0), reason=f"torch.func needs torch 2.0; this is {torch.__version__}")
needs_cuda = pytest.mark.skipif(
    not (torch.cuda.is_available() and poolgrad.has_cuda()), reason="torch sees no CUDA device, or poolgrad was built without CUDA"
)
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two CUDA devices")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


def window(rank: int, ties: int = 1, channels_last: bool = False) -> Any:
    return ([3] * rank, [2] * rank, [1] * (2 * rank), 0, [1] * rank, False, ties, int(channels_last))


@needs_library
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ties", [1, 3])
@pytest.mark.parametrize("channels_last", [False, True])
def test_opcheck(device, ties, channels_last):
    shape = (2, 3, 7, 6)
    x = torch.randn(shape, device=device)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    fixed = window(2, ties, channels_last)
    ops = torch.ops.poolgrad
    torch.library.opcheck(ops.max_pool.default, (x, *fixed))
    y, routes = ops.max_pool(x, *fixed)
    dy = torch.randn_like(y).requires_grad_()
    torch.library.opcheck(ops.max_pool_scatter.default, (dy, routes, list(shape), *fixed))
    torch.library.opcheck(ops.max_pool_gather.default, (x.detach().clone().requires_grad_(), routes, *fixed))
    if ties == 1:
        torch.library.opcheck(ops.max_pool_indices.default, (x.detach(), routes, *fixed))


@needs_library
@pytest.mark.parametrize("device", DEVICES)
def test_operators_have_gradients_of_every_order(device):
    x = torch.randn(1, 2, 5, 5, dtype=torch.float64, device=device, requires_grad=True)
    fixed = window(2)
    assert torch.autograd.gradcheck(lambda t: torch.ops.poolgrad.max_pool(t, *fixed)[0], x)
    assert torch.autograd.gradgradcheck(lambda t: torch.ops.poolgrad.max_pool(t, *fixed)[0], x)


@needs_library
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_compiles_and_maps(rank, device):
    pool = (P.fractional_max_pool2d, P.fractional_max_pool3d)[rank - 2]
    samples = torch.rand(2, 4, rank, device=device)

    def model(t: Any) -> Any:
        return pool(t, 2, 3, return_indices=True, _random_samples=samples)

    torch._dynamo.reset()
    x = torch.randn(3, 2, 4, *(7,) * rank, device=device)
    a, b = x[0].clone().requires_grad_(), x[0].clone().requires_grad_()
    found, expected = torch.compile(model, fullgraph=True, backend="aot_eager")(a), model(b)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
    found[0].square().sum().backward()
    expected[0].square().sum().backward()
    assert torch.equal(a.grad, b.grad)
    gradients = torch.func.vmap(torch.func.grad(lambda t: model(t)[0].square().sum()))(x)
    assert torch.equal(gradients[0], b.grad)


@needs_library
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_compile_equals_eager(rank, device):
    ours = {1: P.max_pool1d, 2: P.max_pool2d, 3: P.max_pool3d}[rank]

    def model(t: Any) -> Any:
        y, indices = ours(torch.relu(t) - 0.1, 3, 2, 1, return_indices=True)
        return y * 2, indices

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for batch in (2, 3):
        x = torch.randn(batch, 4, *(8,) * rank, device=device)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        (y, indices), (expected, expected_indices) = compiled(a), model(b)
        assert torch.equal(y, expected) and torch.equal(indices, expected_indices)
        y.square().sum().backward()
        expected.square().sum().backward()
        assert torch.equal(a.grad, b.grad)


@needs_library
@pytest.mark.parametrize("device", DEVICES)
def test_compiled_model_after_convert(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1), torch.nn.Flatten(), torch.nn.Linear(128, 4)
    )  # fmt: skip
    model = P.convert(model).to(device)
    x = torch.randn(2, 3, 8, 8, device=device)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    expected = model(x)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-4)
    compiled(x).sum().backward()


@needs_func
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("unbatched", [False, True])
def test_func_transforms(device, unbatched):
    from torch.func import grad, hessian, jacrev, jvp, vjp, vmap

    shape = (4, 3, 6, 6) if unbatched else (4, 2, 3, 6, 6)
    x = torch.randn(shape, dtype=torch.float64, device=device)
    pooled = vmap(lambda t: P.max_pool2d(t, 3, 2, 1))(x)
    assert torch.equal(pooled, torch.stack([P.max_pool2d(t, 3, 2, 1) for t in x]))
    both = vmap(lambda t: P.max_pool2d(t, 2, return_indices=True)[1])(x)
    assert torch.equal(both, torch.stack([F.max_pool2d(t, 2, return_indices=True)[1] for t in x]))

    def loss(t: Any) -> Any:
        return P.max_pool2d(t, 3, 2, 1).pow(3).sum()

    def their_loss(t: Any) -> Any:
        return F.max_pool2d(t, 3, 2, 1).pow(3).sum()

    torch.testing.assert_close(vmap(grad(loss))(x), torch.stack([grad(their_loss)(t) for t in x]))
    one = x[0]
    torch.testing.assert_close(jvp(loss, (one,), (one,))[1], jvp(their_loss, (one,), (one,))[1])
    torch.testing.assert_close(vjp(loss, one)[1](torch.ones((), dtype=x.dtype, device=device))[0], grad(their_loss)(one))
    tiny = one[..., :1, :4, :4]
    torch.testing.assert_close(
        jacrev(lambda t: P.max_pool2d(t, 2))(tiny), jacrev(lambda t: F.max_pool2d(t, 2))(tiny)
    )  # fmt: skip
    torch.testing.assert_close(hessian(loss)(tiny), hessian(their_loss)(tiny))


@needs_library
def test_a_plan_made_while_tracing_serves_eager_calls():
    torch._dynamo.reset()
    compiled = torch.compile(lambda t: P.max_pool2d(t, 5, 3, 2), fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 11, 13)
    assert torch.equal(compiled(x), F.max_pool2d(x, 5, 3, 2))
    one = x[:1, :1].contiguous()  # the shape that fake kernels ask the library about
    assert torch.equal(P.max_pool2d(one, 5, 3, 2), F.max_pool2d(one, 5, 3, 2))


@needs_func
def test_tensors_that_outlive_a_transform():
    from torch.func import grad

    kept = []
    x = torch.randn(1, 2, 6, 6)
    grad(lambda t: (kept.append(t * 2), t.sum())[1])(x)
    assert torch.equal(P.max_pool2d(kept[0], 2), F.max_pool2d(x * 2, 2))
    assert torch.equal(P.max_pool2d(kept[0], 2, return_indices=True)[1], F.max_pool2d(x * 2, 2, return_indices=True)[1])


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cuda_equals_cpu(dtype):
    for kernel, stride, padding, format_ in [(3, 2, 1, None), (2, 2, 0, torch.channels_last), (5, 1, 2, torch.channels_last)]:
        x = torch.randn(3, 20, 33, 35).to(dtype)
        if format_:
            x = x.contiguous(memory_format=format_)
        here, there = x.clone().requires_grad_(), x.cuda().requires_grad_()
        y, indices = P.max_pool2d(here, kernel, stride, padding, return_indices=True)
        y_there, indices_there = P.max_pool2d(there, kernel, stride, padding, return_indices=True)
        dy = torch.randn_like(y)
        y.backward(dy)
        y_there.backward(dy.cuda())
        assert torch.equal(y_there.cpu(), y) and torch.equal(indices_there.cpu(), indices)
        assert torch.equal(there.grad.cpu(), here.grad)


@needs_cuda
def test_cuda_uses_the_current_stream():
    x = torch.randn(8, 64, 112, 112, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(20):
            x = x + 1
        y = P.max_pool2d(x, 3, 2, 1)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(y, F.max_pool2d(x, 3, 2, 1))
    graph = torch.cuda.CUDAGraph()
    P.max_pool2d(x, 3, 2, 1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = P.max_pool2d(x, 3, 2, 1)
    x.mul_(-1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, F.max_pool2d(x, 3, 2, 1))


@needs_cuda
def test_devices_must_agree():
    x = torch.randn(1, 1, 4, 4, device="cuda")
    y, routes = torch.ops.poolgrad.max_pool(x, *window(2))
    with pytest.raises(Exception, match="routes is on cpu|device"):
        torch.ops.poolgrad.max_pool_scatter(y, routes.cpu(), list(x.shape), *window(2))


@needs_two
def test_second_device():
    x = torch.randn(2, 3, 8, 8, device="cuda:1", requires_grad=True)
    y = P.max_pool2d(x, 2)
    y.sum().backward()
    assert y.device == x.device and torch.equal(y, F.max_pool2d(x, 2))
