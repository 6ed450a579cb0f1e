"""everywhere(): torch's functions go through poolgrad, whoever calls them, and are torch's again afterwards."""

from __future__ import annotations

import pickle
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import adaptive_max_pool2d as taken_adaptive  # noqa: E402
from torch.nn.functional import max_pool2d as taken_by_name  # noqa: E402
from torch.nn.functional import max_unpool2d as taken_unpool  # noqa: E402

import poolgrad.torch as P  # noqa: E402
from poolgrad.torch import _everywhere, _operations, functional  # noqa: E402
from poolgrad.torch._plans import plan_of  # noqa: E402

NAMES = [(F, name) for name in dir(F) if "pool" in name] + [(torch, "max_pool2d"), (torch._C._nn, "adaptive_avg_pool2d")]


@pytest.fixture(autouse=True)
def nothing_stays():
    before = [getattr(module, name) for module, name in NAMES]
    yield
    assert [getattr(module, name) for module, name in NAMES] == before
    assert not any(_everywhere._inside.values()) and not _everywhere._torchs


@pytest.fixture
def calls(monkeypatch):
    """Counts the plans' operations that run."""
    counted = []
    torchs_empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: (counted.append(1), torchs_empty_like(*a, **k))[1])
    for cache in (functional._plan, functional._straight, plan_of):
        cache.cache_clear()  # operations made before hold the uncounted function
    yield counted
    for cache in (functional._plan, functional._straight, plan_of):
        cache.cache_clear()


