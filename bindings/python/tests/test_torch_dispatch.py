"""What others make of a call: tracers, exporters, modes, vmap, lazy views, subclasses, memory formats. Each against torch's own."""

from __future__ import annotations

import io
import random
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch.autograd.functional import hessian, jacobian  # noqa: E402

import poolgrad.torch as P  # noqa: E402
from poolgrad.torch import _everywhere  # noqa: E402

VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])
OURS = {1: P.max_pool1d, 2: P.max_pool2d, 3: P.max_pool3d}
THEIRS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def inputs(*shape: int) -> Any:
    return torch.randn(*(shape or (2, 3, 8, 8)))


def gradient(pool: Any, x: Any, *arguments: Any) -> Any:
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(pool(x, *arguments).pow(2).sum(), x)[0]


def same(a: Any, b: Any) -> None:
    assert a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


# ---- torch.jit, ONNX, fx ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [False, True])
def test_a_trace_pools_what_it_is_given(recorded):
    traced = torch.jit.trace(P.MaxPool2d(3, 2, 1), inputs().requires_grad_(recorded))
    assert "poolgrad::max_pool" in str(traced.graph)
    for x in (inputs(), inputs(1, 3, 8, 8), inputs().contiguous(memory_format=torch.channels_last)):
        y, expected = traced(x), F.max_pool2d(x, 3, 2, 1)
        same(y, expected)
        assert y.stride() == expected.stride()
        same(gradient(traced, x), gradient(F.max_pool2d, x, 3, 2, 1))


def test_a_trace_keeps_indices_and_can_be_saved():
    model = P.convert(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(2)))
    file, x = io.BytesIO(), inputs()
    torch.jit.save(torch.jit.trace(model, inputs()), file)
    file.seek(0)
    same(torch.jit.load(file)(x), model(x))
    traced = torch.jit.trace(P.MaxPool2d(2, return_indices=True), inputs())
    for x in (inputs(), inputs().contiguous(memory_format=torch.channels_last)):
        for mine, theirs in zip(traced(x), F.max_pool2d(x, 2, return_indices=True)):
            same(mine, theirs)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_script(rank):
    ours = {1: P.MaxPool1d, 2: P.MaxPool2d, 3: P.MaxPool3d}[rank]
    x = inputs(2, 3, *(7,) * rank)
    scripted = torch.jit.script(torch.nn.Sequential(ours(3, 2, 1), ours((2,) * rank, ties="last")))
    same(scripted(x), THEIRS[rank](THEIRS[rank](x, 3, 2, 1), 2))
    both = torch.jit.script(ours(3, 2, 1, return_indices=True))
    for mine, theirs in zip(both(x), THEIRS[rank](x, 3, 2, 1, return_indices=True)):
        same(mine, theirs)
    assert type(P.convert(scripted, back=True)) is type(scripted)
    same(torch.jit.script(ours(3, 2, "same"))(x), OURS[rank](x, 3, 2, "same"))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_scripted_functions(rank):
    """A function that calls ours compiles and gives what it gives eagerly, gradients too; return_indices is a constant there."""
    names = ("max_pool", "relu_max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
    max_pool, relu_max_pool, avg_pool, adaptive_max_pool, adaptive_avg_pool = (getattr(P, f"{name}{rank}d") for name in names)

    # TorchScript reads no annotations that are strings, as this file's are: it takes x for a Tensor by itself
    def eager(x):
        y, i = max_pool(x, 3, stride=2, padding=1, return_indices=True)
        z = max_pool(x, 2, None, 1, dilation=1, ceil_mode=True, ties="last")
        r, j = relu_max_pool(x, 2, 1, return_indices=True)
        a, b = avg_pool(x, 2, 1, ceil_mode=True, count_include_pad=False), avg_pool(x, 3, padding=1)
        m, k = adaptive_max_pool(x, 3, return_indices=True)
        return y, i, z, relu_max_pool(x, 3), r, j, a, b, adaptive_max_pool(x, 4), m, k, adaptive_avg_pool(x, 3)

    scripted = torch.jit.script(eager)
    assert "poolgrad::max_pool" in str(scripted.inlined_graph)
    for x in (inputs(2, 3, *(9,) * rank), inputs(3, *(8,) * rank)):
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = scripted(mine), eager(theirs)
        assert len(found) == len(expected) == 12
        for one, other in zip(found, expected):
            same(one, other)
        for results in (found, expected):
            sum(one.pow(2).sum() for one in results if one.is_floating_point()).backward()
        same(mine.grad, theirs.grad)
    same(torch.jit.script(max_pool)(x, 2), max_pool(x, 2))
    with pytest.raises(torch.jit.Error, match="ties is 'most'; it must be one of: first, last, split, all"):
        torch.jit.script(max_pool)(x, 2, ties="most")
    if rank > 1:
        with pytest.raises(torch.jit.Error, match="divisor_override is 0; it must be at least 1, or None"):
            torch.jit.script(avg_pool)(x, 2, divisor_override=0)


def test_scripted_layers():
    x = inputs(2, 3, 9, 9)
    layers = (
        P.AvgPool2d(3, 2, 1, ceil_mode=True), P.AvgPool2d((2, 3), divisor_override=4), P.AdaptiveAvgPool2d((3, 4)), P.AdaptiveMaxPool2d(5),
        P.AdaptiveMaxPool2d((5, 4), return_indices=True), P.convert(torch.nn.Sequential(torch.nn.AdaptiveMaxPool2d(2))),
    )  # fmt: skip
    for layer in layers:
        found, expected = torch.jit.script(layer)(x), layer(x)
        for one, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, expected))):
            same(one, other)
    for layer in (P.FractionalMaxPool2d(2, output_size=3), P.MaxUnpool2d(2)):
        with pytest.raises(TypeError, match=r"ool2d of poolgrad.torch cannot be compiled by torch.jit.script; .*convert\(model, back=True\)"):
            torch.jit.script(torch.nn.Sequential(layer))
        with pytest.raises(RuntimeError, match=r"pool2d of poolgrad.torch cannot be compiled by torch.jit.script"):
            torch.jit.script(P.fractional_max_pool2d if "Frac" in type(layer).__name__ else P.max_unpool2d)


