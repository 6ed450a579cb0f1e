"""poolgrad.torch against torch itself, bit for bit, on random problems; and what autograd, modules and errors owe."""

from __future__ import annotations

import copy
import os
import pickle
import random
import signal
from typing import Any

import numpy as np
import pytest

import poolgrad

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402
from conftest import random_window  # noqa: E402

import poolgrad.torch as P  # noqa: E402
from poolgrad.torch import _operations  # noqa: E402

OURS = {1: P.max_pool1d, 2: P.max_pool2d, 3: P.max_pool3d}
THEIRS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16, torch.float16: torch.int16}
VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")),
]


def same_bits(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.contiguous().view(BITS[a.dtype]), b.contiguous().view(BITS[b.dtype]))


def random_input(rng: random.Random, shape: Any, dtype: Any, device: str) -> Any:
    """Continuous values or many ties; at times NaN, -inf and both zeros."""
    generator = np.random.default_rng(rng.randrange(1 << 30))
    x = generator.standard_normal(shape) if rng.random() < 0.5 else generator.integers(-2, 3, shape).astype(float)
    if rng.random() < 0.3:
        specials = generator.choice([np.nan, -np.inf, np.inf, -0.0, 0.0], shape)
        x = np.where(generator.random(shape) < 0.2, specials, x)
    if rng.random() < 0.05:
        x[:] = -np.inf
    return torch.tensor(x, dtype=dtype, device=device)


def torch_takes(rank: int, dtype: Any, device: str) -> bool:
    x = torch.zeros(1, 1, *(4,) * rank, dtype=dtype, device=device, requires_grad=True)
    try:
        THEIRS[rank](x, 2).sum().backward()
    except RuntimeError:  # "... not implemented for 'BFloat16'"
        return False
    return True


def same_values(a: Any, b: Any) -> bool:
    """The same bits, any NaN for any NaN."""
    return torch.equal(a.isnan(), b.isnan()) and same_bits(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_equals_torch_on_a_thousand_problems(rng, rank, device):
    """Bit for bit, but for two things in which torch contradicts itself; the tests below show them. On the CPU the halves
    pass through float32, which does not keep a NaN's payload. And where the indices of its two layouts differ, which must be in
    windows of nothing but -inf, ours are those of its contiguous one."""
    halves = [half for half in (torch.bfloat16, torch.float16) if torch_takes(rank, half, device)]
    for number in range(1000):
        spatial, (kernel, stride, padding, dilation, ceil) = random_window(rng, rank)
        dtype = rng.choice([torch.float32, torch.float32, torch.float64, *halves])
        batch = [] if rng.random() < 0.15 else [rng.randint(1, 3)]
        channels = rng.randint(1, 9) if rng.random() < 0.8 else rng.randint(10, 40)
        x = random_input(rng, (*batch, channels, *spatial), dtype, device)
        channels_last = bool(rank > 1 and batch and rng.random() < 0.5)
        if channels_last:
            x = x.contiguous(memory_format=FORMATS[rank])
        arguments = (kernel, stride, padding, dilation, ceil)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, indices = OURS[rank](mine, *arguments, return_indices=True)
        expected, expected_indices = THEIRS[rank](theirs, *arguments, return_indices=True)
        told = f"problem {number}: {tuple(x.shape)} {dtype} strides {x.stride()} {arguments}"
        same = same_values if dtype in halves and device == "cpu" else same_bits
        assert same(y, expected), told
        assert same_bits(OURS[rank](x, *arguments), y), told
        # Halves are summed in float32 here and in the half type there (test_gradients_of_halves): whole numbers are exact in both.
        dy = torch.randint(-4, 5, y.shape, device=device).to(dtype) if dtype in halves else torch.randn_like(expected)
        if channels_last and not torch.equal(indices, expected_indices):
            contiguous_indices = THEIRS[rank](x.contiguous(), *arguments, return_indices=True)[1]
            unlike = expected_indices != contiguous_indices
            assert bool((expected[unlike] == -float("inf")).all()), told
            expected_indices = contiguous_indices
            dy[unlike] = 0
        assert torch.equal(indices, expected_indices), told
        y.backward(dy)
        expected.backward(dy)
        if device == "cpu":
            assert same_bits(mine.grad, theirs.grad), told
        else:  # torch adds overlapping windows with atomics, in no fixed order
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("device", DEVICES)
def test_windows_of_padding_alone_have_no_winner(device):
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]], device=device, requires_grad=True)
    y, indices = P.max_pool2d(x, 2, padding=(0, 1), dilation=(1, 3), return_indices=True)
    assert torch.equal(y, F.max_pool2d(x, 2, padding=(0, 1), dilation=(1, 3)))
    assert y.item() == -float("inf") and indices.item() == -1
    assert P.relu_max_pool2d(x, 2, padding=(0, 1), dilation=(1, 3)).item() == 0
    y.sum().backward()
    assert not x.grad.any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [2, 3])
