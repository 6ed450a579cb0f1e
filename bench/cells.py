"""The case lists of cases/*.txt, as the peers' drivers are asked about them (bench/peers/cell.h).

Only the words that the case lists use are understood; the library's own parser is the authority on the text form.
"""
import pathlib
import re
import subprocess
from dataclasses import dataclass, field

CASES = pathlib.Path(__file__).resolve().parent.parent / "cases"
ELEMENT_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}
WORKING_SET_CACHES = 4  # as cli/bench.cc


@dataclass
class Axis:
    size: int
    kernel: int
    stride: int
    pad_lo: int
    pad_hi: int
    dilation: int
    ceil: bool

    @property
    def out(self):
        span = (self.kernel - 1) * self.dilation + 1
        room = self.size + self.pad_lo + self.pad_hi - span
        out = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        if self.ceil and (out - 1) * self.stride >= self.size + self.pad_lo:
            out -= 1  # a last window that starts in the high padding is dropped
        return out

    def question(self):
        span = (self.kernel - 1) * self.dilation + 1
        exact_pad_hi = max(0, (self.out - 1) * self.stride + span - self.size - self.pad_lo)
        return [self.size, self.out, self.kernel, self.stride, self.pad_lo, exact_pad_hi, self.dilation]


@dataclass
class Case:
    name: str
    batch: int
    channels: int
    axes: list = field(default_factory=list)
    warm: bool = False

    def elements(self):
        x = y = self.batch * self.channels
        for axis in self.axes:
            x *= axis.size
            y *= axis.out
        return x, y

    def sets(self, dtype, cache_mib):
        x, y = self.elements()
        return 1 if self.warm else WORKING_SET_CACHES * cache_mib * 2**20 // ((x + y) * ELEMENT_BYTES[dtype]) + 1

    def question(self, op, dtype, layout, threads, seconds, cache_mib):
        unused = [[1, 1, 1, 1, 0, 0, 1]] * (3 - len(self.axes))
        numbers = [n for axis in unused + [a.question() for a in self.axes] for n in axis]
        words = [
            op,
            dtype,
            layout,
            threads,
            seconds,
            self.sets(dtype, cache_mib),
            self.batch,
            self.channels,
            len(self.axes),
        ]
        return " ".join(str(w) for w in words + numbers)


def per_axis(text, rank):
    """`3` or `1x2x2`, and for padding `1`, `1x2` or `0:1x0:1`, as (low, high) pairs."""
    pairs = [tuple(int(n) for n in part.split(":")) for part in text.split("x")]
    pairs = [pair if len(pair) == 2 else pair * 2 for pair in pairs]
    return pairs * rank if len(pairs) == 1 else pairs


def parse_case(line):
    name, problem = line.split(": ", 1)
    kind, _dtype, layout, shape, *words = problem.split()
    if kind != "max" or layout not in ("ncw", "nchw", "ncdhw"):
        raise ValueError(f"case {name} is '{problem}'; expected max pooling in a channels-first layout")
    batch, channels, *sizes = (int(n) for n in shape.split("x"))
    rank = len(sizes)
    given = {"k": None, "s": None, "p": "0", "d": "1"}
    ceil = False
    for word in words:
        if word == "ceil":
            ceil = True
        elif re.fullmatch(r"[kspd][0-9:x]+", word):
            given[word[0]] = word[1:]
        else:
            raise ValueError(f"case {name} has the word '{word}'; expected k, s, p, d or ceil")
    kernel = per_axis(given["k"], rank)
    stride = per_axis(given["s"] or given["k"], rank)
    padding, dilation = per_axis(given["p"], rank), per_axis(given["d"], rank)
    axes = [Axis(sizes[i], kernel[i][0], stride[i][0], *padding[i], dilation[i][0], ceil) for i in range(rank)]
    return Case(name, batch, channels, axes)


def read_random(poolgrad, count, seed):
    """The cases that `poolgrad bench --family random` draws, as it lists them."""
    command = [poolgrad, "bench", "--family", "random", "--count", str(count), "--seed", str(seed), "--list"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [parse_case(line.split(" ", 1)[1]) for line in lines]


def read_family(family):
    warm, cases = [], []
    for line in (CASES / f"{family}.txt").read_text().splitlines():
        if line.startswith("# measured warm:"):
            warm += line.split(":", 1)[1].split()
        if line and not line.startswith("#"):
            cases.append(parse_case(line))
    for case in cases:
        case.warm = case.name in warm
    return cases
