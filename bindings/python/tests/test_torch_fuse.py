"""ReLU and max pooling in one step: the function, the modules, and convert(model, fuse=True)."""

from __future__ import annotations

import copy
import io
import operator
import pickle
from collections import OrderedDict, deque

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.nn.functional as F  # noqa: E402
from conftest import random_window  # noqa: E402
from torch import nn  # noqa: E402

import poolgrad.torch as P  # noqa: E402
from poolgrad.torch.modules import PassedReLU  # noqa: E402

OURS = {1: P.relu_max_pool1d, 2: P.relu_max_pool2d, 3: P.relu_max_pool3d}
THEIRS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])


def same(a, b):
    """Bit for bit; any NaN for any NaN. torch's ReLU hands -0 on, ours is 0: y + 0 has one zero only."""
    return a.dtype == b.dtype and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_equals_relu_then_torch(rng, rank):
    for number in range(50):
        spatial, arguments = random_window(rng, rank)
        dtype = rng.choice([torch.float32, torch.float64, *([torch.bfloat16] if rank < 3 or VERSION > (1, 13) else [])])
        generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
        x = torch.randint(-4, 3, (2, rng.randint(1, 20), *spatial), generator=generator).to(dtype)
        if rng.random() < 0.3:
            x[torch.rand(x.shape, generator=generator) < 0.1] = rng.choice([float("nan"), float("inf"), -float("inf"), -0.0])
        if rank > 1 and rng.random() < 0.5:
            x = x.contiguous(memory_format=FORMATS[rank])
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, indices = OURS[rank](mine, *arguments, return_indices=True)
        expected, expected_indices = THEIRS[rank](F.relu(theirs), *arguments, return_indices=True)
        told = f"problem {number}: {tuple(x.shape)} {dtype} strides {x.stride()} {arguments}"
        assert same(y, expected), told
        assert torch.equal(indices, expected_indices), told
        assert same(OURS[rank](x, *arguments), y), told
        assert not torch.signbit(y[y == 0]).any(), told
        dy = torch.randint(-4, 5, y.shape, generator=generator).to(dtype)
        y.backward(dy)
        expected.backward(dy)
        assert same(mine.grad, theirs.grad), told


@pytest.mark.parametrize("ties", ["last", "split", "all"])
def test_other_ties(ties):
    x = torch.tensor([[[-1.0, 2.0, 2.0, -3.0, -1.0, -2.0]]], requires_grad=True)
    y = P.relu_max_pool1d(x, 3, ties=ties)
    assert y.tolist() == [[[2.0, 0.0]]]
    y.backward(torch.tensor([[[6.0, 7.0]]]))
    assert x.grad[0, 0].tolist() == {"last": [0, 0, 6, 0, 0, 0], "split": [0, 3, 3, 0, 0, 0], "all": [0, 6, 6, 0, 0, 0]}[ties]


def saved_by(run):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        y = run()
    return kept, y


def test_nothing_of_x_is_kept():
    x = torch.randn(4, 16, 20, 20, requires_grad=True)
    kept, y = saved_by(lambda: P.relu_max_pool2d(x * 1, 2))
    kept = [t for t in kept if t.dtype.is_floating_point or t.numel() > 1]
    assert [t.dtype for t in kept] == [torch.uint8]
    assert kept[0].numel() == y.numel() // 2  # four taps and `no route`: 4 bits
    kept, _ = saved_by(lambda: F.max_pool2d(F.relu(x * 1), 2))
    assert any(t.shape == x.shape for t in kept)


