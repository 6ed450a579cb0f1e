"""Writes the GPU comparison as Markdown tables, one for each operation: `bench/gpu/table.py gpu.json > gpu.md`."""
import json
import math
import statistics
import sys

OPS = {"fwd": "Forward (values only)", "train": "Forward with what backward needs", "bwd": "Backward"}
PEERS = ("torch", "inductor", "cudnn", "cudnn_det", "jax")


def cells_of(row, peers):
    time = lambda ms, repeats: f"{ms:.3f}{'' if repeats else '*'}"
    yield f"{row['case']} {row['dtype']}, channels {row['layout']}"
    yield time(row["ms"], row["repeats"])
    yield f"{row['fraction']:.2f}"
    yield f"{row['ratio']:.2f}x" if row["ratio"] else ""
    for name in peers:
        yield time(row["peers"][name]["ms"], row["peers"][name]["repeats"]) if name in row["peers"] else ""


def draw(machine, rows):
    """Milliseconds of everyone; beside ours the fraction of the copy bandwidth and how many times faster than the best peer."""
    lines = [
        f"{machine['gpu']}, copy {machine['copy_GBps']:.0f} GB/s, PyTorch {machine['torch']}, cuDNN {machine['cudnn']}, {machine['date']}. "
        "Milliseconds; \\* after a time: its bits changed from run to run.",
        "",
    ]
    for op, title in OPS.items():
        own = [row for row in rows if row["op"] == op]
        if not own:
            continue
        peers = [name for name in PEERS if any(name in row["peers"] for row in own)]
        head = ["case", "poolgrad", "of copy", "to best peer", *peers]
        ratios = [row["ratio"] for row in own if row["ratio"]]
        lines += [f"### {title}", "", "| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
        lines += ["| " + " | ".join(cells_of(row, peers)) + " |" for row in own]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            lines += ["", f"Geometric mean {mean:.2f}x the best peer, least {min(ratios):.2f}x, of {len(ratios)} cells."]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as results:
        measured = json.load(results)
    print(draw(measured["machine"], measured["cells"]), end="")
