"""Adaptive, average and fractional pooling and unpooling against torch, and what autograd owes.

Equal to the bit in float32 and float64 on the CPU: average pooling, adaptive max pooling, fractional pooling and unpooling. Not equal, and
nearly so: adaptive averages (torch divides the sum by each axis' size in turn, we by their product, once).
"""

from __future__ import annotations

import copy
import pickle
import warnings
from math import prod

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import poolgrad.torch as P  # noqa: E402

FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])


def random_x(rng, rank, smallest=1):
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    spatial = [rng.randint(smallest, {1: 30, 2: 12, 3: 7}[rank]) for _ in range(rank)]
    batch = [2] if rng.random() < 0.8 else []
    x = torch.randn(*batch, rng.randint(1, 9), *spatial, generator=generator, dtype=rng.choice([torch.float32, torch.float64]))
    if batch and rank > 1 and rng.random() < 0.5:
        x = x.contiguous(memory_format=FORMATS[rank])
    return x, spatial


def compare(name, x, *arguments, exact=True, exact_gradient=True, **options):
    told = f"{name} {tuple(x.shape)} {x.dtype} strides {x.stride()} {arguments} {options}"
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = getattr(P, name)(mine, *arguments, **options), getattr(F, name)(theirs, *arguments, **options)
    if isinstance(found, tuple):
        assert torch.equal(found[1], expected[1]), told
        found, expected = found[0], expected[0]
    (torch.testing.assert_close, assert_equal)[exact](found, expected, msg=told)
    dy = torch.randn_like(expected)
    found.backward(dy)
    expected.backward(dy)
    (torch.testing.assert_close, assert_equal)[exact_gradient](mine.grad, theirs.grad, msg=told)


