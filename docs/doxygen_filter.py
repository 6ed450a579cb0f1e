"""Doxygen's input filter: the headers carry plain comments, and this turns those of declarations into the kind Doxygen reads.

A comment on lines of its own belongs to what follows, one behind a declaration to what it stands behind. Comments deeper than the
members of a class are a function's own business and stay as they are.
"""

import re
import sys

for line in open(sys.argv[1], encoding="utf-8"):
    depth = len(line) - len(line.lstrip(" "))
    if depth <= 2:
        line = re.sub(r"^( *)/\*(?![*<])", r"\1/**", line)
        line = re.sub(r"^( *)//(?!/)", r"\1///", line)
        line = re.sub(r"(\S.*?\S) +/\*(?![*<])", r"\1 /**<", line)
        line = re.sub(r"^((?:(?!//).)*[;,{}]) +//(?!/)", r"\1 ///<", line)
    sys.stdout.write(line)
