#!/usr/bin/env python3
"""The Python backend without its compiler: metadata, licence and README of wheel and sdist, the manylinux tag of a built library,
and one version everywhere. tests/packaging/backend_test.py LIBRARY. The packages themselves are tried by packaging/test.sh."""

import email
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings" / "python"), str(ROOT / "packaging")]
sys.dont_write_bytecode = True
import build_backend  # noqa: E402
import check_wheel  # noqa: E402


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def versions() -> dict:
    """Where the version is written, and what is written there."""
    found = {
        "CMakeLists.txt": r"^project\(poolgrad VERSION ([\d.]+)",
        "pyproject.toml": r'^version = "([\d.]+)"',
        "include/poolgrad/poolgrad.h": r'POOLGRAD_VERSION_TEXT "([\d.]+)"',
        "bindings/python/poolgrad/__init__.py": r'^__version__ = "([\d.]+)"',
        "debian/changelog": r"^poolgrad \(([\d.]+)\)",
        "CITATION.cff": r"^version: ([\d.]+)",
        "docs/conf.py": r'^release = version = "([\d.]+)"',
        "CHANGELOG.md": r"^## ([\d.]+)",
        "debian/poolgrad.1": r'"poolgrad ([\d.]+)"',
    }
    result = {name: re.search(pattern, read(name), re.MULTILINE).group(1) for name, pattern in found.items()}
    result["bindings/js/package.json"] = json.loads(read("bindings/js/package.json"))["version"]
    header = read("include/poolgrad/poolgrad.h")
    numbers = [re.search(rf"POOLGRAD_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH")]
    result["poolgrad.h, the three numbers"] = ".".join(numbers)
    return result


def test_one_version() -> None:
    assert len(set(versions().values())) == 1, versions()


def test_habits() -> None:
    """The automation's file and the pages name targets that there are, all of its steps are shell, and the citation has what its format asks for."""
    workflow = read(".github/workflows/ci.yml")
    named = {target for line in re.findall(r"- run: make\b(.*)", workflow) for target in line.split()}
    targets = set(re.findall(r"^([a-z-]+):(?!=)", read("Makefile"), re.MULTILINE))
    assert {"package", "test-package", "test-site"} <= named <= targets, named
    assert "- run: .ci/run" in workflow and {"make lint", "make test"} <= set(read(".ci/run").splitlines()), "nothing lints and tests"
    assert "ubuntu-24.04-arm" in workflow, "the automation does not run on Arm"
    steps = re.findall(r"- run: (.+)", workflow)
    subprocess.run(["bash", "-n"], input="\n".join(steps), text=True, check=True)
    for page in ("README.md", "CONTRIBUTING.md", "HACKING.md", "CHANGELOG.md", "docs/benchmarks.md", "explorer/README.md", "bindings/js/README.md"):
        said = {target for words in re.findall(r"`make ([a-z -]+)`", read(page)) for target in words.split() if not target.startswith("-")}
        assert said <= targets, f"{page} names {said - targets}, which the Makefile does not have"
    citation = re.findall(r"^([a-z-]+):", read("CITATION.cff"), re.MULTILINE)
    assert {"cff-version", "message", "title", "authors", "version", "date-released", "license"} <= set(citation), citation


def test_wheel_and_sdist(folder: Path) -> None:
    wheel = folder / build_backend.build_wheel(str(folder), {"library": "none"})
    assert wheel.name.endswith("-py3-none-any.whl"), wheel.name
    check_wheel.check(wheel)
    again = folder / "again"
    again.mkdir()
    same = again / build_backend.build_wheel(str(again), {"library": "none"})
    assert same.read_bytes() == wheel.read_bytes(), "the same sources give another wheel"

    sdist = tarfile.open(folder / build_backend.build_sdist(str(folder)))
    names = sdist.getnames()
    base = names[0].split("/")[0]
    for name in ("PKG-INFO", "LICENSE", "README.md", "pyproject.toml", "CMakeLists.txt", "cmake/exports.map",
                 "include/poolgrad/poolgrad.h", "bindings/python/README.md", "bindings/python/build_backend.py",
                 "packaging/licenses/highway-apache-2.0.txt"):  # fmt: skip
        assert f"{base}/{name}" in names, f"the sdist lacks {name}"
    assert not [name for name in names if "__pycache__" in name or name.endswith(".so")]
    info = email.message_from_bytes(sdist.extractfile(f"{base}/PKG-INFO").read())
    assert info["Name"] == "poolgrad" and info["Version"] == versions()["pyproject.toml"]
    assert info.get_payload().lstrip().startswith("# poolgrad for Python"), "PKG-INFO lacks the README"


def test_tag(library: Path) -> None:
    """The tag names the newest glibc version among the library's needs, found here by another tool."""
    libraries = [library]
    for line in subprocess.check_output(["ldd", str(library)], text=True).splitlines():
        if "libhwy" in line:
            libraries.append(Path(line.split()[2]))
    tag = build_backend._tag(libraries)
    text = "".join(subprocess.check_output(["objdump", "-T", str(path)], text=True) for path in libraries)
    newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", text))
    said = int(re.match(r"py3-none-manylinux_2_(\d+)_\w+$", tag).group(1))
    assert said >= max(newest, 17), f"{tag}, but the library asks for glibc 2.{newest}"
    try:
        build_backend._tag([Path("/bin/bash")])  # needs a terminal library, which not every Linux has
    except RuntimeError as error:
        assert "bash needs libtinfo" in str(error), error
    else:
        raise AssertionError("a library that needs another was tagged as one that does not")


def test_setup_speaks_first(folder: Path) -> None:
    """What tools/setup will install is said before it is installed, and nothing is where one may not."""
    if not shutil.which("dpkg-query"):
        return  # elsewhere it installs nothing
    tools, told = folder / "tools", folder / "told"
    (tools / "packages").mkdir(parents=True)
    (tools / "packages" / "part.txt").write_text("no-such-package  # to be missing\n")
    setup = tools / "setup"
    setup.write_text(read("tools/setup"))
    commands = folder / "bin"
    commands.mkdir()
    # apt-get keeps what had been said when it was called; sudo asks for a password.
    for name, text in {"apt-get": f'cat "{told}" > "{told}.then"; echo "$@" >> "{told}.installed"', "sudo": "exit 1"}.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    for user, status in (("0", 0), ("1000", 1)):
        (commands / "id").write_text(f"#!/bin/sh\necho {user}\n")
        (commands / "id").chmod(0o755)
        for left in folder.glob("told*"):
            left.unlink()
        with told.open("w") as said:
            run = subprocess.run(["bash", str(setup), "part"], stderr=said, env={"PATH": f"{commands}:/usr/bin:/bin"})
        assert run.returncode == status, told.read_text()
        assert "missing: no-such-package" in told.read_text()
        installed = Path(f"{told}.installed")
        if user == "0":
            assert "no-such-package" in installed.read_text() and "no-such-package" in Path(f"{told}.then").read_text()
        else:
            assert not installed.exists() and "apt-get install no-such-package" in told.read_text()


if __name__ == "__main__":
    test_one_version()
    test_habits()
    with tempfile.TemporaryDirectory() as temporary:
        test_wheel_and_sdist(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary:
        test_setup_speaks_first(Path(temporary))
    test_tag(Path(sys.argv[1]))
    print("metadata, licence, README, tag and version are right")
