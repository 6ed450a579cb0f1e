"""Puts right the links inside a page that TypeDoc's Markdown plugin wrote: docs/typedoc/anchors.py FILE.md

It counts headings of the same name otherwise than Markdown does, so a link may miss its target by one. Every type has one heading of the third
level, its members have one of the fifth below it; a link that shows `Type` or `Type`.`member` leads there.
"""

import re
import sys
from collections import Counter
from pathlib import Path

page = Path(sys.argv[1])
text = page.read_text(encoding="utf-8")
seen: Counter = Counter()
anchors = {}
kind = ""
for level, heading in re.findall(r"^(#+) (.*)$", text, re.MULTILINE):
    slug = re.sub(r"[^\w-]", "", heading.replace(" ", "-").lower())
    anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
    seen[slug] += 1
    name = re.sub(r"\W.*", "", heading)
    if level == "###":
        kind = name
        anchors[kind] = anchor
    elif level == "#####":
        anchors.setdefault(f"{kind}.{name}", anchor)


def corrected(link: re.Match) -> str:
    shown, member = link[1], link[2]
    result = f"[`{shown}`](#{anchors[shown]})"
    return f"{result}.[`{member}`](#{anchors[f'{shown}.{member}']})" if member else result


page.write_text(re.sub(r"\[`(\w+)`\]\(#[^)]*\)(?:\.\[`(\w+)`\]\(#[^)]*\))?", corrected, text), encoding="utf-8")
