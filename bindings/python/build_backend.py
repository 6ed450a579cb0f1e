"""The build behind `pip install .`: CMake makes libpoolgrad.so, and this file packs it with the package into one wheel.

A PEP 517 backend of our own, of the standard library alone, because Debian 12 has no scikit-build-core and its meson-python would
want a second description of the build beside CMake's. pip therefore needs no network, even in its isolated environment.

The package reaches the library through ctypes, so one wheel serves every Python: its tag is py3-none-<platform>, where the
platform is manylinux_X_Y by the newest glibc and libstdc++ versions that its libraries really ask for. Shared libraries that
libpoolgrad needs and a bare machine lacks travel beside it, with their licences; its run path is its own folder.

POOLGRAD_CMAKE_ARGS holds further arguments for CMake, e.g. -DPOOLGRAD_CUDA=ON, which also marks the version (1.0.0+cuda12). The
setting library=none leaves the library out, for a distribution that packs it by itself. `pip install -e .` leaves the package where it is.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

try:
    import tomllib
except ImportError:  # before Python 3.11; pyproject.toml asks for tomli there
    import tomli as tomllib  # type: ignore[no-redef]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bindings" / "python" / "poolgrad"
NAME = "poolgrad"
# What travels beside libpoolgrad where it is needed (a release does not), and what every Linux has (PEP 600). The kernels are
# Highway's templates, so its licence always goes along.
_CARRIED = ("libhwy.so",)
_LICENCE = ROOT / "packaging" / "licenses" / "highway-apache-2.0.txt"
_EVERYWHERE = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
# The glibc of the oldest distributions that have a libstdc++ this new.
_GLIBC_BY_GLIBCXX = {19: 17, 24: 27, 25: 28, 28: 31, 29: 34, 30: 35, 32: 38, 33: 39}


def _project() -> Dict[str, Any]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]


def _metadata(project: Dict[str, Any], version: str) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {need}" for need in project["dependencies"]),
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need}; extra == '{extra}'" for need in needs]
    lines += ["License-File: LICENSE", "Description-Content-Type: text/markdown"]
    return "\n".join(lines) + "\n\n" + (ROOT / project["readme"]).read_text(encoding="utf-8")


def _needed(library: Path) -> List[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", subprocess.check_output(["readelf", "-dW", str(library)], text=True))


def _build_library() -> Tuple[List[Path], str]:
    """libpoolgrad.so and the shared libraries that go with it; and what its version adds to the package's."""
    build = ROOT / "build" / "wheel"
    further = shlex.split(os.environ.get("POOLGRAD_CMAKE_ARGS", ""))
    if any(re.match(r"-DPOOLGRAD_CUDA(:BOOL)?=(ON|1|YES|TRUE)$", word, re.IGNORECASE) for word in further):
        build = ROOT / "build" / "wheel-cuda"
    arguments = [
        "-DCMAKE_BUILD_TYPE=Release", "-DPOOLGRAD_TESTS=OFF", "-DPOOLGRAD_CLI=OFF", "-DPOOLGRAD_CUDA_CHECKS=OFF",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN", "-DCMAKE_SHARED_LINKER_FLAGS=-s",
        *further,
    ]  # fmt: skip
    if shutil.which("ninja"):
        arguments = ["-G", "Ninja", *arguments]
    if shutil.which("ccache"):
        languages = ("CXX", "CUDA") if "wheel-cuda" in build.name else ("CXX",)
        arguments += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in languages]
    (build / "CMakeCache.txt").unlink(missing_ok=True)  # the objects are kept, the options of an earlier build are not
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), *arguments], check=True)
    subprocess.run(["cmake", "--build", str(build), "--target", NAME, "--parallel"], check=True)
    library = build / "libpoolgrad.so"
    cache = (build / "CMakeCache.txt").read_text()
    folders = {Path(found).parents[1] for found in re.findall(r"^hwy_DIR:PATH=(/.+)$", cache, re.MULTILINE)}  # of LIB/cmake/hwy
    carried = [folder / name for name in _needed(library) if name.startswith(_CARRIED) for folder in sorted(folders)]
    local = ""
    compiler = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    if compiler and "wheel-cuda" in build.name:
        release = subprocess.check_output([compiler.group(1), "--version"], text=True)
        local = "+cuda" + re.search(r"release (\d+)", release).group(1)  # type: ignore[union-attr]
    return [library, *(path for path in carried if path.exists())], local


