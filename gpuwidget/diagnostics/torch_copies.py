"""The copies of torch in the folders of ``sys.path``, and what put each folder there.

Everything is read from files. Nothing is imported, because a copy may be broken or belong to another user.
"""

from __future__ import annotations

import ast
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal, NamedTuple

from gpuwidget.diagnostics.probe_process import without_working_directory

PathSource = Literal["environment", "working-directory", "pythonpath", "user-site", "pth-file", "code"]
"""What put a folder into ``sys.path``: ``environment`` is the interpreter's own site-packages, ``user-site``
the folder of ``pip install --user``, and ``code`` a statement such as ``sys.path.insert``."""


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """The files that ``import torch`` would find, and the content of torch's version file."""

    origin: str | None
    """The file that ``import torch`` would run; None if torch is a folder without such a file."""
    folders: tuple[str, ...]
    version: str | None
    cuda: str | None
    real: str | None = None
    """``origin`` with symbolic links resolved."""
    in_working_directory: bool = False
    """Whether torch is found only in the working directory. If so, the doctor does not import it."""


@dataclass(frozen=True, slots=True)
class TorchCopy:
    """One copy of torch that ``import torch`` could find."""

    version: str | None
    """The version in the copy's version file, or else in its metadata."""
    folder: str
    """The folder in ``sys.path``."""
    cuda: str | None = None
    """The CUDA version in the copy's version file; None for a build without CUDA."""
    source: PathSource = "environment"
    set_in: str | None = None
    """The .pth file that contains the folder, or the folder as PYTHONPATH spells it."""
    metadata: tuple[str, ...] = ()
    """The versions in the metadata of torch in this folder. Several versions overwrote each other's files."""
    by: str | None = None
    """The tool that installed the copy; None without metadata."""
    name: str = "torch"
    """The name of the copy's file or folder in ``folder``."""
    package: bool = True
    """Whether the copy is a folder with an ``__init__`` file. Otherwise, it is a file such as torch.py, or a
    folder without such a file."""

    @property
    def path(self) -> str:
        """The path of the copy's file or folder."""
        return os.path.join(self.folder, self.name)


class TorchMetadata(NamedTuple):
    """The metadata of one installed torch."""

    folder: str
    version: str
    by: str


def find_torch(path: Sequence[str]) -> TorchFiles | None:
    """Return the files of the torch that would be imported; None if there is none."""
    # importlib.util.find_spec is avoided: it calls import hooks, which may only run in a probe process.
    spec = PathFinder.find_spec("torch", list(path))
    if spec is None:
        return None
    folders = tuple(spec.submodule_search_locations or ())
    version = cuda = None
    for folder in folders:
        version, cuda = _read_version_file(Path(folder) / "version.py")
    real = None if spec.origin is None else os.path.realpath(spec.origin)
    return TorchFiles(spec.origin, folders, version, cuda, real, in_working_directory("torch", path))


def find_copies(
    path: Sequence[str], python: str, variables: Mapping[str, str], metadata: Sequence[TorchMetadata]
) -> tuple[TorchCopy, ...]:
    """Return all copies in the order of ``path``, of which the first one is imported.

    Folders without an ``__init__`` file are copies only if there are no others, because Python prefers a
    package in any later folder.
    """
    found: dict[str, TorchCopy] = {}
    without_init: dict[str, TorchCopy] = {}
    for folder in path:
        real = os.path.realpath(folder)
        # In many environments, lib64 is a link to lib, and both folders are in ``path``.
        spec = None if real in found or real in without_init else PathFinder.find_spec("torch", [folder])
        if spec is None:
            continue
        folders = tuple(spec.submodule_search_locations or ())
        version, cuda = _read_version_file(Path(folders[0]) / "version.py") if folders else (None, None)
        own = [known for known in metadata if os.path.realpath(known.folder) == real]
        source, set_in = _source_of(folder, python, variables)
        (without_init if spec.origin is None else found)[real] = TorchCopy(
            version or (own[0].version if own else None),
            os.path.abspath(folder),
            cuda,
            source,
            set_in,
            tuple(dict.fromkeys(known.version for known in own)),
            own[0].by if own else None,
            "torch" if folders else os.path.basename(str(spec.origin)),
            bool(folders) and spec.origin is not None,
        )
    return tuple((found or without_init).values())


