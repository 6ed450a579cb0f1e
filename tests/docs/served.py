#!/usr/bin/env python3
"""Starts a server, fetches the page whose address it prints, and stops it: tests/docs/served.py COMMAND...

For blocks of the documentation that would serve until they are interrupted. Fails where there is no page with a title.
"""

import os
import re
import signal
import subprocess
import sys
import urllib.request

server = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True, start_new_session=True)
try:
    address = next((found[0] for found in (re.search(r"http://\S+", line) for line in server.stdout) if found), None)
    if not address:
        sys.exit(f"{' '.join(sys.argv[1:])} ended with {server.wait()} and printed no address")
    title = re.search(r"<title>(.+?)</title>", urllib.request.urlopen(address).read().decode())
    if not title:
        sys.exit(f"the page at {address} has no title")
    print(f"{address}: {title[1]}")
finally:
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGTERM)
