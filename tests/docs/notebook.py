#!/usr/bin/env python3
"""Executes a notebook from top to bottom with the library of a build: tests/docs/notebook.py --build BUILD_FOLDER FILE.ipynb

A cell that fails fails the test; what the notebook shows is not compared, but it must be without outputs in the repository, so that
nothing in it can be stale. --write FILE keeps the executed notebook.
"""

import argparse
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
arguments = argparse.ArgumentParser(description="Executes a notebook.")
arguments.add_argument("--build", type=Path, default=ROOT / "build" / "release")
arguments.add_argument("--write", type=Path)
arguments.add_argument("notebook", type=Path)
options = arguments.parse_args()

notebook = nbformat.read(options.notebook, as_version=4)
nbformat.validate(notebook)
code = [cell for cell in notebook.cells if cell.cell_type == "code"]
stale = [cell for cell in code if cell.outputs or cell.execution_count]
if stale or not code:
    sys.exit(f"{options.notebook}: {len(stale)} of {len(code)} cells hold outputs; clear them all")
os.environ.update(POOLGRAD_LIBRARY=str((options.build / "libpoolgrad.so").resolve()), PYTHONPATH=str(ROOT / "bindings" / "python"),
                  PYDEVD_DISABLE_FILE_VALIDATION="1")  # fmt: skip
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
if options.write:
    nbformat.write(notebook, options.write)
print(f"{options.notebook}: {len(code)} cells ran")
