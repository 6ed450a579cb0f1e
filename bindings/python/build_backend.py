"""The build behind `pip install .`: CMake makes libpoolgrad.so, and this file packs it with the package into one wheel.

A PEP 517 backend of the standard library alone, so that pip needs no network even in its isolated build environment. The wheel
is tagged py3-none-<platform>: the package reaches the library through ctypes, so one wheel serves every Python. Shared
libraries that libpoolgrad itself needs and a bare machine lacks travel beside it; its run path is its own folder.

POOLGRAD_CMAKE_ARGS holds further arguments for CMake, e.g. -DPOOLGRAD_CUDA=ON.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bindings" / "python" / "poolgrad"
NAME = "poolgrad"
_CARRIED = ("libhwy.so",)


def _project() -> Dict[str, str]:
    """The few fields of pyproject.toml that a wheel repeats (Python before 3.11 cannot read TOML)."""
    text = (ROOT / "pyproject.toml").read_text()
    fields = dict(re.findall(r'^(version|description|requires-python) = "(.*)"$', text, re.MULTILINE))
    fields["dependencies"] = re.search(r"^dependencies = \[(.*)\]$", text, re.MULTILINE).group(1)  # type: ignore[union-attr]
    fields["extras"] = text.split("[project.optional-dependencies]\n")[1].split("\n\n")[0]
    return fields


def _metadata() -> str:
    project = _project()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {need}" for need in re.findall(r'"([^"]+)"', project["dependencies"])]
    for extra, needs in re.findall(r"^(\w+) = \[(.*)\]$", project["extras"], re.MULTILINE):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need}; extra == '{extra}'" for need in re.findall(r'"([^"]+)"', needs)]
    return "\n".join(lines) + "\n"


def _tag() -> str:
    platform = re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())
    return f"py3-none-{platform}"


def _build_library() -> List[Path]:
    """libpoolgrad.so, and the shared libraries that go with it."""
    build = ROOT / "build" / "wheel"
    arguments = [
        "-DCMAKE_BUILD_TYPE=Release", "-DPOOLGRAD_TESTS=OFF", "-DPOOLGRAD_CLI=OFF",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN",
        *shlex.split(os.environ.get("POOLGRAD_CMAKE_ARGS", "")),
    ]  # fmt: skip
    if shutil.which("ninja"):
        arguments = ["-G", "Ninja", *arguments]
    if shutil.which("ccache"):
        arguments.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), *arguments], check=True)
    subprocess.run(["cmake", "--build", str(build), "--target", NAME, "--parallel"], check=True)
    library = build / "libpoolgrad.so"
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", subprocess.check_output(["readelf", "-d", str(library)], text=True))
    cache = (build / "CMakeCache.txt").read_text()
    folders = {Path(found).parent for found in re.findall(r"^\w+_LIBRARY:FILEPATH=(.+\.so)$", cache, re.MULTILINE)}
    carried = [folder / name for name in needed if name.startswith(_CARRIED) for folder in folders]
    return [library, *(path for path in carried if path.exists())]


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    version = _project()["version"]
    info = f"{NAME}-{version}.dist-info"
    files: Dict[str, bytes] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".cc", ".typed"):
            files[f"{NAME}/{path.relative_to(PACKAGE).as_posix()}"] = path.read_bytes()
    files[f"{NAME}/include/poolgrad/poolgrad.h"] = (ROOT / "include" / "poolgrad" / "poolgrad.h").read_bytes()
    for library in _build_library():
        files[f"{NAME}/{library.name}"] = library.resolve().read_bytes()
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: poolgrad\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    if (ROOT / "LICENSE").exists():
        files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()

    wheel = f"{NAME}-{version}-{_tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            archive.writestr(entry, content)
    return wheel


_SOURCES = ("CMakeLists.txt", "LICENSE", "pyproject.toml", "bindings/python", "cmake", "include", "src")


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    base = f"{NAME}-{_project()['version']}"

    def kept(entry: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        return None if entry.name.endswith(("__pycache__", ".so")) else entry

    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz") as archive:
        for name in _SOURCES:
            if (ROOT / name).exists():
                archive.add(ROOT / name, f"{base}/{name}", filter=kept)
        info = Path(sdist_directory) / "PKG-INFO"
        info.write_text(_metadata())
        archive.add(info, f"{base}/PKG-INFO")
        info.unlink()
    return f"{base}.tar.gz"
