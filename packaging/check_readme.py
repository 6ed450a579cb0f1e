"""The install lines of README.md and docs/start against dist/: packaging/check_readme.py

What a line installs must lie there, once; and where the README's table says a size, that is what the files named beside it have in all, to a tenth.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = re.compile(r"dist/([^\s`*]*\*?[^\s`*]*\.(?:whl|tgz|deb|tar\.gz))")
wrong, lines = [], 0
for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md"))):
    for line in page.read_text(encoding="utf-8").splitlines():
        patterns = PACKAGE.findall(line)
        lines += bool(patterns)
        found = {pattern: list((ROOT / "dist").glob(pattern)) for pattern in patterns}
        wrong += [f"{page.name}: dist/{pattern} is {len(files)} files" for pattern, files in found.items() if len(files) != 1]
        said = re.search(r"\| ([\d.]+) MB", line)
        if patterns and said:
            size = sum(file.stat().st_size for files in found.values() for file in files) / 1e6
            if abs(float(said[1]) - size) > 0.1 * size:
                wrong.append(f"{page.name}: {' '.join(patterns)} is said to have {said[1]} MB and has {size:.2f}")
print("\n".join(wrong) or f"{lines} install lines name what is in dist/")
sys.exit(1 if wrong or not lines else 0)
