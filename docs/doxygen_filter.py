"""Doxygen's input filter: the headers carry plain comments, and this turns those of declarations into the kind Doxygen reads.

A comment on lines of its own belongs to what follows, one behind a declaration to what it stands behind. Comments deeper than the
members of a class are a function's own business and stay as they are, and so does the one that opens the file. An enum or struct
and its typedef have the same name, and so have a function and the macro that calls it with a struct's size; the site wants it once.
"""

import re
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text(encoding="utf-8")
text = re.sub(r"typedef (enum|struct) (\w+) \{(.*?)\} \2;", r"\1 \2 {\3};", text, flags=re.DOTALL)
inside = False
for line in text.splitlines(True):
    inside = inside or line.startswith("#")
    if re.match(r"#define (POOLGRAD_API\b|poolgrad_\w+\()", line):
        line = "\n"
    depth = len(line) - len(line.lstrip(" "))
    if inside and depth <= 2:
        line = re.sub(r"^( *)/\*(?![*<])", r"\1/**", line)
        line = re.sub(r"^( *)//(?!/)", r"\1///", line)
        line = re.sub(r"(\S.*?\S) +/\*(?![*<])", r"\1 /**<", line)
        line = re.sub(r"^((?:(?!//).)*[;,{}]) +//(?!/)", r"\1 ///<", line)
    sys.stdout.write(line)