def onnx_bytes(model: Any, x: Any) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(model, x, file, **({"dynamo": False} if VERSION >= (2, 5) else {}))
    return file.getvalue()


@pytest.mark.skipif(VERSION >= (2, 0), reason="the old exporter of torch 2 needs the onnx package; the new one is tested beside it")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("window", [(2,), (3, 2, 1), ((3, 2), 1, (1, 0), 2, False, True)])
def test_onnx_is_what_torchs_own_exports_to(window, training):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.MaxPool2d(*window)).requires_grad_(training)
    x = inputs()
    expected = onnx_bytes(model, x)
    assert onnx_bytes(P.convert(model), x) == expected and b"MaxPool" in expected


@pytest.mark.skipif(VERSION >= (2, 0), reason="the old exporter of torch 2 needs the onnx package")
def test_onnx_beyond_torch():
    told = onnx_bytes(P.MaxPool2d(3, 2, "same"), inputs())
    assert b"SAME_UPPER" in told
    assert b"Mod" in onnx_bytes(P.MaxPool2d(3, 2, 1, return_indices=True), inputs())
    with pytest.raises(RuntimeError, match="knows no other rule"):
        onnx_bytes(P.MaxPool2d(2, return_indices=True, ties="last"), inputs())
    with pytest.raises(RuntimeError, match="MaxPool takes a batch"):
        onnx_bytes(P.MaxPool2d(2), inputs(3, 8, 8))


@pytest.mark.skipif(VERSION >= (2, 0), reason="the old exporter of torch 2 needs the onnx package")
@pytest.mark.parametrize(("options", "counted"), [({"ceil_mode": True}, 0), ({"padding": 1}, 1), ({"padding": "same"}, 1)])
def test_onnx_counts_padding_where_there_is_any(options, counted):
    class Pool(torch.nn.Module):
        def forward(self, x):
            return P.avg_pool2d(x, 3, 2, **options)

    told = torch.onnx.export_to_pretty_string(Pool(), (inputs(),), google_printer=False, opset_version=13)
    assert f"name: 'count_include_pad', type: int, value: {counted}" in told


