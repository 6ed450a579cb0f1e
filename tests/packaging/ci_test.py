"""The workflow of .github/ runs only what exists: every `make` of its steps names targets of the Makefile, and every script is there."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
wrong, seen = [], 0
for workflow in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
    text = workflow.read_text(encoding="utf-8")
    for step in re.findall(r"^ *- run: (make\b.*)$", text, re.MULTILINE):
        seen += 1
        wrong += [f"{workflow.name}: '{step}' asks for {word}" for word in step.split()[1:] if word not in targets]
    for script in re.findall(r"^ *- run: ([\w./-]*/[\w./-]*)", text, re.MULTILINE):
        seen += 1
        wrong += [] if os.access(ROOT / script, os.X_OK) else [f"{workflow.name}: {script} cannot be run"]
print(*wrong, sep="\n")
sys.exit(bool(wrong) or seen == 0)
