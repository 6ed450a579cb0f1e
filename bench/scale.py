#!/usr/bin/python3
"""A model of pooling split in space among ranks: bytes exchanged, and time per rank, to 1,024 ranks.

Bytes are exact: each rank's halo is computed from the window as poolgrad_shard_halo does (--check compares them with what
examples/mpi/split_volume counted). Times are a model: kernels move their fewest bytes at a fraction of the memory's copy
bandwidth; a message costs a latency and its bytes over the link; forward's halo is exchanged while nothing else runs (the worst
case). Defaults: one H200 per rank (copy 4.2 TB/s, kernels at 0.8 of it forward and 0.65 backward), 50 GB/s and 10 us per message.
"""
import argparse
import itertools
import re
import subprocess
import sys


def grid_of(ranks):
    """As MPI_Dims_create: three factors as near to each other as they can be, largest first."""
    best = None
    for a in range(1, ranks + 1):
        if ranks % a:
            continue
        for b in range(1, ranks // a + 1):
            if (ranks // a) % b:
                continue
            dims = tuple(sorted((a, b, ranks // a // b), reverse=True))
            if best is None or dims[0] - dims[2] < best[0] - best[2] or (dims[0] - dims[2] == best[0] - best[2] and dims < best):
                best = dims
    return best


class Axis:
    def __init__(self, size, kernel, stride, pad, dilation, ceil, parts):
        self.size, self.stride, self.pad = size, stride, pad
        self.extent = (kernel - 1) * dilation + 1
        span = size + 2 * pad - self.extent
        self.out = (-(-span // stride) if ceil else span // stride) + 1
        if ceil and (self.out - 1) * stride >= size + pad:
            self.out -= 1
        self.cuts = [size * k // parts for k in range(parts + 1)]
        self.parts = parts

    def first_from(self, cut):
        if cut <= 0:
            return 0
        return self.out if cut >= self.size else min(self.out, max(0, -(-(cut + self.pad) // self.stride)))

    def piece(self, at):
        """(in, out, read, over) of part `at`, as ranges."""
        begin, end = self.cuts[at], self.cuts[at + 1]
        out = (self.first_from(begin), self.first_from(end))
        read = (
            max(0, out[0] * self.stride - self.pad),
            min(self.size, (out[1] - 1) * self.stride - self.pad + self.extent),
        )
        over = (
            max(0, -(-(begin + self.pad - self.extent + 1) // self.stride)),
            min(self.out, (end - 1 + self.pad) // self.stride + 1),
        )
        return (begin, end), out, read, over


def size(ranges):
    product = 1
    for begin, end in ranges:
        product *= max(0, end - begin)
    return product


def overlap(a, b):
    return [(max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b)]


def exchange(sizes, kernel, stride, pad, dilation, ceil, ranks, planes, element, code):
    """(bytes received by all ranks, most bytes received by one forward, backward, most messages) and the largest rank's own bytes."""
    axes = [Axis(*numbers, ceil, parts) for *numbers, parts in zip(sizes, kernel, stride, pad, dilation, grid_of(ranks))]
    places = list(itertools.product(*(range(a.parts) for a in axes)))
    pieces = {p: [a.piece(i) for a, i in zip(axes, p)] for p in places}
    total = most_forward = most_backward = messages = 0
    sample = places if len(places) <= 64 else [p for p in places if all(i in (0, 1, a.parts - 1) for i, a in zip(p, axes))]
    for to in sample:
        _, _, read, over = zip(*pieces[to])
        near = [range(max(0, i - 3), min(a.parts, i + 4)) for i, a in zip(to, axes)]  # halos of a volume reach no farther
        forward = backward = count = 0
        for other in itertools.product(*near) if len(places) > 64 else places:
            if other == to:
                continue
            own_in, own_out, _, _ = zip(*pieces[other])
            x, dy = size(overlap(own_in, read)), size(overlap(own_out, over))
            forward += x * planes * element
            backward += dy * planes * (element + code)
            count += (x > 0) + (dy > 0)
        total += forward + backward
        most_forward, most_backward, messages = max(most_forward, forward), max(most_backward, backward), max(messages, count)
    own = max(size([q[0] for q in p]) for p in pieces.values()), max(size([q[1] for q in p]) for p in pieces.values())
    return total, most_forward, most_backward, messages, own


def check(program):
    """The example's own count of bytes, against the model's."""
    for ranks in (2, 4, 8):
        command = ["mpirun", "--oversubscribe", "-np", str(ranks), program]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        counted = int(re.search(r"(\d+) bytes exchanged", printed).group(1))
        modelled = exchange((20, 24, 28), (3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3, False, ranks, 4, 4, 1)[0]
        print(f"{ranks} ranks: {counted} bytes counted, {modelled} modelled")
        if counted != modelled:
            sys.exit("the model and the example disagree")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="PROGRAM", help="a built examples/mpi/split_volume")
    parser.add_argument("--side", type=int, default=1024, help="volume per 64 ranks (default %(default)s cubed)")
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--copy-tbps", type=float, default=4.2)
    parser.add_argument("--forward-fraction", type=float, default=0.8)
    parser.add_argument("--backward-fraction", type=float, default=0.65)
    parser.add_argument("--link-gbps", type=float, default=50)
    parser.add_argument("--latency-us", type=float, default=10)
    options = parser.parse_args()
    if options.check:
        return check(options.check)
    window = (3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3
    for title, sides in (
        (f"Strong scaling: one volume of {options.side} cubed", lambda ranks: (options.side,) * 3),
        (
            f"Weak scaling: {options.side} cubed per 64 ranks",
            lambda ranks: tuple(round(options.side * (ranks / 64) ** (1 / 3) / g) * g for g in grid_of(ranks)),
        ),
    ):
        print(f"{title}, {options.channels} channels, f32, k3 s2 p1")
        print(
            f"{'ranks':>6} {'halo MB/rank fwd':>17} {'bwd':>7} {'kernel us fwd':>14} {'bwd':>8} {'network us fwd':>15} {'bwd':>8} "
            f"{'efficiency':>11}"
        )
        for ranks in (1, 8, 64, 128, 256, 512, 1024):
            _, forward, backward, messages, (x, y) = exchange(sides(ranks), *window, False, ranks, options.channels, 4, 1)
            x_bytes, y_bytes, codes = (n * options.channels * b for n, b in ((x, 4), (y, 4), (y, 1)))
            kernel = [
                (x_bytes + y_bytes + codes) / (options.copy_tbps * 1e6 * f) for f in (options.forward_fraction, options.backward_fraction)
            ]
            network = [n / (options.link_gbps * 1e3) + options.latency_us * min(messages, 26) * (n > 0) for n in (forward, backward)]
            efficiency = sum(kernel) / (sum(kernel) + sum(network))
            print(
                f"{ranks:6} {forward / 1e6:17.2f} {backward / 1e6:7.2f} {kernel[0]:14.1f} {kernel[1]:8.1f} {network[0]:15.1f} "
                f"{network[1]:8.1f} {efficiency:11.2f}"
            )
        print()


if __name__ == "__main__":
    main()
