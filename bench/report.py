#!/usr/bin/python3
"""Reads the lines of bench/peers/run.py (or of `poolgrad bench --json`) and tells, cell by cell, how many times faster
poolgrad is than the best peer, with geometric means; as a table, as JSON (--json), as Markdown (--markdown) or as a
chart (--svg FILE)."""
import argparse
import json
import math
from collections import defaultdict

OPS = {"fwd": "forward", "train": "forward with routes", "bwd": "backward from routes", "bwd_x": "backward from x"}


def read(paths):
    """The fastest line of each (cell, peer): of several runs, the one that was disturbed least. In order of appearance."""
    cells = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if "case" in record:
                    key = (record["dtype"], record["case"], record["layout"], record["op"])
                    records = cells.setdefault(key, {})
                    known = records.get(record["peer"])
                    if known is None or record["ms"] < known["ms"]:
                        records[record["peer"]] = record
    return cells


def compare(cells):
    rows = []
    for (dtype, case, layout, op), records in cells.items():
        if "poolgrad" not in records:
            continue
        ours = records["poolgrad"]
        peers = sorted((r for name, r in records.items() if name != "poolgrad"), key=lambda r: r["ms"])
        row = {
            "case": case,
            "layout": layout,
            "dtype": dtype,
            "op": op,
            "threads": ours["threads"],
            "ms": ours["ms"],
            "spread": ours["spread"],
            "fraction": ours["fraction"],
            "algorithm": ours.get("algorithm"),
            "taps": ours.get("taps"),
            "best_peer": None,
            "peer_ms": None,
            "ratio": None,
        }
        if peers:
            row.update(
                best_peer=peers[0]["peer"],
                peer_ms=peers[0]["ms"],
                peer_fraction=peers[0]["fraction"],
                ratio=peers[0]["ms"] / ours["ms"],
            )
        rows.append(row)
    return rows


def provenance(paths):
    """The sentence that says where the numbers come from, of the last run."""
    text = ""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if "about" in record:
                    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
                    text = (
                        f"{record['about']}, {record['threads']} threads, {record['date']}. Copy {record['copy_gbps']:.1f} GB/s, "
                        f"4 reads to 1 write {record['read_heavy_gbps']:.1f}, 1 read to 4 writes "
                        f"{record['write_heavy_gbps']:.1f}. {versions}."
                    )
    return text


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def means(rows):
    groups = defaultdict(list)
    for row in rows:
        if row["ratio"]:
            for layout in (row["layout"], "both"):
                groups[(row["dtype"], row["op"], layout)].append(row["ratio"])
    return [
        {"dtype": d, "op": o, "layout": l, "cells": len(v), "geometric_mean": geometric_mean(v), "least": min(v)}
        for (d, o, l), v in sorted(
            groups.items(), key=lambda g: (g[0][0] != "f32", g[0][0], list(OPS).index(g[0][1]), g[0][2])
        )
    ]


def print_table(rows):
    print(
        f"{'case':16} {'layout':6} {'type':5} {'op':6} {'ms':>10} {'fraction':>8}  {'best peer':>11} {'ms':>10} {'fraction':>8} {'ratio':>7}"
    )
    for r in rows:
        peer = (
            f"{r['best_peer']:>11} {r['peer_ms']:10.4f} {r['peer_fraction']:8.3f} {r['ratio']:7.2f}"
            if r["ratio"]
            else f"{'none':>11}"
        )
        print(f"{r['case']:16} {r['layout']:6} {r['dtype']:5} {r['op']:6} {r['ms']:10.4f} {r['fraction']:8.3f}  {peer}")


def print_means(rows):
    print("\nTimes faster than the best peer:")
    for m in means(rows):
        print(
            f"{m['dtype']:5} {OPS[m['op']]:22} {m['layout']:5} geometric mean {m['geometric_mean']:6.2f}, least {m['least']:5.2f}, {m['cells']} cells"
        )


def spread(rows):
    """For windows drawn at random, by type, operation and size of the window: what share is behind the best peer, the worst, the
    geometric mean, and the 5th, 25th and 50th percentile of the fraction of the copy bandwidth."""
    groups = defaultdict(list)
    for row in rows:
        size = "1 to 9" if row["taps"] <= 9 else "10 to 64" if row["taps"] <= 64 else "over 64"
        for taps in (size, "all"):
            groups[(row["dtype"], row["op"], taps)].append(row)
    result = []
    for (dtype, op, taps), cells in sorted(groups.items()):
        fractions = sorted(r["fraction"] for r in cells)
        ratios = [r["ratio"] for r in cells if r["ratio"]] or [float("nan")]
        result.append(
            {
                "dtype": dtype,
                "op": op,
                "taps": taps,
                "cells": len(cells),
                "behind": sum(r < 1 for r in ratios) / len(ratios),
                "least": min(ratios),
                "geometric_mean": geometric_mean(ratios),
                **{f"p{q}": fractions[int(q / 100 * (len(fractions) - 1) + 0.5)] for q in (5, 25, 50)},
            }
        )
    return result


def print_spread(rows):
    print("\nWindows drawn at random:")
    print(f"{'type':5} {'op':6} {'taps':9} {'cells':>5} {'behind':>7} {'least':>6} {'mean':>6} {'5 %':>6} {'25 %':>6} {'50 %':>6}")
    for g in spread(rows):
        print(
            f"{g['dtype']:5} {g['op']:6} {g['taps']:9} {g['cells']:5} {g['behind']:7.1%} {g['least']:6.2f} {g['geometric_mean']:6.2f} "
            f"{g['p5']:6.3f} {g['p25']:6.3f} {g['p50']:6.3f}"
        )


