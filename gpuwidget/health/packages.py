"""The installed packages that decide about torch and CUDA, read from their metadata; nothing is imported."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path

OURS = "jupyterlab-gpuwidget"
OTHERS = "gpuwidget"
"""Somebody else's older package on PyPI, with our import name."""
_CUDA_PACKAGES = re.compile(
    r"(nvidia-.*|cuda-toolkit|torch|torchvision|torchaudio|triton|pytorch|cudatoolkit|cudnn|nccl|cuda-cudart|"
    r"libcudnn|pytorch-triton)(-cu\d+)?",
)
_BINDING = ("nvidia-ml-py", "pynvml")


@dataclass(frozen=True, slots=True)
class Installed:
    """One package."""

    name: str
    version: str
    by: str
    """``pip``, ``conda``, ``uv``…: who installed it."""


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """Where ``import torch`` would look, and what stands in its version file."""

    origin: str | None
    """The file that would be run; None where there is only a folder of that name."""
    folders: tuple[str, ...]
    version: str | None
    cuda: str | None
    real: str | None = None
    """``origin`` without symbolic links."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One torch on the path."""

    version: str
    folder: str

    def __str__(self) -> str:
        return f"{self.version} in {self.folder}"


@dataclass(frozen=True, slots=True)
class Packages:
    """All that metadata says."""

    torch: TorchFiles | None
    """None where there is no torch on the path."""
    torch_copies: tuple[Copy, ...]
    """Every torch on the path; the first one is imported."""
    cuda: tuple[Installed, ...]
    """torch and NVIDIA's libraries."""
    binding: tuple[Installed, ...]
    """What brings the module pynvml."""
    conda: bool
    """Whether this is a conda environment."""
    ours: str | None
    """Version of our own package; None where it was not installed as one."""
    other: str | None
    """Version of the older package with our import name, where that is installed too."""
    changed: tuple[str, ...]
    """Files of ours that are not what was installed."""
    hiding: tuple[str, ...] = ()
    """Files that are found in place of a module of Python's own."""


def look(path: Sequence[str]) -> Packages:
    """The packages on that path."""
    found: dict[str, Installed] = {}
    ours: metadata.Distribution | None = None
    copies: dict[tuple[str, str], Copy] = {}
    for one in metadata.distributions(path=list(path)):
        if _left_over(one):
            continue
        name = _normal(str(one.metadata["Name"] or ""))
        if name == OURS and ours is None:
            ours = one
        if name == "torch":
            folder = str(one.locate_file(""))
            if os.path.isfile(os.path.join(folder, "torch", "__init__.py")):
                # lib64 is a link to lib in many environments, and both are on the path.
                copies.setdefault((os.path.realpath(folder), one.version), Copy(one.version, folder))
        # The first on the path is the one that is imported.
        if name and name not in found:
            found[name] = Installed(name, one.version, (one.read_text("INSTALLER") or "pip").strip() or "pip")
    conda = _conda()
    relevant = [one for name, one in found.items() if _CUDA_PACKAGES.fullmatch(name) and name not in _BINDING]
    return Packages(
        torch=_torch(path),
        torch_copies=tuple(copies.values()),
        cuda=tuple(sorted({*relevant, *conda}, key=lambda one: (one.name, one.by))),
        binding=tuple(found[name] for name in _BINDING if name in found),
        conda=(Path(sys.prefix) / "conda-meta").is_dir(),
        ours=found[OURS].version if OURS in found else None,
        other=found[OTHERS].version if OTHERS in found else None,
        changed=tuple(_changed(ours) if ours is not None else ()),
        hiding=tuple(_hiding(path)),
    )


def _left_over(one: metadata.Distribution) -> bool:
    """Whether pip renamed it, as ``~orch``, to take it away, and then could not."""
    path = getattr(one, "_path", None)
    return path is not None and str(getattr(path, "name", "")).startswith("~")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _conda() -> list[Installed]:
    """conda's own packages, which have no metadata of Python's."""
    found = []
    for path in sorted((Path(sys.prefix) / "conda-meta").glob("*.json")):
        name, version, _ = (*path.stem.rsplit("-", 2), "", "")[:3]
        if _CUDA_PACKAGES.fullmatch(name):
            found.append(Installed(name, version, "conda"))
    return found


def _torch(path: Sequence[str]) -> TorchFiles | None:
    # Not importlib.util.find_spec, which asks hooks too: whatever they do belongs into a child.
    spec = PathFinder.find_spec("torch", list(path))
    if spec is None:
        return None
    folders = tuple(spec.submodule_search_locations or ())
    version = cuda = None
    for folder in folders:
        version, cuda = _version_file(Path(folder) / "version.py")
    real = None if spec.origin is None else os.path.realpath(spec.origin)
    return TorchFiles(spec.origin, folders, version, cuda, real)


def _version_file(path: Path) -> tuple[str | None, str | None]:
    """torch's version and CUDA as its build wrote them down."""
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


def _hiding(path: Sequence[str]) -> Iterator[str]:
    """What lies on the path before Python's own modules and has the name of one."""
    own = os.path.realpath(os.path.dirname(os.__file__))
    places = [os.path.realpath(folder) for folder in path]
    for folder in path[: places.index(own)] if own in places else ():
        for name in sorted(_entries(folder)):
            stem, suffix = os.path.splitext(name)
            file = os.path.join(folder, name)
            if suffix == "":
                file = os.path.join(file, "__init__.py")
            if suffix not in ("", ".py") or stem not in sys.stdlib_module_names or not os.path.isfile(file):
                continue
            # These two are asked before any path.
            if BuiltinImporter.find_spec(stem) is None and FrozenImporter.find_spec(stem) is None:
                yield os.path.abspath(os.path.join(folder, name))


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _changed(ours: metadata.Distribution) -> list[str]:
    """Files of our package whose content is not what was recorded when it was installed."""
    changed = []
    for file in ours.files or ():
        if file.parts[:1] != ("gpuwidget",) or file.suffix != ".py" or file.hash is None:
            continue
        try:
            digest = hashlib.new(file.hash.mode, Path(str(file.locate())).read_bytes()).digest()
        except (OSError, ValueError):
            changed.append(str(file))
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value.rstrip("="):
            changed.append(str(file))
    return changed


def torch_is_condas(packages: Packages) -> bool:
    """Whether torch came from conda."""
    return any(one.by == "conda" and one.name in ("torch", "pytorch") for one in packages.cuda)