def _tag(libraries: List[Path]) -> str:
    """The wheel's tag: any Python; any Linux with the glibc and libstdc++ that the libraries ask for."""
    machine = re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())
    if not machine.startswith("linux_"):
        return f"py3-none-{machine}"
    minor = 17  # the oldest that PEP 600's tools speak of
    names = {path.name for path in libraries}
    for library in libraries:
        strangers = [name for name in _needed(library) if name not in names | _EVERYWHERE and not name.startswith("ld-linux")]
        if strangers:
            raise RuntimeError(f"{library.name} needs {', '.join(strangers)}; a wheel may need only {sorted(_EVERYWHERE)}")
        versions = subprocess.check_output(["readelf", "-VW", str(library)], text=True)
        minor = max([minor, *(int(found) for found in re.findall(r"Name: GLIBC_2\.(\d+)", versions))])
        newest = max([0, *(int(found) for found in re.findall(r"Name: GLIBCXX_3\.4\.(\d+)", versions))])
        fitting = [glibc for glibcxx, glibc in _GLIBC_BY_GLIBCXX.items() if glibcxx >= newest]
        if not fitting:
            raise RuntimeError(f"{library.name} needs GLIBCXX_3.4.{newest}, which is newer than this file knows")
        minor = max(minor, min(fitting))
    return f"py3-none-manylinux_2_{minor}_{machine[len('linux_'):]}"


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _write_wheel(folder: str, version: str, tag: str, files: Dict[str, bytes], purelib: bool) -> str:
    """The wheel of these files, with what pip wants to know of it; its name."""
    info = f"{NAME}-{version}.dist-info"
    files[f"{info}/METADATA"] = _metadata(_project(), version).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: poolgrad\nRoot-Is-Purelib: {str(purelib).lower()}\nTag: {tag}\n".encode()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()

    wheel = f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(Path(folder) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes whenever it is built
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    version, tag, libraries = _project()["version"], "py3-none-any", []
    if (config_settings or {}).get("library") != "none":
        libraries, local = _build_library()
        version += local
        tag = _tag(libraries)
    files: Dict[str, bytes] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".pyi", ".cc", ".typed"):
            files[f"{NAME}/{path.relative_to(PACKAGE).as_posix()}"] = path.read_bytes()
    files[f"{NAME}/include/poolgrad/poolgrad.h"] = (ROOT / "include" / "poolgrad" / "poolgrad.h").read_bytes()
    for library in libraries:
        files[f"{NAME}/{library.name}"] = library.resolve().read_bytes()
        files[f"{NAME}-{version}.dist-info/{_LICENCE.name}"] = _LICENCE.read_bytes()
    return _write_wheel(wheel_directory, version, tag, files, purelib=not libraries)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """For `pip install -e .`: a wheel that only says where the package lies, and links to the libraries in the package's folder."""
    libraries, local = _build_library()
    for library in libraries:
        link = PACKAGE / library.name
        link.unlink(missing_ok=True)
        link.symlink_to(library)
    files = {f"{NAME}.pth": f"{PACKAGE.parent}\n".encode()}
    return _write_wheel(wheel_directory, _project()["version"] + local, "py3-none-any", files, purelib=True)


# What it takes to build the library and the package, and to read about them.
_SOURCES = ("CHANGELOG.md", "CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "bindings/python", "cmake", "include",
            "packaging/licenses", "src")  # fmt: skip


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    project = _project()
    base = f"{NAME}-{project['version']}"

    def kept(entry: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        if entry.name.endswith(("__pycache__", ".so", ".egg-info")):
            return None
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in _SOURCES:
            archive.add(ROOT / name, f"{base}/{name}", filter=kept)
        content = _metadata(project, project["version"]).encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return f"{base}.tar.gz"
