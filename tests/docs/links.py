#!/usr/bin/env python3
"""Checks links, without a network.

    tests/docs/links.py                 every relative link of every Markdown file leads to a file, its #anchor to a heading
    tests/docs/links.py --site FOLDER   every link of every page of the built site leads to a file, its #anchor to an element;
                                        no style or script needs a server, and there are colours for those whose system is dark

Prints every dead link; the exit status is 0 when there is none. Addresses of the web are not visited.
"""

import argparse
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Set, Tuple
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub and MyST make it."""
    heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()))


def without_code(text: str) -> str:
    text = re.sub(r"^( *)(```+).*?^\1\2 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def markdown(root: Path) -> Tuple[int, List[str]]:
    hidden = {"build", "dist", "node_modules", ".git"}
    files = [file for file in root.rglob("*.md") if not hidden & set(file.relative_to(root).parts)]
    count, dead = 0, []
    anchors: Dict[Path, Set[str]] = {}
    for file in sorted(files):
        text = without_code(file.read_text(encoding="utf-8"))
        targets = re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", text) + re.findall(r'(?:href|src)="([^"]+)"', text)
        for target in targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            to = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = f"{file.relative_to(root)}: {target}"
            if not to.exists():
                dead.append(f"{place} leads nowhere")
            elif parts.fragment and to.suffix == ".md":
                if to not in anchors:
                    words = re.sub(r"^```.*?^```", "", to.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
                    headings = re.findall(r"^#+ +(.*)$", words, re.MULTILINE)
                    anchors[to] = {slug(heading) for heading in headings}
                if parts.fragment not in anchors[to]:
                    dead.append(f"{place}: {to.name} has no heading #{parts.fragment}")
                # docs/build.sh leads docs/*.md to the bindings' pages; nothing else outside of docs is a page with headings there.
                docs = root / "docs"
                if docs in file.parents and docs not in to.parents and not (file.parent == docs and root / "bindings" in to.parents):
                    dead.append(f"{place}: the site shows {to.name} elsewhere; docs/build.sh must know")
    return count, dead


class Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.links: List[str] = []
        self.ids: Set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def site(folder: Path) -> Tuple[int, List[str]]:
    pages = {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in folder.rglob("*.html")}
    count, dead = 0, []
    for file, page in sorted(pages.items()):
        if "explorer" in file.relative_to(folder.resolve()).parts:
            continue  # a page of its own, with tests of its own
        for target in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            place = f"{file.relative_to(folder.resolve())}: {target}"
            if parts.path.startswith("/"):
                dead.append(f"{place} begins at the server's root; the site must work under any path")
                continue
            to = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not to.is_file():
                dead.append(f"{place} leads nowhere")
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].ids:
                dead.append(f"{place}: the page has no #{parts.fragment}")
    for file in folder.rglob("*.css"):
        dead += [f"{file.name}: {found} needs a server" for found in re.findall(r"(?:url\(|@import )[\"']?/\S*", file.read_text(encoding="utf-8"))]
    for file in folder.rglob("*.js"):
        if re.match(r"import\b", file.read_text(encoding="utf-8")):
            dead.append(f"{file.name} is a module, which a page from the file system cannot load")
    if "prefers-color-scheme: dark" not in "".join(file.read_text(encoding="utf-8") for file in folder.rglob("furo.css")):
        dead.append("furo.css has no colours for those whose system is dark")
    return count, dead


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Checks the links of the documentation.")
    arguments.add_argument("--site", type=Path)
    options = arguments.parse_args()
    checked, wrong = site(options.site) if options.site else markdown(ROOT)
    for line in wrong:
        print(line)
    print(f"{checked} links, {len(wrong)} dead")
    sys.exit(1 if wrong or not checked else 0)