class ThirdParty(nn.Module):
    """As people write them: modules, F, torch, names taken long before."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.pool = nn.MaxPool2d(2, return_indices=True)
        self.mean = nn.AvgPool2d(3, 1, 1)
        self.head = nn.AdaptiveMaxPool2d((2, None))

    def forward(self, x):
        x = torch.max_pool2d(self.conv(x), 3, 2, 1)
        y, indices = self.pool(x)
        x = F.max_unpool2d(y, indices, 2, output_size=x.shape[-2:]) + taken_unpool(y, indices, 2)
        x = self.mean(taken_by_name(x, 2, 1)) + F.avg_pool2d(x, 2, 1)
        x = F.adaptive_avg_pool2d(x, 5) + taken_adaptive(x, (5, 5))
        return self.head(F.max_pool1d(x.flatten(0, 1), 2).reshape(2, 6, 5, 2))


def test_a_third_partys_model(calls):
    torch.manual_seed(0)
    model, x = ThirdParty(), torch.randn(2, 3, 16, 16)
    expected = model(x)
    expected.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    assert not calls
    model.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with P.everywhere(averages=True):
            found = model(x)
            assert len(calls) >= 10
            found.square().sum().backward()
    torch.testing.assert_close(found, expected)  # not to the bit: torch's adaptive averages divide by axis
    for p, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(p.grad, gradient)
    after = len(calls)
    model(x)
    assert len(calls) == after


def test_only_routes_are_kept():
    x = torch.randn(1, 4, 8, 8, requires_grad=True)
    for run in (lambda: F.max_pool2d(x, 2), lambda: taken_by_name(x, 2), lambda: torch.max_pool2d(x, 2), lambda: nn.MaxPool2d(2)(x)):
        kept = []
        with P.everywhere(averages=True), torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.dtype), t)[1], lambda t: t):
            run()
        assert kept == [torch.uint8]


def test_every_function_is_ours_and_gives_what_torch_gives(monkeypatch):
    torch.manual_seed(1)
    calls, made = [], []
    for rank in (1, 2, 3):
        x = torch.randn(2, 3, *(8,) * rank)
        calls += [(F, f"{name}_pool{rank}d", (x, 2), {}) for name in ("max", "avg", "adaptive_max", "adaptive_avg")]
        calls += [(F, f"{name}_pool{rank}d", (x, 3), {"return_indices": True}) for name in ("max", "adaptive_max")]
        calls += [(F, f"{name}_pool{rank}d_with_indices", (x, 3), {}) for name in ("max", "adaptive_max")]
        y, indices = getattr(F, f"max_pool{rank}d")(x, 2, return_indices=True)
        calls += [(F, f"max_unpool{rank}d", (y, indices, 2), {}), (torch, f"max_pool{rank}d", (x, 3, 2, 1), {})]
        if rank > 1:
            more = {"output_size": 3, "return_indices": True, "_random_samples": torch.rand(2, 3, rank)}
            calls += [(F, f"fractional_max_pool{rank}d", (x, 2), more)]
    x = torch.randn(2, 3, 7)
    calls += [(torch, name, (x, 3), {}) for name in ("avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d")]
    expected = [getattr(module, name)(*arguments, **keywords) for module, name, arguments, keywords in calls]
    monkeypatch.setattr(functional._autograd, "make_pool", lambda plan, make=functional._autograd.make_pool: (made.append(plan), make(plan))[1])
    functional._plan.cache_clear(), functional._straight.cache_clear()
    with P.everywhere(averages=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        for (module, name, arguments, keywords), theirs in zip(calls, expected):
            torch.testing.assert_close(getattr(module, name)(*arguments, **keywords), theirs)
    used = {plan.args[4].name for plan in made}
    kinds = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
    assert used >= {f"{kind}{rank}d" for kind in kinds for rank in (1, 2, 3)}


def test_nesting_and_the_process_switch():
    theirs = torch.max_pool2d
    with P.everywhere(averages=True):
        ours = torch.max_pool2d
        assert ours is not theirs
        with P.everywhere(averages=True):
            assert torch.max_pool2d is ours
        assert torch.max_pool2d is ours
        P.everywhere(True)
        P.everywhere(True)
    assert torch.max_pool2d is ours
    P.everywhere(False)
    P.everywhere(False)
    assert torch.max_pool2d is theirs
    with pytest.raises(ZeroDivisionError), P.everywhere(averages=True):
        raise ZeroDivisionError
    assert torch.max_pool2d is theirs
    with pytest.raises(TypeError, match="on is 1; it must be True, False, or left out"):
        P.everywhere(1)


def test_averages_are_asked_for():
    largest, mean = torch.max_pool2d, F.avg_pool2d
    with P.everywhere():
        assert torch.max_pool2d is not largest and F.avg_pool2d is mean
        ours = torch.max_pool2d
        with P.everywhere(averages=True):
            assert torch.max_pool2d is ours and F.avg_pool2d is not mean
        assert torch.max_pool2d is ours and F.avg_pool2d is mean
    P.everywhere(True)
    P.everywhere(True, averages=True)
    assert F.avg_pool2d is not mean
    P.everywhere(True)
    assert torch.max_pool2d is not largest and F.avg_pool2d is mean
    P.everywhere(False)


def test_what_others_put_there_since_stays():
    theirs = F.avg_pool2d
    with P.everywhere(averages=True):
        assert F.avg_pool2d is not theirs
        F.avg_pool2d = "somebody else's"
    assert F.avg_pool2d == "somebody else's"
    F.avg_pool2d = theirs


def test_refusals_go_to_torch_with_one_warning():
    _everywhere._told.clear()
    x = torch.arange(16).reshape(1, 1, 4, 4)
    with P.everywhere(averages=True), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.equal(F.avg_pool2d(x, 2), torch.tensor([[[[2, 4], [10, 12]]]]))
        assert [str(w.message) for w in told] == [
            "avg_pool2d is left to torch: input has the type torch.int64; poolgrad takes torch.float32, torch.float64, torch.float16, "
            "torch.bfloat16, torch.int8, torch.uint8, torch.int32"
        ]
        with pytest.raises(RuntimeError, match="pad should be"):  # which torch refuses, too, in its own words
            F.max_pool2d(torch.zeros(1, 1, 4, 4), 2, padding=2)
        assert len(told) == 1
        out = torch.empty(1, 1, 2, 2)
        assert F.avg_pool2d(torch.ones(1, 1, 4, 4), 2, out=out) is out and out.sum() == 4
        assert "out is given" in str(told[-1].message) and len(told) == 2


def test_tracing_subclasses_and_autocast():
    class Tensor(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    theirs, x = F.adaptive_avg_pool2d, torch.randn(1, 2, 6, 6)
    with P.everywhere(averages=True):
        assert type(F.adaptive_avg_pool2d(x.as_subclass(Tensor), 3)) is Tensor
        assert theirs in Tensor.seen
        traced = torch.jit.trace(lambda x: F.max_pool2d(x, 2), x)
        graph = torch.fx.symbolic_trace(nn.Sequential(nn.MaxPool2d(2), nn.Flatten()))
        assert torch.equal(graph(x), F.max_pool2d(x, 2).flatten(1))
        with torch.autocast("cpu"):
            assert F.avg_pool3d(torch.randn(1, 1, 4, 4, 4).bfloat16(), 2).dtype
    assert "aten::max_pool2d" in str(traced.graph)
    assert torch.equal(traced(x), F.max_pool2d(x, 2))


def test_torch_jit_script_is_told_to_be_called_outside():
    with P.everywhere():
        with pytest.raises(RuntimeError, match="adaptive_max_pool2d is poolgrad's inside everywhere.*call torch.jit.script outside"):
            torch.jit.script(nn.AdaptiveMaxPool2d(2))


def test_threads():
    """Those that enter and leave at the same time leave nothing behind; every result is right all the while."""
    x = torch.randn(1, 2, 8, 8)
    expected, wrong = F.max_pool2d(x, 2), []

    def work():
        for _ in range(50):
            with P.everywhere(averages=True):
                if not torch.equal(F.max_pool2d(x, 2), expected):
                    wrong.append(1)
            if not torch.equal(F.max_pool2d(x, 2), expected):
                wrong.append(2)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_counting_fixture_counts(calls):
    """What test_a_third_partys_model relies on: our operations allocate with empty_like, torch's functions do not."""
    P.max_pool2d(torch.randn(1, 1, 4, 4), 2)
    assert calls and _operations.torch is torch


def test_it_decorates_and_counts():
    @P.everywhere()
    def pooled(depth):
        assert torch.max_pool2d is not before
        return pooled(depth - 1) if depth else F.max_pool2d(torch.ones(1, 1, 4, 4), 2)

    before = torch.max_pool2d
    assert pooled(2).shape == (1, 1, 2, 2)
    assert torch.max_pool2d is before


def test_leaving_what_was_not_entered_changes_nothing():
    before = torch.max_pool2d
    with pytest.raises(RuntimeError, match="was not entered"):
        P.everywhere().__exit__(None, None, None)
    with P.everywhere():
        assert torch.max_pool2d is not before


def test_a_model_that_keeps_a_function_can_be_saved_inside():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.pools = [F.avg_pool2d, torch.max_pool2d]

    with P.everywhere(averages=True):
        saved = pickle.dumps(Keeps().pools)
    assert pickle.loads(saved) == [F.avg_pool2d, torch.max_pool2d]  # torch's, outside