def assert_equal(a, b, msg):
    assert a.dtype == b.dtype and torch.equal(a, b), msg


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_equals_torch(rng, rank):
    for _ in range(60):
        x, spatial = random_x(rng, rank)
        size = [rng.choice([None, *range(1, 8)]) for _ in range(rank)] if rank > 1 and rng.random() < 0.8 else rng.randint(1, 9)
        compare(f"adaptive_max_pool{rank}d", x, size, return_indices=True)
        compare(f"adaptive_avg_pool{rank}d", x, size, exact=False, exact_gradient=False)
    x = torch.randn(2, 3, *(7,) * rank)
    x.view(-1)[::5] = float("nan")
    found, expected = (getattr(place, f"adaptive_max_pool{rank}d")(x, 3, return_indices=True) for place in (P, F))
    assert torch.equal(found[1], expected[1]) and torch.equal(found[0].isnan(), expected[0].isnan())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_average_equals_torch(rng, rank):
    for _ in range(80):
        x, spatial = random_x(rng, rank)
        kernel = [rng.randint(1, n) for n in spatial]
        padding = [rng.randint(0, k // 2) for k in kernel]
        stride = rng.choice([None, [rng.randint(1, 4) for _ in kernel]])
        more = {} if rank == 1 else {"divisor_override": rng.choice([None, None, 1, 3])}
        compare(f"avg_pool{rank}d", x, kernel, stride, padding, rng.random() < 0.5, rng.random() < 0.5, **more)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_equals_torch(rng, rank, shared):
    for _ in range(40):
        x, spatial = random_x(rng, rank, smallest=2)
        kernel = [rng.randint(1, n - 1) for n in spatial]
        size = [rng.randint(1, n - k) for n, k in zip(spatial, kernel)]
        samples = torch.rand(x.shape[0] if x.dim() == rank + 2 else 1, x.shape[-rank - 1], rank, dtype=x.dtype)
        if shared:
            samples[:] = samples[:1, :1].clone()
        options = {"return_indices": True, "_random_samples": samples}
        compare(f"fractional_max_pool{rank}d", x, kernel, size, **options)
    x = torch.randn(2, 3, *(9,) * rank)
    name = f"fractional_max_pool{rank}d"
    for option in ({"output_ratio": (0.6,) * rank}, {"output_size": 4}):  # the same random numbers
        torch.manual_seed(5)
        found = getattr(P, name)(x, 2, **option)
        torch.manual_seed(5)
        assert torch.equal(found, getattr(F, name)(x, 2, **option))


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_results_lie_as_torchs_whatever_is_drawn(rank):
    x = torch.randn(2, 3, *(9,) * rank).contiguous(memory_format={2: torch.channels_last, 3: torch.channels_last_3d}[rank])
    samples = torch.rand(2, 3, rank)
    for drawn in (samples, samples[:1, :1].expand_as(samples)):  # windows of each plane's own, and shared ones
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        name, given = f"fractional_max_pool{rank}d", {"output_size": 4, "return_indices": True, "_random_samples": drawn}
        found, expected = getattr(P, name)(a, 2, **given), getattr(F, name)(b, 2, **given)
        assert [one.stride() for one in found] == [one.stride() for one in expected]
        gradients = [torch.autograd.grad(y, one, torch.ones_like(y))[0] for (y, _), one in ((found, a), (expected, b))]
        assert gradients[0].stride() == gradients[1].stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_fractional_windows_of_long_axes(dtype):
    """Samples whose rounding moves windows: y and the gradient stay at the indices."""
    awkward = torch.tensor([0, 1 / 3, 0.5, 2 / 3, 0.75, 1], dtype=torch.float64)
    awkward = torch.cat([awkward * (1 + ulps * torch.finfo(dtype).eps) for ulps in (-1, -0.5, 0, 0.5, 1)]).clamp(max=1)
    for size, kernel, outputs in ((1000, 2, 999), (1000, 3, 334), (997, 7, 331), (1000, 1, 112), (300, 1, 200), (64, 5, 2), (9, 4, 1)):
        samples = torch.cat((awkward, torch.rand(80, dtype=torch.float64))).to(dtype)[None, :, None].repeat(1, 1, 2)
        x = torch.randn(1, samples.shape[1], 2, size).to(dtype).requires_grad_()
        y, indices = P.fractional_max_pool2d(x, (2, kernel), (1, outputs), return_indices=True, _random_samples=samples)
        assert torch.equal(y.flatten(2), x.flatten(2).gather(2, indices.flatten(2)))
        y.backward(torch.ones_like(y))
        wanted = torch.zeros(x.shape).flatten(2).scatter_add_(2, indices.flatten(2), torch.ones(y.shape).flatten(2))
        assert torch.equal(x.grad.flatten(2), wanted.to(dtype))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpool_equals_torch(rng, rank):
    for number in range(30):
        x, spatial = random_x(rng, rank, smallest=4)
        y, indices = getattr(F, f"max_pool{rank}d")(x, 2, return_indices=True)
        size = rng.choice([None, spatial, [*x.shape[:-rank], *spatial]]) if x.dim() == rank + 2 else spatial
        if size is None and any(n % 2 for n in spatial):
            size = spatial
        compare(f"max_unpool{rank}d", y, indices, 2, output_size=size)


def test_unpool_checks_and_keeps_the_last():
    y, indices = torch.tensor([[[1.0, 2.0, 3.0]]], requires_grad=True), torch.tensor([[[4, 4, 0]]])
    x = P.max_unpool1d(y, indices, 2)
    assert x.tolist() == [[[3, 0, 0, 0, 2, 0]]]
    x.backward(torch.tensor([[[1.0, 2, 3, 4, 5, 6]]]))
    assert y.grad.tolist() == [[[0, 5, 1]]]  # the first of the two is not in x
    many = torch.autograd.grad(P.max_unpool1d(y, indices, 2), y, torch.eye(6)[:, None, None], is_grads_batched=True)[0]
    assert many[:, 0, 0].tolist() == [[0, 0, 1], *[[0, 0, 0]] * 3, [0, 1, 0], [0, 0, 0]]
    for wrong in (-1, 6, 1 << 40):
        with pytest.raises(ValueError, match=rf"is {wrong}\b"):
            P.max_unpool1d(y, torch.tensor([[[4, wrong, 0]]]), 2)
    with pytest.raises(TypeError, match="indices has the type torch.int32; indices are torch.int64"):
        P.max_unpool1d(y, indices.int(), 2)
    with pytest.raises(ValueError, match=r"indices has the shape \(1, 1, 2\)"):
        P.max_unpool1d(y, indices[..., :2], 2)
    with pytest.raises(ValueError, match=r"output_size\[0\] is 9; these windows reach between 5 and 7"):
        P.max_unpool1d(y, indices, 2, output_size=[9])


@pytest.mark.parametrize("keep", [True, False])
def test_unpool_by_torchs_operators_is_the_same(keep):
    """What CUDA and functorch take."""
    from poolgrad.torch.pooling import _unpool_by_torch, unpool_to

    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    indices = torch.randint(0, 30, y.shape, generator=generator)  # many at the same place
    if keep:
        indices = torch.stack([torch.randperm(30, generator=generator)[:20] for _ in range(6)]).reshape(y.shape)
    one, other = y.clone().requires_grad_(), y.clone().requires_grad_()
    found, expected = _unpool_by_torch(one, indices, (5, 6)), unpool_to(other, indices, (5, 6))
    assert torch.equal(found, expected)
    dx = torch.randn_like(found)
    found.backward(dx)
    expected.backward(dx)
    assert torch.equal(one.grad, other.grad)


def test_an_empty_batch():
    x = torch.zeros(0, 3, 6, 6, requires_grad=True)
    for run in (lambda: P.fractional_max_pool2d(x, 2, 3), lambda: P.adaptive_max_pool2d(x, 3), lambda: P.avg_pool2d(x, 2)):
        y = run()
        assert y.shape == (0, 3, 3, 3)
        y.sum().backward()


def separate(shape):
    count = 1
    for n in shape:
        count *= n
    return torch.randperm(count, generator=torch.Generator().manual_seed(3)).double().reshape(shape) / 8


SAMPLES = torch.tensor([[[0.3, 0.6], [0.9, 0.1]]], dtype=torch.float64)
UNPOOL = torch.tensor([[[[0, 3], [3, 8]], [[1, 4], [7, 10]]]])
FUNCTIONS = {
    "adaptive_max": (lambda x: P.adaptive_max_pool2d(x, (3, 2)), (1, 2, 4, 5)),
    "adaptive_avg": (lambda x: P.adaptive_avg_pool2d(x, (3, 2)), (1, 2, 4, 5)),
    "avg": (lambda x: P.avg_pool2d(x, 3, 2, 1, True, False), (1, 2, 4, 5)),
    "avg_divisor": (lambda x: P.avg_pool3d(x, 2, 1, divisor_override=3), (1, 1, 3, 3, 2)),
    "fractional": (lambda x: P.fractional_max_pool2d(x, 2, (2, 3), _random_samples=SAMPLES.to(x.device)), (1, 2, 4, 5)),
    "unpool": (lambda y: P.max_unpool2d(y, UNPOOL, 2), (1, 2, 2, 2)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_every_order(name):
    function, shape = FUNCTIONS[name]
    x = separate(shape).requires_grad_()
    assert torch.autograd.gradcheck(function, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("name", ["adaptive_max", "adaptive_avg", "avg", "fractional"])
def test_traces_meta_and_names(name):
    function, _ = FUNCTIONS[name]
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64)
    expected = function(x)
    assert torch.equal(torch.jit.trace(function, x)(x), expected)
    assert function(x.to("meta")).shape == expected.shape
    assert name == "fractional" or function(x.rename("N", "C", "H", "W")).names == ("N", "C", "H", "W")
    from torch.fx.experimental.proxy_tensor import make_fx

    assert torch.equal(make_fx(function)(x)(x), expected)


def test_average_keeps_nothing():
    kept = []
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        P.avg_pool2d(x, 2), P.adaptive_avg_pool2d(x, 3)
    assert sum(t.numel() for t in kept) == 0


def test_determinism():
    x = torch.randn(2, 8, 13, 11, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        gradients = []
        for _ in range(5):
            y = P.adaptive_max_pool2d(x, (5, 7)).sum() + P.adaptive_avg_pool2d(x, (5, 7)).square().sum()
            gradients.append(torch.autograd.grad(y, x)[0])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(gradients[0], gradient) for gradient in gradients)


def all_layers():
    return nn.ModuleDict(
        {
            "AvgPool1d": nn.AvgPool1d(3, 2, 1, count_include_pad=False),
            "AvgPool2d": nn.AvgPool2d(3, 2, 1, divisor_override=5),
            "AvgPool3d": nn.AvgPool3d(2, ceil_mode=True),
            "AdaptiveMaxPool1d": nn.AdaptiveMaxPool1d(3, return_indices=True),
            "AdaptiveMaxPool2d": nn.AdaptiveMaxPool2d((3, None)),
            "AdaptiveMaxPool3d": nn.AdaptiveMaxPool3d(2),
            "AdaptiveAvgPool1d": nn.AdaptiveAvgPool1d(3),
            "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d((None, 3)),
            "AdaptiveAvgPool3d": nn.AdaptiveAvgPool3d(2),
            "FractionalMaxPool2d": nn.FractionalMaxPool2d(2, 3, _random_samples=torch.rand(2, 3, 2)),
            "FractionalMaxPool3d": nn.FractionalMaxPool3d(2, output_ratio=0.5, _random_samples=torch.rand(2, 3, 3)),
        }
    )


def test_convert_takes_all_layers():
    torch.manual_seed(2)
    theirs = all_layers()
    for name, layer in P.convert(copy.deepcopy(theirs)).items():
        assert type(layer) is getattr(nn if "Avg" in name else P, name)
    ours = P.convert(copy.deepcopy(theirs), averages=True)
    for name, layer in ours.items():
        assert type(layer) is getattr(P, name)
        x = torch.randn(2, 3, *(7,) * int(name[-2]))
        for again in (layer, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
            torch.testing.assert_close(again(x), theirs[name](x))
        assert repr(layer) == repr(theirs[name])
    back = P.convert(ours, back=True)
    assert [type(layer) for layer in back.values()] == [type(layer) for layer in theirs.values()]
    for rank in (1, 2, 3):
        y, indices = getattr(F, f"max_pool{rank}d")(torch.randn(2, 3, *(8,) * rank), 2, return_indices=True)
        layer = getattr(nn, f"MaxUnpool{rank}d")(2)
        assert torch.equal(P.convert(copy.deepcopy(layer))(y, indices), layer(y, indices))


def test_a_layer_leaves_to_torch_what_poolgrad_refuses():
    x = torch.arange(8).reshape(1, 1, 2, 4)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        from poolgrad.torch import _everywhere

        _everywhere._told.clear()
        assert P.AvgPool2d(2)(x).tolist() == [[[[2, 4]]]]
    assert "avg_pool2d is left to torch: input has the type torch.int64" in str(told[0].message)


AUTOCAST = {
    **{f"avg_pool{rank}d": (rank, 2) for rank in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{rank}d": (rank, 2) for rank in (1, 2, 3) for kind in ("max", "avg")},
    **{f"fractional_max_pool{rank}d": (rank, 2, 2) for rank in (2, 3)},
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_cpu_autocast_gives_torchs_type(name):
    rank, *arguments = AUTOCAST[name]
    x = torch.randn(2, 3, *(6,) * rank).bfloat16()
    found = []
    for functions in (F, P):
        torch.manual_seed(3)  # fractional pooling draws samples, in the type before the cast
        with torch.autocast("cpu"):
            try:
                found.append(getattr(functions, name)(x, *arguments))
            except RuntimeError as error:  # torch's alone
                pytest.skip(f"torch {torch.__version__}: {error}")
    assert found[0].dtype is found[1].dtype
    if "adaptive_avg" not in name:
        assert torch.equal(*found)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_cpu_autocast_gives_torchs_type_of_unpooling(rank):
    y = torch.randn(2, 3, *(2,) * rank).bfloat16().requires_grad_()
    indices = torch.arange(2**rank).flip(0).expand(2, 3, -1).reshape(y.shape)
    found = []
    for functions in (F, P):
        with torch.autocast("cpu"):
            x = getattr(functions, f"max_unpool{rank}d")(y, indices, 2)
        found.append((x, torch.autograd.grad(x.float().square().sum(), y)[0]))
    for theirs, ours in zip(*found):
        assert theirs.dtype is ours.dtype and torch.equal(theirs, ours)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda x: P.adaptive_max_pool2d(x, 0), r"output_size\[0\] is 0; it must be at least 1"),
        (lambda x: P.adaptive_avg_pool2d(x, (1, 2, 3)), "output_size has 3 entries"),
        (lambda x: P.adaptive_max_pool2d(x, 2.5), "output_size is 2.5; it must be an integer"),
        (lambda x: P.adaptive_max_pool3d(x[0], 2), r"adaptive_max_pool3d takes 5 dimensions, or 4 without a batch"),
        (lambda x: P.avg_pool2d(x, 2, divisor_override=0), "divisor_override is 0; it must be at least 1"),
        (lambda x: P.avg_pool2d(x, 9), r"kernel_size\[0\] is 9; with dilation 1 the window spans 9"),
        (lambda x: P.avg_pool2d(x, 2, padding=2), r"padding\[0\] is 2; it may be at most half of the window, 1"),
        (lambda x: P.avg_pool2d(x.int(), 2), "input has the type torch.int32; average pooling takes torch.float32, torch.float64"),
        (lambda x: P.avg_pool2d(x, 2, ceil_mode="no"), "ceil_mode is 'no'; it must be True or False"),
        (lambda x: P.avg_pool2d(x, 2, count_include_pad=[]), r"count_include_pad is \[\]; it must be True or False"),
        (lambda x: P.max_pool2d(x, 2, ceil_mode="no"), "ceil_mode is 'no'; it must be True or False"),
        (lambda x: P.max_pool2d(x, 2, ties=["first"]), r"ties is \['first'\]; it must be a string"),
        (lambda x: P.adaptive_max_pool2d(x, "3"), "output_size is '3'; it must be an integer"),
        (lambda x: P.adaptive_avg_pool2d(x, (1, 2**70)), r"output_size\[1\] is 1180591620717411303424; it must lie between"),
        (lambda x: P.fractional_max_pool2d(x, 2, output_ratio=float("nan")), r"output_ratio\[0\] is nan; it must lie between 0 and 1"),
        (lambda x: P.fractional_max_pool2d(x, 2, output_ratio=(0.5, float("inf"))), r"output_ratio\[1\] is inf; it must lie between 0"),
        (lambda x: P.fractional_max_pool2d(x, 2, output_ratio="1"), r"output_ratio\[0\] is '1'; it must be a number"),
        (lambda x: P.fractional_max_pool2d(x.int(), 2, 3), "input has the type torch.int32; fractional_max_pool2d draws its windows in"),
        (lambda x: P.fractional_max_pool2d(x, 2, 3, _random_samples=[1]), "argument '_random_samples' is a list; it must be a Tensor"),
        (lambda x: P.fractional_max_pool2d(x, (2,), 3), "kernel_size has 1 entries; give one integer, or one per spatial axis: 2"),
        (lambda x: P.fractional_max_pool2d(x, 2), "was given neither output_size nor output_ratio"),
        (lambda x: P.fractional_max_pool2d(x, 2, 4), r"output_size\[0\] is 4; with windows of 2 taps the 4 inputs have room for 3"),
        (
            lambda x: P.fractional_max_pool2d(x, 2, 2, _random_samples=torch.rand(1, 1, 2)),
            r"_random_samples has the shape \(1, 1, 2\); for this input it must have \(1, 2, 2\)",
        ),
        (lambda x: P.fractional_max_pool2d(x, 2, 2, _random_samples=torch.full((1, 2, 2), 7.0)), "not between 0 and 1"),
        (lambda x: P.max_unpool2d(x, 3, 2), "argument 'indices' is a int; it must be a Tensor"),
        (lambda x: P.max_unpool2d(x, x.long() + 99, 2), r"indices\[0\] is 99; it must lie inside its own plane of the tensor$"),
        (lambda x: P.max_unpool2d(x, x.long(), 0), r"kernel_size\[0\] is 0; it must be at least 1"),
        (lambda x: P.max_unpool2d(x, x.long(), 2, (1, 0)), r"stride\[1\] is 0; it must be at least 1"),
        (lambda x: P.max_unpool2d(x, x.long(), 2, 2, "same"), "padding is 'same'; max_unpool2d takes an integer"),
        (lambda x: P.max_unpool2d(x[:, :, :1], x[:, :, :1].long(), 2, 2, 1), r"padding\[0\] is 1; so much leaves none of the places"),
        (lambda x: P.max_unpool2d(x, x.long(), 2, output_size=(8.5, 10)), r"output_size\[0\] is 8.5; it must be an integer"),
        (lambda x: P.max_unpool2d(x, x.long(), 2, output_size="ab"), r"output_size\[0\] is 'ab'; it must be an integer"),
        (lambda x: P.avg_pool2d([1], 2), r"avg_pool2d\(\): argument 'input' is a list; it must be a Tensor"),
    ],
)
def test_errors_are_sentences(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence) as found:
        call(torch.zeros(1, 2, 4, 5))
    assert isinstance(found.value, RuntimeError)  # what torch raises


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_on_cuda(rank, rng):
    """On a GPU the bits of the CPU: values, indices and gradients, and the same again."""
    for _ in range(12):
        x, spatial = random_x(rng, rank)
        size = tuple(rng.randint(1, n + 2) for n in spatial)
        dtype = rng.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
        for kind in ("max", "avg"):
            pool, found = getattr(P, f"adaptive_{kind}_pool{rank}d"), []
            options = {"return_indices": True} if kind == "max" else {}
            for device in ("cpu", "cuda", "cuda"):
                t = x.detach().to(device, dtype, copy=True).requires_grad_()
                y = pool(t, size, **options)
                y, indices = y if kind == "max" else (y, None)
                (y.float() * torch.arange(y.numel(), device=device).reshape(y.shape)).sum().backward()
                found.append((y.detach().cpu(), None if indices is None else indices.cpu(), t.grad.cpu()))
            for other in found[1:]:
                for a, b in zip(found[0], other):
                    assert a is b is None or torch.equal(a, b), (kind, tuple(x.shape), size, dtype)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_on_cuda(rank, rng):
    """torch's values and indices there, in every type; poolgrad's gradients are those of the CPU, and the same again. The CPU waits for nothing."""
    name = f"fractional_max_pool{rank}d"
    for number in range(20):
        x, spatial = random_x(rng, rank, smallest=3)
        dtype = rng.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
        kernel = [rng.randint(1, n - 2) for n in spatial]
        size = [rng.randint(1, n - k) for n, k in zip(spatial, kernel)]
        samples = torch.rand(x.shape[0] if x.dim() == rank + 2 else 1, x.shape[-rank - 1], rank).to(dtype)
        if number % 4 == 0:
            x[torch.rand(x.shape) < 0.2] = float("nan")
        found = []
        for device in ("cpu", "cuda", "cuda"):
            t = x.detach().to(device, dtype, copy=True).requires_grad_()
            given, dy = samples.to(device), torch.arange(prod(t.shape[:-rank]) * prod(size), device=device).to(dtype)
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("error")
            try:
                y, indices = getattr(P, name)(t, kernel, size, return_indices=True, _random_samples=given)
                y.backward(dy.reshape(y.shape))
            finally:
                torch.cuda.set_sync_debug_mode("default")
            found.append((y.detach().cpu(), indices.cpu(), t.grad.cpu()))
            if device == "cuda":
                theirs = getattr(F, name)(t.detach(), kernel, size, return_indices=True, _random_samples=given)
                assert torch.equal(y.isnan(), theirs[0].isnan()) and torch.equal(y.nan_to_num(), theirs[0].nan_to_num())
                assert torch.equal(indices, theirs[1]), (tuple(x.shape), kernel, size, dtype)
        same = found if dtype in (torch.float32, torch.float64) else found[1:]  # halves draw their windows in other arithmetic on the CPU
        for other in same[1:]:
            assert torch.equal(same[0][1], other[1]) and torch.equal(same[0][2], other[2]), (tuple(x.shape), kernel, size, dtype)