@pytest.mark.skipif(VERSION < (2, 5), reason="torch.onnx.export(dynamo=True) needs torch 2.5")
def test_onnx_from_torch_export():
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    program = torch.onnx.export(P.MaxPool2d(3, 2, 1), (inputs(),), dynamo=True)
    assert [node.op_type for node in program.model_proto.graph.node] == ["MaxPool"]


def test_symbolic_fx():
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(P.MaxPool2d(3, 2, 1), torch.nn.ReLU()))
    assert "max_pool2d" in graph.code
    x = inputs()
    same(graph(x), F.relu(F.max_pool2d(x, 3, 2, 1)))


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_make_fx(mode):
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda t: P.max_pool2d(t, 3, 2, 1), tracing_mode=mode)(inputs())
    x = inputs()
    same(graph(x), F.max_pool2d(x, 3, 2, 1))

    def step(t: Any) -> Any:
        return torch.autograd.grad(P.max_pool2d(t, 3, 2, 1).pow(2).sum(), t)[0]

    graph = make_fx(step, tracing_mode=mode)(inputs().requires_grad_())
    same(graph(x.requires_grad_()), gradient(F.max_pool2d, x, 3, 2, 1))


# ---- tensors without memory ------------------------------------------------------------------------------------------------------


def test_fake_tensors_leave_plans_alone():
    from torch._subclasses import FakeTensorMode

    x = inputs(2, 5, 9, 11)
    with FakeTensorMode():
        fake = torch.randn(2, 5, 9, 11, requires_grad=True)
        y, indices = P.max_pool2d(fake, 2, return_indices=True)
        assert y.shape == indices.shape == (2, 5, 4, 5) and indices.dtype == torch.int64
        P.max_pool2d(fake, 2).sum().backward()
        assert fake.grad.shape == fake.shape
        try:
            P.max_pool2d(x, 2)  # a real tensor under the mode: torch may refuse; what matters comes after
        except Exception:
            pass
    same(P.max_pool2d(x, 2), F.max_pool2d(x, 2))
    same(gradient(P.max_pool2d, x, 2), gradient(F.max_pool2d, x, 2))


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
def test_meta(format_):
    x = inputs().contiguous(memory_format=format_).to("meta").requires_grad_()
    y, indices = P.max_pool2d(x, 3, 2, 1, return_indices=True)
    expected = F.max_pool2d(torch.empty_like(x, device="cpu"), 3, 2, 1)
    assert y.device.type == indices.device.type == "meta" and y.shape == indices.shape == expected.shape
    assert y.stride() == expected.stride()
    P.max_pool2d(x, 3, 2, 1).sum().backward()
    assert x.grad.device.type == "meta" and x.grad.shape == x.shape


def test_lazy_negatives_and_zeros():
    lazy = torch.complex(inputs(), inputs()).conj().imag
    assert lazy.is_neg()
    for x in (lazy, torch._neg_view(inputs()), torch._efficientzerotensor((2, 3, 8, 8))):
        same(P.max_pool2d(x, 2), F.max_pool2d(x, 2))
        for mine, theirs in zip(P.max_pool2d(x, 2, return_indices=True), F.max_pool2d(x, 2, return_indices=True)):
            same(mine, theirs)
        same(gradient(P.max_pool2d, x, 2), gradient(F.max_pool2d, x, 2))
    x = inputs()
    for dy in (torch._neg_view(inputs(2, 3, 4, 4)), torch._efficientzerotensor((2, 3, 4, 4))):
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        for pooled in (P.max_pool2d(mine, 2), P.max_pool2d(mine, 2, return_indices=True)[0]):
            expected = torch.autograd.grad(F.max_pool2d(theirs, 2), theirs, dy)[0]
            same(torch.autograd.grad(pooled, mine, dy)[0], expected)


