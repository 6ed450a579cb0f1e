"""Windows drawn at random, and what a run over them shows: `bench/gpu/compare.py --random N --seed S`.

A draw is a 1-D to 3-D window (1-D as 2-D of one row, which is the same to every library), kernels of 1 to 31 along each
axis with small ones more often, strides of 1 to kernel + 1, dilation, padding, ceil, 1 to 512 channels, sizes odd and even.
"""
import math
import statistics

CLASSES = (("up to 9 taps", 1, 9), ("10 to 64", 10, 64), ("more", 65, 1 << 40))


def draw(random, elements):
    """batch, channels, sizes, kernel, stride, padding, dilation, ceil; about `elements` inputs."""
    rank = random.choices((1, 2, 3), (2, 6, 2))[0]
    most = random.choice((3, 3, 3, 5, 7, 15, 31) if rank < 3 else (2, 3, 3, 5))
    same = random.random() < 0.7
    channels = random.choice((1, 3, 8 * random.randint(1, 64), 16 * random.randint(1, 32), random.randint(1, 512)))
    sizes, window = [], []
    for axis in range(rank):
        kernel = random.randint(1, most)
        stride = random.choice((1, kernel, random.randint(1, kernel + 1)))
        dilation = random.choice((1, 1, 1, 1, random.randint(1, 3)))
        axis_window = (kernel, stride, random.randint(0, kernel // 2), dilation)
        window.append(window[0] if same and axis else axis_window)
        extent = (window[-1][0] - 1) * window[-1][3] + 1
        low, high = {1: (256, 8192), 2: (14, 256), 3: (8, 64)}[rank]
        sizes.append(random.randint(max(low, extent), max(high, extent)))
    if rank == 1:
        sizes, window = [1] + sizes, [(1, 1, 0, 1)] + window
    batch = max(1, round(elements / (channels * math.prod(sizes))))
    kernel, stride, padding, dilation = map(list, zip(*window))
    return batch, channels, tuple(sizes), kernel, stride, padding, dilation, random.random() < 0.2


def at_quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def against(rows, peers):
    """Lines: against the fastest of `peers`, by operation."""
    label = peers[0] if len(peers) == 1 else f"the best of {', '.join(peers)}"
    for op in ("fwd", "train", "bwd"):
        ratios = [
            (min(r["peers"][peer]["ms"] for peer in peers if peer in r["peers"]) / r["ms"], r)
            for r in rows if r["op"] == op and any(peer in r["peers"] for peer in peers)
        ]
        if not ratios:
            continue
        behind = sum(ratio < 1 for ratio, _ in ratios)
        worst, row = min(ratios, key=lambda item: item[0])
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios))
        yield (
            f"{op}: behind {label} in {behind} of {len(ratios)} cells, geometric mean {mean:.2f}x, "
            f"worst {worst:.2f}x ({row['algorithm']}: {row['text']})"
        )


def fractions(rows):
    """Lines: quantiles of the fraction of copy by taps, type and layout."""
    for label, low, high in CLASSES:
        for dtype in sorted({r["dtype"] for r in rows}):
            for layout in ("first", "last"):
                cells = [r for r in rows if low <= r["taps"] <= high and r["dtype"] == dtype and r["layout"] == layout]
                if not cells:
                    continue
                parts, count = [], sum(r["op"] == "fwd" for r in cells)
                for op in ("fwd", "train", "bwd"):
                    fractions = [r["fraction"] for r in cells if r["op"] == op]
                    if not fractions:  # averages alone
                        continue
                    quantiles = (at_quantile(fractions, share) for share in (0.05, 0.25, 0.5))
                    parts.append(f"{op} " + " ".join(f"{q:.2f}" for q in quantiles))
                yield f"{label:<12} {dtype:<4} {layout:<5} {count:3d} cells, 5/25/50 % of copy: " + " | ".join(parts)
