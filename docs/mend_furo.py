"""Mends the look of the built site: docs/mend_furo.py SITE

Debian 12's furo was made with tools that leave three things undone: its script is a module that is loaded as none (so the switch between light
and dark does nothing), its style takes a file from the server's root (so the site would need one), and the rule for those whose system is
dark is missing. Its Sphinx gives the captions of the menu no level. Others have none of these faults, and then nothing is changed.
"""

import re
import sys
from pathlib import Path

static = Path(sys.argv[1]) / "_static"

script = static / "scripts" / "furo.js"
text = script.read_text(encoding="utf-8")
imported = re.search(r'^import \w+ from "\./(.+)";\n', text)
if imported:
    script.write_text((script.parent / imported[1]).read_text(encoding="utf-8") + text.replace(imported[0], ""), encoding="utf-8")

style = static / "styles" / "furo.css"
text = style.read_text(encoding="utf-8")
text = re.sub(r"@import url\(/(javascript/.+?)\);", lambda found: Path("/usr/share", found[1]).read_text(encoding="utf-8"), text)
if "prefers-color-scheme" not in text:
    colours = re.search(r'body\[data-theme="dark"\] (\{.*?\})', text, re.DOTALL)
    text += f'\n@media not print {{ @media (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {colours[1]} }} }}\n'
style.write_text(text, encoding="utf-8")

for page in static.parent.rglob("*.html"):
    if "explorer" not in page.parts:
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace('class="caption" role="heading">', 'class="caption" role="heading" aria-level="2">'), encoding="utf-8")