def test_routes_of_a_wrapper_and_a_plain_gradient():
    """A tensor around another one, with no memory of its own, as x; then its gradient is plain, and its routes are not."""
    from torch.utils._pytree import tree_map

    class Around(torch.Tensor):
        inner: Any

        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(
                cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device, requires_grad=inner.requires_grad
            )
            made.inner = inner.detach()
            return made

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inside = tree_map(lambda t: t.inner if isinstance(t, Around) else t, (args, kwargs or {}))
            return tree_map(lambda t: Around(t) if isinstance(t, torch.Tensor) else t, function(*inside[0], **inside[1]))

        __torch_function__ = torch._C._disabled_torch_function_impl

    x, dy = inputs(), inputs(2, 3, 4, 4)
    around, theirs = Around(x.clone().requires_grad_()), x.clone().requires_grad_()
    y = P.max_pool2d(around, 2)
    assert type(y) is Around
    dx = torch.autograd.grad(y, around, dy)[0]
    same(dx.inner if isinstance(dx, Around) else dx, torch.autograd.grad(F.max_pool2d(theirs, 2), theirs, dy)[0])


def test_layouts_that_are_not_dense():
    with pytest.raises(TypeError, match=r"input has the layout torch.sparse_coo; .*convert\(model, back=True\)"):
        P.max_pool2d(inputs().to_sparse(), 2)
    if torch.backends.mkldnn.is_available():
        with pytest.raises(TypeError, match="input has the layout torch._mkldnn; .*to_dense"):
            P.max_pool2d(inputs().to_mkldnn(), 2)


# ---- many gradients at once --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["first", "split"])
def test_vectorized_jacobian_and_hessian(ties):
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64)

    def pool(t: Any) -> Any:
        return P.max_pool2d(t, 2, ties=ties)

    for strategy in ("reverse-mode", "forward-mode"):
        same(jacobian(pool, x, vectorize=True, strategy=strategy), jacobian(lambda t: F.max_pool2d(t, 2), x))
        same(
            hessian(lambda t: pool(t).pow(3).sum(), x, vectorize=True, outer_jacobian_strategy=strategy),
            hessian(lambda t: F.max_pool2d(t, 2).pow(3).sum(), x),
        )


def test_batched_gradients():
    x = inputs().requires_grad_()
    for y in (P.max_pool2d(x, 3, 2, 1), P.max_pool2d(x, 3, 2, 1, return_indices=True)[0]):
        dy = torch.randn(5, *y.shape)
        batched = torch.autograd.grad(y, x, dy, is_grads_batched=True, retain_graph=True)[0]
        same(batched, torch.stack([torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in dy]))


@pytest.mark.skipif(VERSION >= (2, 0), reason="from torch 2.0 on, torch.func sees through poolgrad; tested beside it")
def test_functorch_before_torch_2():
    functorch = pytest.importorskip("functorch", reason="functorch is not installed")
    x = inputs(4, 2, 3, 8, 8)
    same(functorch.vmap(lambda t: P.max_pool2d(t, 2))(x), torch.stack([F.max_pool2d(t, 2) for t in x]))
    with pytest.raises(NotImplementedError, match=r"they can from 2.0 on; .*convert\(model, back=True\)"):
        functorch.grad(lambda t: P.max_pool2d(t, 2).sum())(x[0])


