#!/usr/bin/env python3
"""The C ABI as a table, compared with the one kept in tests/abi/abi.txt:

    tests/abi/table.py LIBRARY            compares; prints what differs; the exit status is 0 when nothing does
    tests/abi/table.py LIBRARY --update   writes the table anew

The table has every exported symbol of the shared library, every function's declaration, every enum value, and size and offset
of every field of every struct (x86-64 and aarch64 Linux agree on all of it). Declarations are read from the header; sizes,
offsets and values come from the compiler. Adding lines is compatible. A line that changes or goes breaks programs that were
built before: after 1.0.0 is released that takes a new major version.
"""

import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEADER = ROOT / "include" / "poolgrad" / "poolgrad.h"
KEPT = HERE / "abi.txt"


def exported(library: str) -> List[str]:
    text = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True)
    names = sorted(line.split()[-1] for line in text.splitlines() if line.split()[1] != "A")  # A: the version's own name
    strangers = [name for name in names if not re.match(r"poolgrad_\w+@@POOLGRAD_1$", name)]
    if strangers:
        sys.exit(f"{library} exports more than the C ABI: {', '.join(strangers[:5])}")
    return [f"symbol {name}" for name in names]


def declared() -> List[str]:
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text)
    lines = [f"function {found.strip()}" for found in re.findall(r"POOLGRAD_API ([^;{]+\));", text)]

    prints = []
    for body, name in re.findall(r"typedef enum \w+ \{([^}]*)\} (\w+);", text):
        for value in re.findall(r"\b(POOLGRAD_\w+)", body):
            prints.append(f'printf("enum {name} {value} = %d\\n", (int){value});')
    for tag, body, name in re.findall(r"typedef struct (\w+) \{(.*?)\} (\w+);", text):
        prints.append(f'printf("struct {name} size %zu align %zu\\n", sizeof({name}), _Alignof({name}));')
        for field in body.split(";"):
            found = re.search(r"\(\*(\w+)\)|(\w+)(?:\[\d+\])?\s*$", field.strip())
            if found and field.strip():
                member = found.group(1) or found.group(2)
                prints.append(f'printf("struct {name} {member} at %zu, %zu bytes\\n", offsetof({name}, {member}), '
                              f"sizeof((({name}*)0)->{member}));")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "abi.c"
        main = "\n".join(["int main(void) {", *prints, "return 0;", "}", ""])
        source.write_text('#include "poolgrad/poolgrad.h"\n#include <stdio.h>\n' + main)
        subprocess.check_call(["cc", "-std=c11", f"-I{ROOT / 'include'}", str(source), "-o", f"{folder}/abi"])
        lines += subprocess.check_output([f"{folder}/abi"], text=True).splitlines()
    return lines


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    now = [*exported(sys.argv[1]), *declared()]
    functions = {re.search(r"(\w+)\(", line).group(1) for line in now if line.startswith("function ")}  # type: ignore[union-attr]
    symbols = {line.split()[1].split("@")[0] for line in now if line.startswith("symbol ")}
    if functions != symbols:
        sys.exit(f"the header declares and the library exports different functions: {', '.join(sorted(functions ^ symbols))}")
    if "--update" in sys.argv[2:]:
        KEPT.write_text("\n".join(now) + "\n")
        return 0
    kept = KEPT.read_text().splitlines()
    if now == kept:
        print(f"the ABI is as tests/abi/abi.txt says: {len(now)} lines")
        return 0
    for line in difflib.unified_diff(kept, now, "tests/abi/abi.txt", "this build", lineterm="", n=0):
        print(line)
    gone = [line for line in kept if line not in now]
    print("Lines went or changed: programs built before will not work." if gone else "Lines were added, which is compatible.")
    print(f"If that is meant: tests/abi/table.py {sys.argv[1]} --update")
    return 1


if __name__ == "__main__":
    sys.exit(main())
