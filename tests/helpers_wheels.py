"""Tiny wheels that are named like torch and its libraries,
and an environment into which pip installs them."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

CUDNN_FILE = "nvidia/cudnn/lib/libcudnn.so.9"
NCCL_FILE = "nvidia/nccl/lib/libnccl.so.2"
SPARSE_FILE = "nvidia/cusparselt/lib/libcusparseLt.so.0"
BORROWED = ("packaging", "psutil", "pynvml.py")
"""The packages and modules that the doctor imports from its environment."""

TORCH = """
import os, sys
from types import SimpleNamespace as _Names
from torch import version
from torch.version import __version__
for _file in {files!r}:
    _path = os.path.join(os.path.dirname(os.path.dirname(__file__)), _file)
    if not os.path.exists(_path) or os.path.getsize(_path) < {size}:
        _name = os.path.basename(_file)
        raise ImportError(_name + ": cannot open shared object file: No such file or directory")
{imports}
_C = _Names(
    _nccl_version=lambda: (2, 27, 5),
    _cuda_getArchFlags=lambda: "sm_80 sm_90",
    _cudnn=_Names(getCompileVersion=lambda: (9, 10, 2)),
)
backends = _Names(cudnn=_Names(version=lambda: 91002, enabled=True))
distributed = _Names(is_available=lambda: True)
cuda = _Names(
    nccl=_Names(version=lambda: (2, 27, 5)), is_available=lambda: True, device_count=lambda: 1
)

def from_numpy(array):
    {from_numpy}
"""
LIBRARY_SIZE = 64


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, bytes], requires: Sequence[str] = ()
) -> Path:
    """Write a wheel that pip can install, and return its path."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    head = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    contents = {
        **files,
        f"{info}/METADATA": "\n".join([*head, *(f"Requires-Dist: {one}" for one in requires), ""]).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b'=').decode()},{len(text)}"
        for path, text in contents.items()
    ]
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    return wheel


def torch_wheel(
    folder: Path,
    version: str,
    cuda: str | None,
    requires: Sequence[str] = (),
    *,
    files: Sequence[str] = (CUDNN_FILE,),
    imports: str = "",
    from_numpy: str = "return list(array)",
) -> Path:
    """Write a wheel of a fake torch, and return its path.
    Importing this torch fails if one of ``files`` is missing or too small."""
    body = TORCH.format(files=list(files), imports=imports, from_numpy=from_numpy, size=LIBRARY_SIZE)
    texts = {
        "torch/__init__.py": body.encode(),
        "torch/version.py": f"__version__ = {version!r}\ncuda: str | None = {cuda!r}\n".encode(),
        "torch/_tensor.py": b"# as long as this\n",
    }
    return make_wheel(folder, "torch", version, texts, requires)


def content(of: str) -> bytes:
    """Return the content of a fake shared library.
    All packages' libraries have the same length, but different bytes."""
    return of.encode().ljust(LIBRARY_SIZE, b".")


def borrow_packages(folder: Path) -> Path:
    """Create a folder with links to the packages that the doctor imports, and return the folder."""
    folder.mkdir()
    for name in BORROWED:
        found = {Path(str(one.locate_file(name))) for one in metadata.distributions()}
        (folder / name).symlink_to(next(path for path in sorted(found) if path.exists()))
    return folder


def standard_library() -> list[str]:
    """Return the folders of the standard library in ``sys.path``."""
    folder = os.path.dirname(os.__file__)
    return [folder, os.path.join(folder, "lib-dynload")]


class Installation:
    """A virtual environment with pip, the wheels that pip can find,
    and the packages that the doctor needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.borrowed = borrow_packages(folder / "borrowed")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
        self.python = str(folder / "env/bin/python")
        (self.site,) = (folder / "env/lib").glob("python3*/site-packages")
        self._pips_own = {path.name for path in self.site.iterdir()}

    def clear(self) -> None:
        """Remove every package except pip from the environment, and every wheel that pip could find."""
        shutil.rmtree(self.wheels, ignore_errors=True)
        self.wheels.mkdir()
        for path in self.site.iterdir():
            if path.name not in self._pips_own:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    @property
    def path(self) -> list[str]:
        """Return the environment's ``sys.path``, followed by the folder with the packages that the doctor
        needs."""
        code = "import json, sys; print(json.dumps(sys.path[1:]))"
        shown = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout
        own: list[str] = json.loads(shown)
        return [*own, str(self.borrowed)]

    def pip(self, *words: str) -> None:
        """Run the environment's pip, which finds only the test's wheels."""
        self.shell(" ".join([self.python, "-m", "pip", *words]))

    def shell(self, command: str) -> None:
        """Run a shell command as a user would paste it. Raises CalledProcessError if the command fails."""
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CONFIG_FILE": os.devnull,
        }
        subprocess.run(
            ["/bin/sh", "-c", command], env=variables, check=True, capture_output=True, cwd=self.folder
        )

    def damaged(self) -> list[str]:
        """Return every file that a package's RECORD lists but that is missing or has another size."""
        found = []
        for record in sorted(self.site.glob("*.dist-info/RECORD")):
            with record.open(newline="") as lines:
                for file, _, size in csv.reader(lines):
                    path = self.site / file
                    if not path.exists() or (size and path.stat().st_size != int(size)):
                        found.append(f"{record.parent.name}: {file}")
        return found