@pytest.mark.skipif(VERSION >= (2, 0), reason="later versions name symbolic sizes otherwise; tested by torch.compile")
def test_symbolic_sizes_before_torch_2():
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(TypeError, match="input has symbolic sizes; poolgrad takes those from torch 2.4 on"):
        make_fx(lambda x: P.max_pool2d(x, 2), tracing_mode="symbolic")(inputs())
    with P.everywhere(averages=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = make_fx(lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2), tracing_mode="symbolic")(inputs())
    x = inputs()
    same(traced(x), F.avg_pool2d(F.max_pool2d(x, 2), 2))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x, _: P.max_pool2d(x, 3, 2, 1),
        lambda x, _: P.max_pool2d(x, 2, return_indices=True)[0],
        lambda x, _: P.adaptive_avg_pool2d(x, (2, 3)),
        lambda x, bias: P.relu_max_pool2d(x, 2, bias=bias),
        lambda x, _: P.fractional_max_pool2d(x, 2, 3, _random_samples=torch.linspace(0, 1, 12, dtype=x.dtype).reshape(2, 3, 2)),
        lambda x, _: P.max_unpool2d(*P.max_pool2d(x, 2, return_indices=True), 2),
    ],
)
def test_vmap_over_gradients_of_what_was_recorded_outside(pool):
    """As Jacobians are made with vmap: the forward pass ran before it, and only the gradients are inside."""
    if VERSION < (2, 0):
        vmap = pytest.importorskip("functorch", reason="functorch is not installed").vmap
    else:
        vmap = torch.vmap
    x, bias = inputs(2, 3, 8, 8).double().requires_grad_(), torch.randn(3, dtype=torch.float64, requires_grad=True)
    y = pool(x, bias)
    wanted = [t for t in (x, bias) if torch.autograd.grad(y.sum(), t, retain_graph=True, allow_unused=True)[0] is not None]
    dys = torch.randn(4, *y.shape, dtype=y.dtype, requires_grad=True)
    found = vmap(lambda dy: torch.autograd.grad(y, wanted, dy, create_graph=True))(dys)
    expected = [torch.autograd.grad(y, wanted, dy, create_graph=True) for dy in dys]
    for one, each in zip(found, zip(*expected)):
        same(one, torch.stack(each))
    second = (sum(one.pow(2).sum() for one in given) for given in (found, (torch.stack(each) for each in zip(*expected))))
    same(*(torch.autograd.grad(value, dys)[0] for value in second))


@pytest.mark.skipif(VERSION >= (2, 0), reason="from torch 2.0 on, torch.func sees through poolgrad; tested beside it")
def test_fractional_under_functorch_before_torch_2():
    """Windows that differ from plane to plane take another way: it must refuse in the same words, so that everywhere() leaves it to torch."""
    functorch = pytest.importorskip("functorch", reason="functorch is not installed")
    x, samples = inputs(4, 2, 3, 8, 8), torch.rand(2, 3, 2)
    theirs, ours = (lambda t, f=f: f(t, 2, 3, _random_samples=samples) for f in (F.fractional_max_pool2d, P.fractional_max_pool2d))
    expected = functorch.grad(lambda t: theirs(t).sum())(x[0])
    for _ in range(2):  # the first call makes the plan
        with pytest.raises(NotImplementedError, match=r"they can from 2.0 on; .*convert\(model, back=True\)"):
            functorch.grad(lambda t: ours(t).sum())(x[0])
    same(functorch.vmap(ours)(x), torch.stack([theirs(t) for t in x]))
    with P.everywhere(), pytest.warns(UserWarning, match="left to torch"):
        _everywhere._told.clear()
        same(functorch.grad(lambda t: theirs(t).sum())(x[0]), expected)


def test_operators_check_what_they_are_given():
    """They can be called by anyone, and read as much memory as their plans say."""
    x, window = inputs(2, 3, 8, 8), ([2, 2], [2, 2], [0, 0, 0, 0], 0, [1, 1], False, 1, 0)
    biased = (*window, 0, True, [], [], True, 0, True)
    dy, routes, few, ops = torch.ones(2, 3, 4, 4), torch.zeros(2, 3, 4, 1, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8), torch.ops.poolgrad
    wide = torch.zeros(2, 3, 4, 2, dtype=torch.uint8)
    cases = [
        (r"routes has the shape \(3,\)", lambda: ops.max_pool_scatter(dy, few, x.shape, *window)),
        (r"dy has the shape \(2, 3, 4, 3\)", lambda: ops.max_pool_scatter(dy[..., :3], routes, x.shape, *window)),
        (r"routes has the shape \(3,\)", lambda: ops.max_pool_gather(x, few, *window)),
        ("routes has the type torch.int8", lambda: ops.max_pool_gather(x, routes.to(torch.int8), *window)),
        (r"routes has the shape \(3,\)", lambda: ops.max_pool_indices(x, few, *window)),
        (r"bias has the shape \(2,\)", lambda: ops.max_pool_bias(x, torch.zeros(2), *biased)),
        ("bias has the type torch.float64", lambda: ops.max_pool_bias(x, torch.zeros(3).double(), *biased)),
        (r"routes has the shape \(3,\)", lambda: ops.max_pool_bias_sum(dy, few, x.shape, *biased)),
        (r"dy has the shape \(2, 3, 4\)", lambda: ops.max_pool_bias_sum(dy[..., 0], wide, x.shape, *biased)),
        (r"routes has the shape \(3,\)", lambda: ops.max_pool_routed(torch.ones(3), few, x.shape, *biased)),
        (r"tbias has the shape \(2,\)", lambda: ops.max_pool_routed(torch.ones(2), wide, x.shape, *biased)),
    ]
    for sentence, call in cases:
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode(), pytest.raises(RuntimeError, match=sentence):
                call()


