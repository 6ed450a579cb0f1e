"""The inputs that PyTorch's own tests draw for its pooling operators (OpInfo), under poolgrad.torch.everywhere and without: the same values and
indices, nearly the same gradients and averages; in float64 every few are given to gradcheck and gradgradcheck, which also run twice and
compare. For any version of torch that has torch.testing._internal, on the CPU and on CUDA.

    op_infos.py [--device cuda] [--part 0/4] [--checks 8]
"""

from __future__ import annotations

import argparse
import sys
import types
import unittest
import warnings
from typing import Any, Callable, Iterator, Optional, Tuple

expecttest: Any = types.ModuleType("expecttest")  # PyTorch's helpers import it, and nothing here uses it
expecttest.TestCase, expecttest.ACCEPT = unittest.TestCase, False
sys.modules.setdefault("expecttest", expecttest)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import poolgrad.torch  # noqa: E402

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
HALVES = DTYPES[2:]


def entries() -> Iterator[Any]:
    for op in op_db:
        if op.name.startswith("nn.functional.") and "pool" in op.name:
            # Indices that name a place twice leave torch's result open; the variant "grad" has none of them.
            if "unpool" not in op.name or op.variant_test_name == "grad":
                yield op


def pooled(op: Any, sample: Any, x: Optional[torch.Tensor] = None) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
    """By the name that torch.nn.functional has now: everywhere() may have exchanged it."""
    torch.manual_seed(3)  # fractional pooling draws
    found = getattr(F, op.name.rpartition(".")[2])(sample.input if x is None else x, *sample.args, **sample.kwargs)
    return found if isinstance(found, tuple) else (found, None)


def result(op: Any, sample: Any) -> Tuple[Any, ...]:
    x = sample.input.detach().clone().requires_grad_()
    y, indices = pooled(op, sample, x)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(y)
    return y, indices, torch.autograd.grad(y, x, dy, retain_graph=True)[0]


def is_ours(y: torch.Tensor) -> bool:
    """Whether a function of poolgrad's is in the graph of y, close to it."""
    near, steps = [y.grad_fn], 4
    for _ in range(steps):
        if any(isinstance(one, torch.autograd.function.BackwardCFunction) for one in near):
            return True
        near = [after for one in near if one is not None for after, _ in one.next_functions]
    return False


def by_torch(op: Any, sample: Any, device: str) -> bool:
    """What torch's operators do: unpooling on a GPU, and what poolgrad refuses, averages with a negative divisor."""
    given = (*sample.args, *sample.kwargs.values())
    return ("unpool" in op.name and device == "cuda") or any(isinstance(n, int) and n < 0 for n in given)


def compare(op: Any, sample: Any, device: str) -> None:
    theirs = result(op, sample)
    with poolgrad.torch.everywhere(averages=True):
        ours = result(op, sample)
    loose = {"rtol": 2e-2, "atol": 2e-2} if sample.input.dtype in HALVES else {}
    if "avg" in op.name:
        torch.testing.assert_close(ours[0], theirs[0], **loose)
    else:
        assert torch.equal(ours[0], theirs[0]), "y differs"
    assert ours[1] is theirs[1] is None or torch.equal(ours[1], theirs[1]), "indices differ"
    torch.testing.assert_close(ours[2], theirs[2], **loose)
    assert is_ours(ours[0]) or by_torch(op, sample, device), "was left to torch"


def check_gradients(op: Any, sample: Any) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return pooled(op, sample, x)[0]

    x = sample.input.detach().clone().requires_grad_()
    with poolgrad.torch.everywhere(averages=True):
        assert torch.autograd.gradcheck(function, x, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, x, fast_mode=True)


def attempt(what: Callable[..., None], *arguments: Any) -> str:
    try:
        what(*arguments)
    except Exception as error:  # all of them are told
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="0/1", help="every so manieth sample, beginning with this one")
    parser.add_argument("--checks", type=int, default=8, help="how many samples of an operator are given to gradcheck")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    warnings.simplefilter("ignore")
    wrong = 0
    for op in entries():
        compared = checked = 0
        for dtype in DTYPES:
            if dtype not in op.supported_backward_dtypes(options.device):
                continue
            samples = list(op.sample_inputs(options.device, dtype, requires_grad=True))
            step = max(len(samples) // options.checks, 1)
            for number, sample in enumerate(samples):
                if number % parts != part:
                    continue
                tried = [(compare, op, sample, options.device)]
                if dtype is torch.float64 and number // parts % step == 0:
                    tried.append((check_gradients, op, sample))
                    checked += 1
                compared += 1
                for told in filter(None, (attempt(*one) for one in tried)):
                    wrong += 1
                    print(f"{op.name} {dtype} {tuple(sample.input.shape)} {sample.args} {sample.kwargs}: {told}")
        print(f"{op.name} on {options.device}: {compared} samples compared, {checked} of them by gradcheck and gradgradcheck")
    print(f"{'all agree' if not wrong else f'{wrong} do not agree'} (torch {torch.__version__}, {options.device}, part {options.part})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