def test_indices_of_windows_of_minus_infinity(rank, device):
    """Ours are the first tap's in either layout, as torch's contiguous ones. Its channels_last ones may lie outside the window:
    0 on CUDA in two dimensions; without their depth on the CPU in three, in channels that fill no vector."""
    x = torch.full((1, 3, *(6,) * rank), -float("inf"), device=device)
    laid_out = x.contiguous(memory_format=FORMATS[rank])
    first = THEIRS[rank](x, 2, return_indices=True)[1]
    for mine in (x, laid_out):
        assert torch.equal(OURS[rank](mine, 2, return_indices=True)[1], first)
    found = THEIRS[rank](laid_out, 2, return_indices=True)[1]
    if device == "cuda" and rank == 2:
        assert not found.any()
    elif device == "cpu" and rank == 3 and VERSION >= (2, 0):
        assert torch.equal(found, first % 36)
    else:
        assert torch.equal(found, first)


@pytest.mark.parametrize("half,written", [(torch.bfloat16, 0x7FB5), (torch.float16, 0x7D55)])
def test_payload_of_nan_in_halves(half, written):
    """y is the winner's bits, as of torch's max_pool1d; its max_pool2d rounds them from float32 on the CPU, and a NaN changes."""
    if not torch_takes(2, half, "cpu"):
        pytest.skip(f"torch {torch.__version__} does not pool {half} on the CPU")
    x = torch.full((1, 70, 4, 4), written, dtype=torch.int16).view(half)
    for mine in (x, x.contiguous(memory_format=torch.channels_last)):
        assert (P.max_pool2d(mine, 2).contiguous().view(torch.int16) == written).all()
        theirs = F.max_pool2d(mine, 2)
        assert theirs.isnan().all() and (theirs.contiguous().view(torch.int16) != written).all()
    assert (F.max_pool1d(x[:, :, 0], 2).view(torch.int16) == written).all()


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_halves(rank, half):
    """Of windows that share no input, torch's bits. Where windows share one, its gradients are added in float32 and rounded once;
    torch on the CPU rounds after every addition, and so is off by up to some units in the last place."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(2, 3, *(9,) * rank, generator=generator).to(half)

    def run(pool: Any, t: Any, dy: Any, *window: Any) -> Any:
        t = t.clone().requires_grad_()
        return torch.autograd.grad(pool(t, *window), t, dy)[0]

    apart, shared = (3,), (3, 1, 1)
    for window in (apart, shared):
        dy = torch.randn(OURS[rank](x, *window).shape, generator=generator).to(half)
        dx = run(OURS[rank], x, dy, *window)
        assert same_bits(dx, run(THEIRS[rank], x.float(), dy.float(), *window).to(half))
        if torch_takes(rank, half, "cpu"):
            theirs = run(THEIRS[rank], x, dy, *window)
            assert same_bits(dx, theirs) == (window is apart)
            torch.testing.assert_close(dx, theirs, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [2, 3])
def test_channels_last_is_preserved(rank, device):
    x = torch.randn(2, 5, *(6,) * rank, device=device).contiguous(memory_format=FORMATS[rank]).requires_grad_()
    y, indices = OURS[rank](x, 3, 2, 1, return_indices=True)
    assert y.is_contiguous(memory_format=FORMATS[rank]) and indices.is_contiguous(memory_format=FORMATS[rank])
    dx = torch.autograd.grad(y, x, torch.ones_like(y))[0]
    assert dx.is_contiguous(memory_format=FORMATS[rank])
    sliced = x.detach()[:, :, 1:]
    assert torch.equal(OURS[rank](sliced, 2), OURS[rank](sliced.contiguous(), 2))
    assert OURS[rank](sliced, 2).is_contiguous(memory_format=FORMATS[rank])
    wrong_way = torch.randn_like(y).contiguous()
    assert torch.equal(
        torch.autograd.grad(OURS[rank](x, 3, 2, 1), x, wrong_way)[0],
        torch.autograd.grad(OURS[rank](x.contiguous(), 3, 2, 1), x, wrong_way)[0],
    )


def saved_bytes(run: Any) -> int:
    total = 0

    def pack(tensor: Any) -> Any:
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return total


@pytest.mark.parametrize("kernel,bits", [(2, 2), (3, 4), (5, 8), (15, 8)])
def test_only_routes_are_saved(kernel, bits):
    x = torch.randn(2, 8, 64, 64, requires_grad=True)
    y = P.max_pool2d(x, kernel, 2)
    line = -(-y.shape[-1] * bits // 8)
    ours = saved_bytes(lambda: P.max_pool2d(x, kernel, 2))
    theirs = saved_bytes(lambda: F.max_pool2d(x, kernel, 2))
    assert ours == y.numel() // y.shape[-1] * line <= y.numel()
    assert theirs >= 8 * y.numel() + 4 * x.numel()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ties", ["first", "last", "split", "all"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_every_order(rank, ties, device):
    torch.manual_seed(rank)
    x = torch.randn(1, 2, *(5 if rank < 3 else 4,) * rank, dtype=torch.float64, device=device, requires_grad=True)

    def run(t: Any) -> Any:
        return OURS[rank](t, 3, 2, 1, ties=ties)

    assert torch.autograd.gradcheck(run, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, x, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_forward_mode_of_forward_and_indices():
    import torch.autograd.forward_ad as fwad

    x, tx = torch.randn(1, 2, 6, 6), torch.randn(1, 2, 6, 6)
    with fwad.dual_level():
        y, indices = P.max_pool2d(fwad.make_dual(x, tx), 2, return_indices=True)
        primal, tangent = fwad.unpack_dual(y)
    picked = tx.flatten(2).gather(2, indices.flatten(2)).view_as(primal)
    assert torch.equal(tangent, picked) and torch.equal(primal, F.max_pool2d(x, 2))


def test_ties_share_the_gradient():
    x = torch.ones(1, 1, 2, 2, requires_grad=True)
    for ties, expected in {"first": [1, 0, 0, 0], "last": [0, 0, 0, 1], "split": [0.25] * 4, "all": [1] * 4}.items():
        dx = torch.autograd.grad(P.max_pool2d(x, 2, ties=ties).sum(), x)[0]
        assert dx.flatten().tolist() == expected
    with pytest.raises(ValueError, match="no single index"):
        P.max_pool2d(x, 2, return_indices=True, ties="split")


def test_padding_beyond_torch():
    x = torch.randn(1, 2, 7, 9)
    assert P.max_pool2d(x, 3, 2, "same").shape == (1, 2, 4, 5)
    assert P.max_pool2d(x, 3, 2, "valid").shape == (1, 2, 3, 4)
    padded = F.pad(x, (0, 1, 1, 0), value=-float("inf"))
    assert torch.equal(P.max_pool2d(x, 2, 1, [(1, 0), (0, 1)]), F.max_pool2d(padded, 2, 1))


def test_integers_and_halves():
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.float16, torch.bfloat16):
        x = torch.randint(0, 9, (2, 3, 6, 6)).to(dtype)
        y, indices = P.max_pool2d(x, 3, 2, 1, return_indices=True)
        expected, expected_indices = F.max_pool2d(x.float(), 3, 2, 1, return_indices=True)
        assert y.dtype == dtype and torch.equal(y.float(), expected) and torch.equal(indices, expected_indices)
    with pytest.raises(RuntimeError):
        torch.ones(1, 1, 4, 4, dtype=torch.int32).requires_grad_()


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device):
    kind = torch.bfloat16
    linear = torch.nn.Linear(12, 12).to(device)
    x = torch.randn(2, 3, 12, 12, device=device)
    with torch.backends.mkldnn.flags(enabled=False):  # not every CPU has its bfloat16
        with torch.autocast(device, dtype=kind):
            y = P.max_pool2d(linear(x), 2)
            expected = F.max_pool2d(linear(x), 2)
        assert y.dtype == kind and torch.equal(y, expected)
        y.float().sum().backward()
    assert linear.weight.grad is not None and linear.weight.grad.dtype == torch.float32


def test_deterministic_mode_never_complains():
    torch.use_deterministic_algorithms(True)
    try:
        for rank in (1, 2, 3):
            x = torch.randn(1, 2, *(6,) * rank, requires_grad=True)
            OURS[rank](x, 3, 2, 1).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_threads_do_not_change_bits():
    x = torch.randn(4, 16, 40, 40, requires_grad=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = P.max_pool2d(x, 3, 2, 1)
            found.append((y, torch.autograd.grad(y, x, torch.cos(y.detach()))[0]))
    finally:
        torch.set_num_threads(before)
    for y, dx in found[1:]:
        assert torch.equal(y, found[0][0]) and torch.equal(dx, found[0][1])


def test_tasks_run_on_the_threads_torch_has():
    """No second set of threads; but in a forked child, which has none of torch's, a set of poolgrad's own."""
    if not _operations._cpu_execs.parallel:
        pytest.skip("this torch was built without OpenMP")

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    x, before = torch.randn(8, 16, 64, 64), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        expected = F.max_pool2d(x, 3, 2, 1)
        there = threads()
        assert torch.equal(P.max_pool2d(x, 3, 2, 1), expected) and threads() == there
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # rather than wait for threads that are not there
            alone = threads()
            os._exit(0 if P.max_pool2d(x, 3, 2, 1).numpy().tobytes() == expected.numpy().tobytes() and threads() > alone else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


def small_model() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(3, 2, 1), nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)), nn.Flatten()
    )  # fmt: skip


def test_convert_and_back():
    torch.manual_seed(0)
    model, x = small_model(), torch.randn(2, 1, 13, 13)
    expected = model(x)
    expected.sum().backward()
    gradient = model[0].weight.grad.clone()
    called = []
    model[1].register_forward_hook(lambda *_: called.append(True))
    assert P.convert(model) is model
    assert type(model[1]) is P.MaxPool2d and type(model[2][1]) is P.MaxPool2d and isinstance(model[1], torch.nn.MaxPool2d)
    model.zero_grad()
    y = model(x)
    y.sum().backward()
    assert torch.equal(y, expected) and torch.equal(model[0].weight.grad, gradient) and called
    assert pickle.loads(pickle.dumps(model.state_dict())).keys() == model.state_dict().keys()
    twin = copy.deepcopy(model)
    assert type(twin[1]) is P.MaxPool2d and torch.equal(twin(x), expected)
    P.convert(model, back=True)
    assert type(model[1]) is torch.nn.MaxPool2d and torch.equal(model(x), expected)
    for name in ("MaxPool1d", "MaxPool2d", "MaxPool3d"):
        lone = getattr(torch.nn, name)(2)
        assert type(P.convert(lone)) is getattr(P, name)


def test_convert_back_refuses_what_torch_cannot_run():
    model = torch.nn.Sequential(P.MaxPool2d(2), P.MaxPool2d(2, ties="split"))
    with pytest.raises(ValueError, match="torch's own pooling knows only 'first'"):
        P.convert(model, back=True)
    assert type(model[0]) is P.MaxPool2d
    with pytest.raises(ValueError, match="torch's own pooling takes integers only"):
        P.convert(P.MaxPool2d(2, padding="same"), back=True)
    with pytest.raises(TypeError, match="must be a torch.nn.Module"):
        P.convert(F.max_pool2d)


def test_modules():
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(P.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)(x), torch.nn.MaxPool2d(3, 2, 1, 1, False, True)(x))
    assert len(P.MaxPool2d(2, return_indices=True)(x)) == 2
    assert P.MaxPool2d(3, padding="same", stride=1)(x).shape == x.shape
    assert "ties=split" in repr(P.MaxPool1d(2, ties="split"))


def test_bad_input():
    x = torch.randn(1, 2, 6, 6)
    cases = [
        (ValueError, "max_pool2d takes 4 dimensions, or 3 without a batch", lambda: P.max_pool2d(x[0, 0], 2)),
        (ValueError, r"stride\[0\] is -1; every stride must be at least 1", lambda: P.max_pool2d(x, 2, -1)),
        (ValueError, "at most half of the window", lambda: P.max_pool2d(x, 2, padding=2)),
        (ValueError, "longer than the padded input", lambda: P.max_pool2d(x, 9)),
        (ValueError, "ties is 'most'", lambda: P.max_pool2d(x, 2, ties="most")),
        (TypeError, "ties is None; it must be a string", lambda: P.max_pool2d(x, 2, ties=None)),
        (ValueError, r"^kernel_size\[0\] is 0; every", lambda: P.max_pool2d(x, 0)),
        (ValueError, r"^padding\[0\] is -1; padding must be at least 0$", lambda: P.max_pool2d(x, 2, padding=-1)),
        (ValueError, r"^padding\[1\] is 2; it may be at most half of the window, 1$", lambda: P.max_pool2d(x, 2, padding=(0, 2))),
        (ValueError, "^ceil_mode is True; with padding same", lambda: P.max_pool2d(x, 2, padding="SAME", ceil_mode=True)),
        (TypeError, "^ceil_mode is 1.0; it must be True or False", lambda: [P.max_pool2d(x, 2, ceil_mode=mode) for mode in (True, 1.0)]),
        (ValueError, r"kernel_size is 18446744073709551618; it must lie", lambda: P.max_pool2d(x, 2**64 + 2)),
        (ValueError, r"stride\[0\] is 18446744073709551618; it must lie", lambda: P.max_pool2d(x, 2, (2**64 + 2, 2))),
        (TypeError, "kernel_size is 2.0", lambda: (P.max_pool2d(x, 2), P.max_pool2d(x, 2.0))),
        (TypeError, r"kernel_size\[0\] is 2.0", lambda: (P.max_pool2d(x, (2, 2)), P.max_pool2d(x, (2.0, 2)))),
        (TypeError, "kernel_size is True", lambda: (P.max_pool2d(x, 1), P.max_pool2d(x, True))),
        (ValueError, "the input's size on spatial axis 1 is 0; every spatial size", lambda: P.max_pool2d(x[..., :0], 1)),
        (ValueError, "kernel_size has 3 entries", lambda: P.max_pool2d(x, (2, 2, 2))),
        (TypeError, "kernel_size is 2.5", lambda: P.max_pool2d(x, 2.5)),
        (TypeError, "argument 'input' is a ndarray", lambda: P.max_pool2d(np.zeros((1, 1, 4, 4)), 2)),
        (TypeError, "torch.int64; poolgrad takes", lambda: P.max_pool2d(x.long(), 2)),
        (TypeError, "torch.complex64; poolgrad takes", lambda: P.max_pool2d(x.to(torch.complex64), 2)),
    ]
    for kind, sentence, call in cases:
        with pytest.raises(kind, match=sentence):
            call()
        with pytest.raises(RuntimeError):  # and what torch's own pooling raises
            call()


def test_dlpack_into_numpy_functions():
    x = torch.randn(1, 2, 6, 6)
    assert np.array_equal(poolgrad.max_pool(x, 2), F.max_pool2d(x, 2).numpy())
    with pytest.raises(TypeError, match="ml_dtypes") if not _has_ml_dtypes() else _nothing():
        y = poolgrad.max_pool(x.bfloat16(), 2)
        assert np.array_equal(y.astype(np.float32), F.max_pool2d(x.bfloat16(), 2).float().numpy())


def _has_ml_dtypes() -> bool:
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        return False
    return True


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()