def library_folders(torch: TorchFiles | None) -> tuple[str, ...]:
    """Return the folders with the libraries that come with this torch: its own and those of NVIDIA's
    packages."""
    if torch is None or torch.real is None:
        return ()
    package = Path(torch.real).parent
    return tuple(map(str, [package / "lib", *sorted(package.parent.glob("nvidia/*/lib"))]))


def in_working_directory(module: str, path: Sequence[str]) -> bool:
    """Return whether the module would be imported from the working directory."""
    elsewhere = without_working_directory(path)
    if len(elsewhere) == len(path):
        return False
    specs = [PathFinder.find_spec(module, list(folders)) for folders in (path, elsewhere)]
    files = [
        None if spec is None else (spec.origin, tuple(spec.submodule_search_locations or ()))
        for spec in specs
    ]
    return files[0] is not None and files[0] != files[1]


def environment_prefix(python: str) -> str:
    """Return the folder of the environment of this interpreter."""
    if not python or os.path.abspath(python) == os.path.abspath(sys.executable):
        return sys.prefix
    folder = os.path.dirname(os.path.abspath(python))
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder


def _source_of(folder: str, python: str, variables: Mapping[str, str]) -> tuple[PathSource, str | None]:
    """Return what put the folder into ``sys.path``, and the .pth file or the entry of PYTHONPATH."""
    real = os.path.realpath(folder)
    own = _site_folders(environment_prefix(python))
    if real in map(os.path.realpath, own):
        return "environment", None
    if not folder or _is_working_directory(real):
        return "working-directory", None
    for entry in filter(None, variables.get("PYTHONPATH", "").split(os.pathsep)):
        if os.path.realpath(entry) == real:
            return "pythonpath", entry
    user = _user_site(variables)
    if user is not None and os.path.realpath(user) == real:
        return "user-site", None
    for file, entry in _pth_entries([*own, *([user] if user is not None else [])]):
        if os.path.realpath(entry) == real:
            return "pth-file", file
    return "code", None


def _is_working_directory(real: str) -> bool:
    try:
        return real == os.path.realpath(os.getcwd())
    except OSError:  # the working directory was deleted
        return False


def _site_folders(prefix: str) -> list[str]:
    """Return the environment's folders for packages, including those of its base environment if it uses
    them."""
    if prefix == sys.prefix:
        return site.getsitepackages()
    libraries = [*Path(prefix).glob("lib*/python3*"), Path(prefix) / "Lib"]
    return [str(library / name) for library in libraries for name in ("site-packages", "dist-packages")]


def _user_site(variables: Mapping[str, str]) -> str | None:
    base = variables.get("PYTHONUSERBASE") or site.getuserbase()
    scheme = sysconfig.get_preferred_scheme("user")
    return sysconfig.get_path("purelib", scheme, {"userbase": base}) if base else None


def _pth_entries(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the .pth files in these folders, each with the folders that it adds to ``sys.path``."""
    for folder in folders:
        for file in sorted(Path(folder).glob("*.pth")):
            try:
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            for line in map(str.strip, lines):
                if line and not line.startswith(("#", "import ", "import\t")):
                    yield str(file), os.path.join(folder, line)


def _read_version_file(path: Path) -> tuple[str | None, str | None]:
    """Return torch's version and CUDA version from the version file that torch's build wrote."""
    known: dict[str, str] = {}
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None, None
    for statement in tree.body:
        targets: Iterable[ast.expr] = ()
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = (statement.target,)
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            known |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return known.get("__version__"), known.get("cuda")
