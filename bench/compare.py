#!/usr/bin/python3
"""Tells whether a change made a cell slower beyond noise: bench/compare.py before.jsonl after.jsonl

Both files hold lines of `poolgrad bench --json`; several lines for one cell (several runs) are combined by their
median. A cell is slower when its time grew by more than --threshold and by more than twice the spread of both
measurements together. Exit status: 0 no cell is slower, 1 some are, 2 the files have no cell in common.
"""
import argparse
import json
import math
import statistics
import sys


def read(path):
    """{cell: (median ms, spread)}; the spread is the lines' own, or the distance between several runs if larger."""
    lines = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record.get("peer", "") == "poolgrad" and "ms" in record:
                lines.setdefault(tuple(record[k] for k in ("case", "layout", "dtype", "op", "threads")), []).append(
                    record
                )
    result = {}
    for cell, records in lines.items():
        times = [r["ms"] for r in records]
        median = statistics.median(times)
        between = (max(times) - min(times)) / median
        result[cell] = median, max(between, statistics.median(r["spread"] for r in records))
    return result


def verdict(before, after, threshold):
    """(ratio after/before, noise, word)."""
    ratio = after[0] / before[0]
    noise = max(threshold, 2 * math.hypot(before[1], after[1]))
    return ratio, noise, "slower" if ratio > 1 + noise else "faster" if ratio < 1 / (1 + noise) else "same"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument(
        "--threshold", type=float, default=0.05, help="the least change that counts (default %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="print the cells that stayed the same, too")
    parser.add_argument("--json", action="store_true", help="one object per cell")
    options = parser.parse_args()
    before, after = read(options.before), read(options.after)
    common = [cell for cell in before if cell in after]
    if not common:
        print(
            "The two files have no cell in common; expected lines of `poolgrad bench --json` for the same cases.",
            file=sys.stderr,
        )
        return 2
    counts = {"slower": 0, "faster": 0, "same": 0}
    logs = []
    for cell in common:
        ratio, noise, word = verdict(before[cell], after[cell], options.threshold)
        counts[word] += 1
        logs.append(math.log(ratio))
        case, layout, dtype, op, threads = cell
        if options.json:
            print(
                json.dumps(
                    {
                        "case": case,
                        "layout": layout,
                        "dtype": dtype,
                        "op": op,
                        "threads": threads,
                        "before_ms": before[cell][0],
                        "after_ms": after[cell][0],
                        "ratio": round(ratio, 4),
                        "noise": round(noise, 4),
                        "verdict": word,
                    }
                )
            )
        elif word != "same" or options.all:
            print(
                f"{word:6} {case:20} {layout} {dtype:5} {op:6} {before[cell][0]:10.4f} -> {after[cell][0]:10.4f} ms  x{ratio:.3f} (noise {noise:.3f})"
            )
    if not options.json:
        print(
            f"{counts['slower']} slower, {counts['faster']} faster, {counts['same']} the same of {len(common)} cells; "
            f"time changed by x{math.exp(sum(logs) / len(logs)):.3f} in the geometric mean."
        )
    return 1 if counts["slower"] else 0


if __name__ == "__main__":
    sys.exit(main())
