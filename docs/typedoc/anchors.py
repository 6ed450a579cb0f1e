"""Puts right the links inside a page that TypeDoc's Markdown plugin wrote: docs/typedoc/anchors.py FILE.md

It counts headings of the same name otherwise than Markdown does, so a link may miss its type by one. Every type has one heading of the third
level; a link that shows a type's name leads there.
"""

import re
import sys
from collections import Counter
from pathlib import Path

page = Path(sys.argv[1])
text = page.read_text(encoding="utf-8")
seen: Counter = Counter()
anchors = {}
for level, heading in re.findall(r"^(#+) (.*)$", text, re.MULTILINE):
    slug = re.sub(r"[^\w-]", "", heading.replace(" ", "-").lower())
    if level == "###":
        anchors[re.sub(r"\W.*", "", heading)] = f"{slug}-{seen[slug]}" if seen[slug] else slug
    seen[slug] += 1
page.write_text(re.sub(r"\[`(\w+)`\]\(#[^)]*\)", lambda link: f"[`{link[1]}`](#{anchors[link[1]]})", text), encoding="utf-8")
