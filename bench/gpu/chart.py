"""Draws the GPU comparison as an SVG: for each cell a bar of our fraction of the copy bandwidth over the best peer's."""

BAR, GAP, LEFT, WIDE, HEAD = 12, 3, 260, 420, 54
OPS = {"fwd": "forward", "train": "forward with routes", "bwd": "backward"}


def draw(machine, rows):
    rows = sorted(rows, key=lambda r: list(OPS).index(r["op"]))
    height = HEAD + len(rows) * (BAR + GAP) + len(OPS) * 22 + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 90} {height}" font-family="sans-serif" font-size="10">',
        '<style>text{fill:#333}.ours{fill:#2b6cb0}.peer{fill:#cbd5e0}.line{stroke:#999;stroke-dasharray:3 3}'
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.peer{fill:#4a5568}}</style>",
        f'<text x="4" y="16" font-size="13">Fraction of the copy bandwidth, {machine["gpu"]} ({machine["copy_GBps"]:.0f} GB/s), {machine["date"]}</text>',
        '<text x="4" y="32">dark: poolgrad; light: the best of PyTorch, inductor, cuDNN and JAX; at the end: how many times faster</text>',
    ]
    y, op = HEAD - 10, None
    for row in rows:
        if row["op"] != op:
            op = row["op"]
            y += 22
            parts.append(f'<text x="4" y="{y - 6}" font-size="12" font-weight="bold">{OPS[op]}</text>')
        peer = row["peers"][row["best_peer"]]["fraction"] if row["best_peer"] else 0
        parts.append(f'<text x="4" y="{y + 10}">{row["case"]} {row["dtype"]} channels {row["layout"]}</text>')
        parts.append(f'<rect class="ours" x="{LEFT}" y="{y}" width="{row["fraction"] * WIDE:.1f}" height="{BAR * 0.6:.1f}"/>')
        parts.append(f'<rect class="peer" x="{LEFT}" y="{y + BAR * 0.6:.1f}" width="{peer * WIDE:.1f}" height="{BAR * 0.4:.1f}"/>')
        ratio = f' ({row["ratio"]:.1f}x {row["best_peer"]})' if row["ratio"] else ""
        parts.append(f'<text x="{LEFT + row["fraction"] * WIDE + 4:.1f}" y="{y + 9}">{row["fraction"]:.2f}{ratio}</text>')
        y += BAR + GAP
    parts.append(f'<line class="line" x1="{LEFT + WIDE}" x2="{LEFT + WIDE}" y1="{HEAD}" y2="{y}"/>')
    parts.append("</svg>\n")
    return "\n".join(parts)
