#!/usr/bin/env python3
"""Runs every code block of every Markdown file of the project:

    tests/docs/blocks.py --build BUILD_FOLDER [--language c,cpp,cmake,python,sh,js] [FILE.md...]

A page is read as a person would read it, from top to bottom:
  python       the blocks of one page are one program
  js           each block is a module
  c, cpp       each block is a program; one without main() becomes the inside of one, its #include lines first
  cmake        each block is the end of a project's CMakeLists.txt, which is configured where the library is installed, beside its source tarball
  sh           each block is a script, in an empty folder shared by the page, with `poolgrad` of the build on the path, the library installed
               where pkg-config looks, and the project's folder in $POOLGRAD
  text, ...    words that are no code: text, json, makefile, mermaid
Two comments in front of a block speak to this script and stay invisible to readers:
  <!-- setup: CODE -->        runs before the block, in its language: the arrays that a fragment takes for granted
  <!-- needs: MODULE -->      (python) the page's further blocks are only parsed where MODULE cannot be imported
  <!-- needs: PROGRAM -->     (sh) this block is left out where there is no PROGRAM
A block without a language is an error, so that none is forgotten, and there is no way to leave one out. Blocks must exit with 0.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("c", "cpp", "cmake", "python", "sh", "js")
NO_CODE = ("text", "json", "makefile", "mermaid", "bibtex", "yaml")
NAMES = {"bash": "sh", "shell": "sh", "c++": "cpp", "py": "python", "javascript": "js", "mjs": "js"}


@dataclass
class Block:
    file: Path
    line: int
    language: str
    code: str
    setup: List[str] = field(default_factory=list)
    needs: Optional[str] = None

    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def blocks_of(file: Path) -> List[Block]:
    """The fenced blocks of a file, with the comments in front of them."""
    found: List[Block] = []
    comment, fence = r"<!--\s*(setup|needs):\s*(.*?)\s*-->", r"^( *)(```+)([^\n`]*)\n(.*?)^\3\4 *$"
    pattern = re.compile(f"{comment}|{fence}", re.DOTALL | re.MULTILINE)
    pending = {"setup": [], "needs": None}
    text = file.read_text(encoding="utf-8")
    for match in pattern.finditer(text):
        if match.group(1):
            if match.group(1) == "setup":
                pending["setup"].append(match.group(2))
            else:
                pending["needs"] = match.group(2)
            continue
        line = text.count("\n", 0, match.start(4)) + 1
        language = match.group(5).strip().lower()
        language = NAMES.get(language, language)
        if not language.startswith("{"):
            indent = len(match.group(3))
            code = "".join(row[indent:] if row[:indent].isspace() else row for row in match.group(6).splitlines(True))
            found.append(Block(file, line, language, code, pending["setup"], pending["needs"]))
        pending = {"setup": [], "needs": None}
    return found


def run(command: List[str], folder: Path, environment: dict) -> Optional[str]:
    """None, or what went wrong."""
    try:
        done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)  # fmt: skip
    except subprocess.TimeoutExpired:
        return "did not finish within ten minutes"
    return None if done.returncode == 0 else f"exit status {done.returncode}\n{done.stdout[-3000:]}"


class Runner:
    def __init__(self, build: Path, folder: Path):
        self.build, self.folder = build, folder
        self.left_out: List[str] = []  # one line for each block
        self.prefix, self.installing = folder / "installed", threading.Lock()

    def install(self) -> dict:
        """Installs the build, once, and says where to those who look for it."""
        with self.installing:
            if not self.prefix.exists():
                subprocess.run(["cmake", "--install", str(self.build), "--prefix", str(self.prefix)], check=True, stdout=subprocess.DEVNULL)
        libraries = next(self.prefix.rglob("poolgrad.pc")).parents[1]
        return {"PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "LD_LIBRARY_PATH": str(libraries), "LIBRARY_PATH": str(libraries),
                "CMAKE_PREFIX_PATH": str(self.prefix)}  # fmt: skip

    def compiled(self, block: Block) -> Optional[str]:
        code = block.code
        setup = "\n".join(block.setup)
        if not re.search(r"\bint\s+main\s*\(", code):
            includes = "".join(row for row in code.splitlines(True) if row.startswith("#include"))
            inside = "".join(row for row in code.splitlines(True) if not row.startswith("#include"))
            header = "poolgrad.hpp>\n#include <vector>" if block.language == "cpp" else "poolgrad.h>\n#include <stdio.h>"
            code = f"#include <poolgrad/{header}\n{includes}\nint main(void) {{\n{setup}\n{inside}\nreturn 0;\n}}\n"
        name = re.sub(r"\W", "_", block.place())
        source = self.folder / f"{name}.{block.language if block.language == 'c' else 'cc'}"
        source.write_text(code)
        program = self.folder / name
        compiler = ["cc", "-std=c99"] if block.language == "c" else ["c++", "-std=c++20"]
        warnings = ["-Wall", "-Wextra", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Werror"]
        library = [f"-I{ROOT / 'include'}", f"-L{self.build}", "-lpoolgrad", f"-Wl,-rpath,{self.build}", "-pthread"]
        wrong = run([*compiler, *warnings, str(source), "-o", str(program), *library], self.folder, {})
        return wrong or run([str(program)], self.folder, {})

    def project(self, block: Block) -> Optional[str]:
        folder = self.folder / re.sub(r"\W", "_", block.place())
        folder.mkdir()
        (folder / "main.cc").write_text("int main() {}\n")
        start = "cmake_minimum_required(VERSION 3.22)\nproject(yours LANGUAGES C CXX)\nadd_executable(your_program main.cc)\n"
        (folder / "CMakeLists.txt").write_text("\n".join([start, *block.setup, block.code]))
        version = re.search(r"project\(poolgrad VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        with tarfile.open(folder / f"poolgrad-{version}-source.tar.gz", "w:gz", compresslevel=1) as sources:
            for name in ("CMakeLists.txt", "cmake", "include", "src"):
                sources.add(ROOT / name, f"poolgrad-{version}/{name}")
        return run(["cmake", "-S", str(folder), "-B", str(folder / "build"), "-G", "Ninja"], folder, self.install())

    def script(self, blocks: List[Block], name: str) -> Optional[str]:
        folder = self.folder / f"{name}_sh"
        folder.mkdir()
        path = {"PATH": f"{self.build / 'cli'}:{Path(sys.executable).parent}:{os.environ['PATH']}", "POOLGRAD": str(ROOT)}
        if any(word in block.code for block in blocks for word in ("pkg-config", "-lpoolgrad")):
            path.update(self.install())
        for block in blocks:
            if block.needs and not shutil.which(block.needs):
                self.left_out.append(f"{block.place()}: there is no {block.needs}")
                continue
            wrong = run(["bash", "-euo", "pipefail", "-c", "\n".join([*block.setup, block.code])], folder, path)
            if wrong:
                return f"{block.place()}: {wrong}" if block is not blocks[0] else wrong
        return None

    def module(self, block: Block) -> Optional[str]:
        program = self.folder / (re.sub(r"\W", "_", block.place()) + ".mjs")
        program.write_text("\n".join([*block.setup, block.code]))  # imports may stand anywhere
        return run(["node", str(program)], self.folder, {})

    def page(self, blocks: List[Block], name: str) -> Optional[str]:
        """The Python blocks of one page as one program."""
        parts: List[str] = []
        for at, block in enumerate(blocks):
            if block.needs and run([sys.executable, "-c", f"import {block.needs}"], self.folder, {}):
                self.left_out += [f"{left.place()}: {block.needs} is not installed; only parsed" for left in blocks[at:]]
                try:
                    compile("\n".join(text for left in blocks[at:] for text in (*left.setup, left.code)), block.place(), "exec")
                except SyntaxError as error:
                    return str(error)
                break
            parts += [f"# {block.place()}", *block.setup, block.code]
        program = self.folder / f"{name}.py"
        program.write_text("\n".join(parts))
        library = {"POOLGRAD_LIBRARY": str(self.build / "libpoolgrad.so"), "PYTHONPATH": str(ROOT / "bindings" / "python"),
                   "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "agg"}  # fmt: skip
        return run([sys.executable, "-W", "ignore", str(program)], self.folder, library)


def main() -> int:
    arguments = argparse.ArgumentParser(description="Runs the code blocks of the documentation.")
    arguments.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="a build with the command line")
    arguments.add_argument("--language", default=",".join(LANGUAGES))
    arguments.add_argument("files", nargs="*", type=Path)
    options = arguments.parse_args()
    wanted = options.language.split(",")
    build = options.build.resolve()

    hidden = {"build", "dist", "node_modules"}
    everything = sorted(file for file in ROOT.rglob("*.md")
                        if not any(part in hidden or part.startswith(".") and part != ".github"
                                   for part in file.relative_to(ROOT).parts))  # fmt: skip
    files = [file.resolve() for file in options.files] or everything
    found = [block for file in files for block in blocks_of(file)]
    wrong = [f"{b.place()}: a block in '{b.language}'; the languages are {', '.join(LANGUAGES)} and, for what is no code, "
             f"{', '.join(NO_CODE)}" for b in found if b.language not in LANGUAGES + NO_CODE]  # fmt: skip
    running = [b for b in found if b.language in wanted and b.language in LANGUAGES]

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runner = Runner(build, folder)
        if any(b.language == "js" for b in running):
            modules = folder / "node_modules"
            modules.mkdir()
            installed = ROOT / "bindings" / "js" / "node_modules"
            for module in installed.iterdir() if installed.is_dir() else ():
                (modules / module.name).symlink_to(module)
            (modules / "poolgrad").symlink_to(ROOT / "bindings" / "js")
        jobs, scripts = [], []
        for file in files:
            name = re.sub(r"\W", "_", str(file.relative_to(ROOT)))
            of_file = [b for b in running if b.file == file]
            jobs += [(block.place(), runner.compiled, (block,)) for block in of_file if block.language in ("c", "cpp")]
            jobs += [(block.place(), runner.project, (block,)) for block in of_file if block.language == "cmake"]
            jobs += [(block.place(), runner.module, (block,)) for block in of_file if block.language == "js"]
            program = [b for b in of_file if b.language == "python"]
            if program:
                jobs.append((f"{program[0].place()} and on", runner.page, (program, name)))
            script = [b for b in of_file if b.language == "sh"]
            if script:
                scripts.append((script[0].place(), runner.script, (script, name)))
        # Scripts build things in the project's folder: they take their turns, beside all the others.
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            others = pool.map(lambda job: job[1](*job[2]), jobs)
            problems = [job[1](*job[2]) for job in scripts] + list(others)
        wrong += [f"{place}: {problem}" for (place, _, _), problem in zip(scripts + jobs, problems) if problem]
    for line in wrong:
        print(line)
    for line in runner.left_out:
        print(f"left out: {line}")
    print(f"{len(running) - len(runner.left_out)} blocks run ({', '.join(wanted)}), {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    if not shutil.which("cc"):
        sys.exit("tests/docs/blocks.py needs a C compiler")
    sys.exit(main())