def separate(shape):
    """Values no two of which lie within a finite difference of each other, or of 0."""
    count = 1
    for n in shape:
        count *= n
    values = (torch.randperm(count, generator=torch.Generator().manual_seed(3)).double() - count / 3) / 8 + 0.05
    return values.reshape(shape)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_every_order(rank):
    x = separate((1, 2, *((9,), (5, 4), (3, 4, 3))[rank - 1])).requires_grad_()

    def pool(x):
        return OURS[rank](x, 2, 1, 1)

    assert torch.autograd.gradcheck(pool, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(pool, x, check_fwd_over_rev=VERSION > (1, 13))


def test_autocast_meta_trace_and_names():
    x = torch.randn(2, 3, 8, 8)
    traced = torch.jit.trace(lambda x: P.relu_max_pool2d(x, 3, 2, 1), x)
    other = torch.randn(1, 4, 9, 7)
    assert torch.equal(traced(other), F.max_pool2d(F.relu(other), 3, 2, 1))
    assert P.relu_max_pool2d(x.to("meta"), 2).shape == (2, 3, 4, 4)
    assert P.relu_max_pool2d(x.rename("N", "C", "H", "W"), 2).names == ("N", "C", "H", "W")
    with torch.autocast("cpu"):
        volume = torch.randn(1, 1, 4, 4, 4).bfloat16()
        assert P.relu_max_pool3d(volume, 2).dtype == F.max_pool3d(volume, 2).dtype
    with pytest.raises(TypeError, match=r"relu_max_pool2d\(\): argument 'input' is a list"):
        P.relu_max_pool2d([1], 2)


def test_script():
    x = torch.randn(2, 3, 8, 8)
    for return_indices in (False, True):
        module = P.ReLUMaxPool2d(3, 2, 1, return_indices=return_indices)
        found, expected = torch.jit.script(module)(x), module(x)
        assert all(map(torch.equal, found, expected)) if return_indices else torch.equal(found, expected)
    assert torch.equal(torch.jit.script(P.ReLUMaxPool2d(2))(x), F.max_pool2d(F.relu(x), 2))


# ---- convert(model, fuse=True) -------------------------------------------------------------------------------------------------


class Stem(nn.Module):
    """As torchvision writes them: modules in __init__, their order in forward."""

    def __init__(self, inplace=True):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1), nn.ReLU())
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        x = self.pool(self.relu(self.norm(self.conv(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.body(x), 1), 1))


def step(model, x):
    model.zero_grad()
    y = model(x)
    y.square().sum().backward()
    return y.detach(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("inplace", [False, True])
def test_fuse_and_back(inplace):
    torch.manual_seed(0)
    model, lines = Stem(inplace), []
    x = torch.randn(2, 3, 16, 16)
    fused = P.convert(copy.deepcopy(model), fuse=True, report=lines.append)
    assert lines == ["relu and pool: fused", "body.1 and body.2: fused"]
    assert [type(m) for m in (fused.relu, fused.pool, fused.body[1], fused.body[2], fused.body[4])] == [
        PassedReLU, P.ReLUMaxPool2d, PassedReLU, P.ReLUMaxPool2d, nn.ReLU,
    ]  # fmt: skip
    fused.load_state_dict(model.state_dict())  # the same names
    expected, expected_gradients = step(copy.deepcopy(model), x)
    for other in (fused, copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        found, gradients = step(copy.deepcopy(other), x)
        assert torch.equal(found, expected) and all(map(torch.equal, gradients, expected_gradients))
    assert torch.equal(copy.deepcopy(fused).eval()(x), copy.deepcopy(model).eval()(x))
    kept, _ = saved_by(lambda: fused(x))
    assert sum(t.numel() for t in kept) < 0.8 * sum(t.numel() for t in saved_by(lambda: model(x))[0])
    restored = P.convert(pickle.loads(pickle.dumps(fused)), back=True)
    assert [type(m) for m in restored.modules()] == [type(m) for m in model.modules()]
    assert restored.relu.inplace is inplace and not [name for name in vars(restored.pool) if "poolgrad" in name]
    P.convert(fused, fuse=True, report=lines.append)  # again: nothing is left to do
    assert len(lines) == 2


def lines_of(model):
    lines = []
    before = [type(m) for m in model.modules()]
    P.convert(model, fuse=True, report=lines.append)
    return lines, [a for a, b in zip(model.modules(), before) if type(a) is PassedReLU]


def changed(forward, **modules):
    """Stem with another forward."""
    model = Stem(inplace=False)
    for name, module in modules.items():
        setattr(model, name, module)
    cls = type("Changed", (Stem,), {"forward": forward})
    model.__class__ = cls
    return model


@pytest.mark.parametrize(
    "model, line",
    [
        (
            changed(lambda self, x: (lambda y: (self.pool(y), y))(self.relu(self.conv(x)))),
            "relu and pool: not fused, because the ReLU's output is also used by the model's output",
        ),
        (
            changed(lambda self, x: self.pool(self.relu(self.conv(self.relu(x))))),
            "relu and pool: not fused, because the ReLU is used elsewhere, too, where it is not one of such a pair",
        ),
        (
            changed(lambda self, x: self.pool(self.conv(self.pool(self.relu(x))))),
            "relu and pool: not fused, because the pool is used elsewhere, too, where it is not one of such a pair",
        ),
        (
            changed(lambda self, x: F.max_pool2d(self.relu(self.conv(x)), 2)),
            "relu and max_pool2d: not fused, because the pool is a function; only a module can be changed in place",
        ),
        (
            changed(lambda self, x: (lambda y: self.pool(self.relu(y)).sum() + y.sum())(self.conv(x)), relu=nn.ReLU(inplace=True)),
            "relu and pool: not fused, because the ReLU works in place, on memory that sum reads, too",
        ),
        (
            changed(lambda self, x: (lambda y: self.pool(self.relu(y.add_(x.sum()))).sum() + y.sum())(self.conv(x)), relu=nn.ReLU(inplace=True)),
            "relu and pool: not fused, because the ReLU works in place, on memory that sum reads, too",
        ),
        (
            changed(
                lambda self, x: (lambda y: self.pool(self.relu(y.view_as(self.conv(x)))).sum() + y.sum())(self.conv(x)),
                relu=nn.ReLU(inplace=True),
            ),
            "relu and pool: not fused, because the ReLU works in place, on memory that sum reads, too",
        ),
        (
            changed(
                lambda self, x: (lambda y: self.pool(self.relu(y[: x.size(0)])).sum() + y.sum())(self.conv(x)), relu=nn.ReLU(inplace=True)
            ),
            "relu and pool: not fused, because the ReLU works in place, on memory that sum reads, too",
        ),
        (
            changed(lambda self, x: setattr(self, "seen", self.conv(x)) or self.pool(self.relu(self.seen)), relu=nn.ReLU(inplace=True)),
            "relu and pool: not fused, because the ReLU works in place, on memory that the model reads, too",
        ),
        (
            changed(
                lambda self, x: (lambda y: self.pool(self.relu(torch.add(y, 1, out=y))).sum() + y.sum())(self.conv(x)),
                relu=nn.ReLU(inplace=True),
            ),
            "relu and pool: not fused, because the ReLU works in place, on memory that add reads, too",
        ),
        (
            changed(
                lambda self, x: (lambda y: self.pool(self.relu(torch.add(self.norm(y), 1, out=y))).sum() + y.sum())(self.conv(x)),
                relu=nn.ReLU(inplace=True),
            ),
            "relu and pool: not fused, because the ReLU works in place, on memory that add reads, too",
        ),
        (
            changed(
                lambda self, x: (lambda y: self.pool(self.relu((y.chunk(2, 1) + y.chunk(2, 1))[0])).sum() + y.sum())(self.conv(x)),
                relu=nn.ReLU(inplace=True),
            ),
            "relu and pool: not fused, because the ReLU works in place, on memory that add reads, too",
        ),
        (
            changed(
                lambda self, x: (lambda y: self.pool(self.relu(torch.broadcast_tensors(self.norm(y), y)[1])).sum() + y.sum())(self.conv(x)),
                relu=nn.ReLU(inplace=True),
            ),
            "relu and pool: not fused, because the ReLU works in place, on memory that broadcast_tensors reads, too",
        ),
        (
            changed(lambda self, x: self.pool(self.relu(x[:, :2])), relu=nn.ReLU(inplace=True)),
            "relu and pool: not fused, because the ReLU works in place, on memory that the model's caller reads, too",
        ),
        (
            changed(lambda self, x: self.pool(self.relu(self.conv.weight)), relu=nn.ReLU(inplace=True)),
            "relu and pool: not fused, because the ReLU works in place, on memory that the model reads, too",
        ),
        (
            changed(lambda self, x: self.pool(self.relu(self.conv(x))) if self.training else self.relu(self.conv(x))),
            "relu and pool: not fused, because the ReLU is used elsewhere, too, where it is not one of such a pair",
        ),
    ],
)
def test_what_is_not_fused(model, line):
    lines, passed = lines_of(model)
    assert lines[0] == line and not passed
    assert model.training and all(m.training for m in model.modules())


def test_in_place_on_new_memory_is_fused():
    def forward(self, x):
        y = self.conv(x)
        z = self.relu(y + torch.cat([y[:, :4], self.norm(y)[:, :4]], 1))
        return self.pool(z).sum() + y.sum()

    lines, passed = lines_of(changed(forward, relu=nn.ReLU(inplace=True)))
    assert lines == ["relu and pool: fused"] and len(passed) == 1


def test_hooks_are_respected():
    for name in ("relu", "pool"):
        model = Stem()
        getattr(model, name).register_forward_hook(lambda *_: None)
        word = {"relu": "ReLU", "pool": "pool"}[name]
        lines, passed = lines_of(model)
        assert lines[0] == f"relu and pool: not fused, because the {word} has hooks, which would see other values"
        assert passed == [model.body[1]]


def written(write):
    def forward(self, x):
        before = self.conv(x)
        after = self.relu(before)
        write(before)
        return self.pool(after)

    return forward


@pytest.mark.parametrize(
    "write, name",
    [
        (lambda h: h.add_(5), "add_"),
        (lambda h: operator.iadd(h, 5), "iadd"),
        (lambda h: setattr(h, "data", operator.iadd(h.data, 5)), "iadd"),  # h.data += 5
        (lambda h: h.view(-1).mul_(-1), "mul_"),
        (lambda h: torch.relu_(h), "relu_"),
        (lambda h: F.hardtanh(h, 1.0, 2.0, True), "hardtanh"),
        (nn.ReLU6(inplace=True), "write"),
    ],
)
def test_what_is_written_to_before_the_pool_ran_is_not_fused(write, name):
    model = changed(written(write), write=write) if isinstance(write, nn.Module) else changed(written(write))
    x = torch.randn(1, 3, 32, 32)
    expected = copy.deepcopy(model)(x)
    lines, passed = lines_of(model)
    assert lines[0] == f"relu and pool: not fused, because {name} works in place between the two" and not passed
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("inner", ["relu", "pool"])
def test_one_of_the_two_under_no_grad_is_not_fused(inner):
    def run(self, name, x):
        with torch.set_grad_enabled(name != inner):
            return getattr(self, name)(x)

    model = changed(lambda self, x: run(self, "pool", run(self, "relu", self.conv(x))))
    with torch.no_grad():  # where it is converted says nothing
        lines, passed = lines_of(model)
    assert lines == ["relu and pool: not fused, because gradients are recorded of one of the two only"] and not passed


def test_what_the_model_keeps_is_not_fused_and_the_model_stays_as_it_was():
    class Keeps(Stem):
        def forward(self, x):
            self.calls += 1
            self.steps += 1
            kept = self.relu(self.conv(x))
            self.nested["calls"][0] += 1
            if self.where == "attribute":
                self.seen = kept
            elif self.where == "shape":
                self.seen = kept.shape
            elif self.where == "nested":
                self.nested["outputs"].append((kept,))
            elif self.where == "elsewhere":
                elsewhere.append(kept)
            else:
                getattr(self, self.where).append(kept)
            return self.pool(kept)

    elsewhere = []
    for where in ("attribute", "shape", "a_list", "a_deque", "nested", "elsewhere"):
        model = Keeps(inplace=False)
        model.where, model.calls, model.seen, model.a_list, model.a_deque = where, 0, None, ["first"], deque()
        model.nested = {"calls": [0], "outputs": []}
        model.register_buffer("steps", torch.zeros(1))
        lines, passed = lines_of(model)
        assert lines == ["relu and pool: not fused, because the model keeps the ReLU's output, or its shape, as an attribute or elsewhere"] and not passed
        assert (model.calls, model.steps, model.seen, model.a_list, list(model.a_deque)) == (0, 0, None, ["first"], [])
        assert model.nested == {"calls": [0], "outputs": []}
        pickle.dumps(model.state_dict())


def test_a_container_that_refuses_to_be_written_to_stays_as_it_is():
    class Frozen(OrderedDict):
        def update(self, *_):
            raise TypeError("frozen")

    model = Stem()
    model.config = Frozen.fromkeys(["act", "layers"], 3)
    assert lines_of(model)[0] == ["relu and pool: fused", "body.1 and body.2: fused"]
    assert list(model.config.items()) == [("act", 3), ("layers", 3)]


def test_hooks_of_modules_around_one_of_the_two_are_respected_and_not_called():
    x = torch.randn(1, 3, 8, 8)
    for inner in (slice(0, 2), slice(2, 4)):
        parts = [nn.Conv2d(3, 3, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Identity()]
        parts[inner] = [nn.Sequential(*parts[inner])]
        model, seen = nn.Sequential(*parts), []
        around = next(m for m in model if isinstance(m, nn.Sequential))
        around.register_forward_hook(lambda module, inputs, output: seen.extend([*inputs, output]))
        model(x)
        expected, seen[:] = list(seen), []
        lines, passed = lines_of(model)
        assert not passed and not seen and lines[0].endswith("has hooks, which would see other values")
        model(x)
        assert all(map(torch.equal, seen, expected))


def test_hooks_that_see_what_a_relu_works_on_in_place_are_respected():
    x = torch.randn(1, 3, 8, 8)
    for part in ("0", "0.0", "1", "1.0", "2"):  # the last one is around the ReLU: what it sees is its input
        parts = [nn.Conv2d(3, 3, 1)], [nn.Identity()], [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        model, seen = nn.Sequential(*(nn.Sequential(*inner) for inner in parts)), []
        model.get_submodule(part).register_forward_hook(lambda module, inputs, output: seen.extend([*inputs, output]))
        model(x)
        expected, seen[:] = list(seen), []
        lines, passed = lines_of(model)
        assert lines == [f"2.0 and 2.1: not fused, because the ReLU works in place, on memory that a hook of {part} reads, too"] and not passed
        model(x)
        assert all(map(torch.equal, seen, expected))
    model = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 3, 1)), nn.ReLU(inplace=True), nn.MaxPool2d(2))  # whose hook sees what goes in
    assert lines_of(model)[0] == ["1 and 2: fused"]


def test_what_cannot_be_traced_is_left_alone():
    model = changed(lambda self, x: self.pool(self.relu(x)) if x.sum() > 0 else x)
    lines, passed = lines_of(model)
    assert not passed and len(lines) == 1
    assert lines[0].startswith("nothing was fused: torch.fx cannot trace Changed (TraceError: symbolically traced variables")
    assert lines_of(model.body)[0] == ["1 and 2: fused"]  # a part that is called as a whole


def test_a_relu_called_twice_with_a_pool_behind_it_each_time():
    model = changed(lambda self, x: self.pool(self.relu(self.body(self.pool(self.relu(self.conv(x)))))))
    expected = copy.deepcopy(model)
    lines, passed = lines_of(model)
    assert lines == ["relu and pool: fused", "body.1 and body.2: fused"] and len(passed) == 2
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(model(x), expected(x))
    P.convert(model, back=True)
    assert torch.equal(model(x), expected(x)) and type(model.relu) is nn.ReLU


def test_back_refuses_halves_of_a_pair():
    model = P.convert(Stem(), fuse=True, report=None)
    with pytest.raises(ValueError, match="was fused with a module that is not in this model; convert the whole of it back"):
        P.convert(model.pool, back=True)
    assert type(model.pool) is P.ReLUMaxPool2d
    with pytest.raises(ValueError, match="torch has no module that rectifies and pools"):
        P.convert(nn.Sequential(P.ReLUMaxPool2d(2)), back=True)
    with pytest.raises(ValueError, match="back and fuse are both True"):
        P.convert(model, back=True, fuse=True)


def test_onnx():
    pytest.importorskip("onnx", reason="onnx is not installed")
    import onnx

    file = io.BytesIO()
    torch.onnx.export(P.convert(Stem(), fuse=True, report=None).eval(), torch.randn(1, 3, 16, 16), file)
    nodes = [node.op_type for node in onnx.load_model_from_string(file.getvalue()).graph.node]
    assert nodes.count("Relu") == 3 and nodes.count("MaxPool") == 2