# ---- what a call keeps -------------------------------------------------------------------------------------------------------------


def test_memory_format_is_what_torch_makes_it():
    rng = random.Random(0)
    for _ in range(400):
        x = torch.randn(rng.randint(1, 4), rng.randint(1, 8), rng.randint(1, 6), rng.randint(1, 6))
        if rng.random() < 0.7:
            x = x.contiguous(memory_format=torch.channels_last)
        for chance, change in (
            (0.5, lambda t: t[:, :: rng.randint(1, 3)]), (0.3, lambda t: t[::2]), (0.3, lambda t: t[..., ::2]),
            (0.2, lambda t: t.transpose(rng.randrange(4), rng.randrange(4))), (0.1, lambda t: t[:, :1].expand(-1, 3, -1, -1)),
        ):  # fmt: skip
            x = change(x) if rng.random() < chance else x
        mine, theirs = x.detach().requires_grad_(), x.detach().requires_grad_()
        y, expected = P.max_pool2d(mine, 1), F.max_pool2d(theirs, 1)
        told = f"{tuple(x.shape)} with strides {x.stride()}"
        assert y.stride() == expected.stride(), told
        dx, expected_dx = torch.autograd.grad(y.sum(), mine)[0], torch.autograd.grad(expected.sum(), theirs)[0]
        assert dx.stride() == expected_dx.stride(), told


def test_names():
    x = torch.randn(2, 3, 8, 8, names=("N", "C", "H", "W"), requires_grad=True)
    y, expected = P.max_pool2d(x, 2), F.max_pool2d(x, 2)
    assert y.names == expected.names == ("N", "C", "H", "W")
    same(y.rename(None), expected.rename(None))
    assert P.max_pool2d(x, 2, return_indices=True)[1].names == F.max_pool2d(x, 2, return_indices=True)[1].names
    y.rename(None).sum().backward()
    assert x.grad is not None


def test_subclasses_and_modes():
    seen = []

    class Seen(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = inputs()
    y = P.max_pool2d(x.as_subclass(Seen), 3, 2, padding=1)
    assert type(y) is Seen and P.max_pool2d in seen
    same(y.as_subclass(torch.Tensor), F.max_pool2d(x, 3, 2, 1))
    for mine, theirs in zip(P.max_pool2d(x.as_subclass(Seen), 2, return_indices=True), F.max_pool2d(x, 2, return_indices=True)):
        same(mine.as_subclass(torch.Tensor), theirs)

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(("mode", function))
            return function(*args, **(kwargs or {}))

    with Watch():
        P.max_pool2d(x, 2)
    assert ("mode", P.max_pool2d) in seen


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("return_indices", [False, True])
def test_cpu_autocast_gives_torchs_type(rank, return_indices):
    x = torch.randn(1, 2, *(4,) * rank).bfloat16()
    with torch.autocast("cpu"):
        try:
            expected = THEIRS[rank](x, 2, return_indices=return_indices)
        except RuntimeError:
            pytest.skip(f"torch {torch.__version__} does not run this itself")
        found = OURS[rank](x, 2, return_indices=return_indices)
    same(*((found[0], expected[0]) if return_indices else (found, expected)))
