"""Looks into a wheel: packaging/check_wheel.py FILE...

What is said of it must be so: every file has the size and digest of RECORD, name and metadata agree, licence and README are
inside, the manylinux tag is one whose glibc has every version that the libraries ask for, and they ask for no library that a
bare Linux lacks.
"""

import base64
import csv
import email
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def check(path: Path) -> str:
    archive = zipfile.ZipFile(path)
    names = archive.namelist()
    name, version, _, _, platform = path.stem.split("-")
    info = f"{name}-{version}.dist-info"

    record = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode()))}
    assert set(record) == set(names), f"RECORD and the archive differ in {set(record) ^ set(names)}"
    for file, (digest, size) in record.items():
        if file == f"{info}/RECORD":
            continue
        content = archive.read(file)
        found = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (found, len(content)) == (digest, int(size)), f"{file} is not what RECORD says"

    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert (metadata["Name"], metadata["Version"]) == (name, version), metadata.items()
    assert metadata["License"] == "MIT" and f"{info}/LICENSE" in names, "the licence is missing"
    assert metadata["Description-Content-Type"] == "text/markdown" and len(metadata.get_payload()) > 1000, "the README is missing"
    assert metadata["Requires-Python"] == ">=3.9" and "numpy>=1.22" in metadata.get_all("Requires-Dist")
    assert f"Tag: {'-'.join(path.stem.split('-')[2:])}\n" in archive.read(f"{info}/WHEEL").decode(), "WHEEL names another tag"

    libraries = [file for file in names if ".so" in file]
    glibc = 0
    with tempfile.TemporaryDirectory() as folder:
        for file in libraries:
            text = subprocess.check_output(["objdump", "-p", archive.extract(file, folder)], text=True)
            glibc = max([glibc, *map(int, re.findall(r"\bGLIBC_2\.(\d+)", text))])
            for needed in re.findall(r"NEEDED +(\S+)", text):
                beside = f"{name}/{needed}" in names
                assert beside or re.match(r"lib(c|m|pthread|dl|rt|stdc\+\+|gcc_s)\.so|ld-linux", needed), f"{file} needs {needed}"
    if libraries:
        assert any("highway" in file for file in names), "Highway's code travels along without its licence"
        said = re.match(r"manylinux_2_(\d+)_", platform)
        assert said and int(said.group(1)) >= glibc, f"the libraries need glibc 2.{glibc}; the tag says {platform}"
    size = sum(entry.file_size for entry in archive.infolist())
    return f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB unpacked, needs glibc 2.{glibc}"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(check(Path(argument)))
