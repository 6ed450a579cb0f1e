#!/bin/bash
# Builds the wheel as `pip install .` does, installs it into a fresh environment of Debian's Python, and runs the tests there.
# What could not be tested on this machine is printed at the end, with the reason. Further arguments go to pytest.
# POOLGRAD_CMAKE_ARGS=-DPOOLGRAD_OBJECTS=BUILD_FOLDER links what is compiled there, as `make test-python` does.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-/usr/bin/python3}
environment=$root/build/python-test
unset PYTHONPATH POOLGRAD_LIBRARY

"$python" -m venv --clear --system-site-packages "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$root"
cd "$environment"
"$environment/bin/python" -W ignore -m pytest -q -p no:cacheprovider "$@" "$root/bindings/python/tests"