def markdown(rows):
    """One table per type: a row for each case and layout, a column for each operation."""
    lines = []
    for dtype in dict.fromkeys(r["dtype"] for r in rows):
        ops = [op for op in OPS if any(r["op"] == op and r["dtype"] == dtype for r in rows)]
        lines += ["", f"**{dtype}**: ms (fraction of the copy bandwidth), times faster than the best peer", ""]
        lines.append("| case | layout | " + " | ".join(OPS[op] for op in ops) + " |")
        lines.append("| --- | --- |" + " --- |" * len(ops))
        for case, layout in dict.fromkeys((r["case"], r["layout"]) for r in rows if r["dtype"] == dtype):
            cells = []
            for op in ops:
                found = [r for r in rows if (r["case"], r["layout"], r["dtype"], r["op"]) == (case, layout, dtype, op)]
                cells.append(cell_text(found[0]) if found else "")
            lines.append(f"| {case} | {layout} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def markdown_means(rows):
    lines = ["| type | operation | geometric mean | least | cells |", "| --- | --- | --- | --- | --- |"]
    for m in means(rows):
        if m["layout"] == "both":
            lines.append(
                f"| {m['dtype']} | {OPS[m['op']]} | {m['geometric_mean']:.2f}× | {m['least']:.2f}× | {m['cells']} |"
            )
    return "\n".join(lines)


def replace_between(path, name, text):
    """Puts `text` between the marks <!-- NAME --> and <!-- /NAME --> of a Markdown file."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if begin not in page or end not in page:
        raise SystemExit(f"{path} lacks the marks {begin} and {end}; expected both")
    head, rest = page.split(begin, 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}{begin}\n{text.strip()}\n{end}{rest.split(end, 1)[1]}")


def cell_text(row):
    ms = f"{row['ms']:.2f}" if row["ms"] >= 0.1 else f"{row['ms'] * 1000:.1f} µs"
    return f"{ms} ({row['fraction']:.2f})" + (f", **{row['ratio']:.1f}×** {row['best_peer']}" if row["ratio"] else "")


def svg(rows, dtype="f32"):
    """Bars of the ratio to the best peer on a logarithmic axis: a group for each case and layout, a bar for each op."""
    colours = {"fwd": "#2a78b5", "train": "#e07b39", "bwd": "#3d9a50"}
    rows = [r for r in rows if r["ratio"] and r["dtype"] == dtype and r["op"] in colours]
    groups = list(dict.fromkeys((r["case"], r["layout"]) for r in rows))
    bar, gap, left, top, width = 7, 8, 150, 46, 560
    height = top + len(groups) * (3 * bar + gap) + 30
    low, high = 0.5, max([r["ratio"] for r in rows] + [10]) * 1.1
    x = lambda ratio: left + width * math.log(max(ratio, low) / low) / math.log(high / low)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="100%" height="100%" fill="white"/><text x="{left}" y="16" font-size="13">Times faster than the best peer, {dtype}</text>',
    ]
    for i, (op, colour) in enumerate(colours.items()):
        parts.append(
            f'<rect x="{left + 150 * i}" y="24" width="10" height="10" fill="{colour}"/><text x="{left + 150 * i + 14}" y="33">{OPS[op]}</text>'
        )
    tick = 1
    while tick < high:
        for t in (tick, 2 * tick, 5 * tick):
            if low < t < high:
                parts.append(
                    f'<line x1="{x(t):.1f}" y1="{top - 4}" x2="{x(t):.1f}" y2="{height - 22}" stroke="{"#444" if t == 1 else "#ddd"}"/>'
                    f'<text x="{x(t):.1f}" y="{height - 8}" text-anchor="middle">{t}×</text>'
                )
        tick *= 10
    for g, (case, layout) in enumerate(groups):
        y = top + g * (3 * bar + gap)
        parts.append(f'<text x="{left - 6}" y="{y + 1.5 * bar + 4:.1f}" text-anchor="end">{case} {layout}</text>')
        for i, op in enumerate(colours):
            for r in (r for r in rows if (r["case"], r["layout"], r["op"]) == (case, layout, op)):
                start, end = sorted((x(1), x(r["ratio"])))
                parts.append(
                    f'<rect x="{start:.1f}" y="{y + i * bar}" width="{max(end - start, 1):.1f}" height="{bar - 1}" fill="{colours[op]}">'
                    f'<title>{case} {layout} {OPS[op]}: {r["ratio"]:.2f} times {r["best_peer"]}</title></rect>'
                )
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", help="files of JSON lines, of one or several runs")
    parser.add_argument("--json", action="store_true", help="one object per cell and per mean")
    parser.add_argument("--markdown", action="store_true", help="the tables of docs/benchmarks.md")
    parser.add_argument("--into", help="put the tables between the marks of this Markdown file")
    parser.add_argument("--mark", default="tables", help="the name of those marks (default %(default)s)")
    parser.add_argument("--svg", help="also write the chart to this file")
    options = parser.parse_args()
    rows = compare(read(options.results))
    if options.json:
        for record in rows + means(rows):
            print(json.dumps(record))
    elif options.markdown or options.into:
        means_text = "Times faster than the best peer:\n\n" + markdown_means(rows)
        page = "\n\n".join([provenance(options.results), means_text, markdown(rows)])
        if options.into:
            replace_between(options.into, options.mark, page)
        else:
            print(page)
    else:
        print_table(rows)
        print_means(rows)
        drawn = [r for r in rows if r["case"].startswith("random_") and r["taps"]]
        if drawn:
            print_spread(drawn)
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(svg(rows))


if __name__ == "__main__":
    main()
