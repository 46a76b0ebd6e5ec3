"""The installed packages that decide about torch and CUDA, read from their metadata; nothing is imported."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from gpuwidget.diagnostics.probe_process import without_working_directory
from gpuwidget.model.installation import DISTRIBUTION

OUR_DISTRIBUTION = DISTRIBUTION
OTHER_DISTRIBUTION = "gpuwidget"
"""Somebody else's older package on PyPI, with our import name."""
_CUDA_PACKAGES = re.compile(
    r"(nvidia-.*|cuda-toolkit|torch|torchvision|torchaudio|triton|pytorch|cudatoolkit|cudnn|nccl|cuda-cudart|"
    r"libcudnn|pytorch-triton)(-cu\d+)?",
)
_NVML_BINDINGS = ("nvidia-ml-py", "pynvml")


@dataclass(frozen=True, slots=True)
class InstalledPackage:
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
    in_working_directory: bool = False
    """Whether it is found only since the path leads to the working directory: then it is not imported."""


@dataclass(frozen=True, slots=True)
class TorchCopy:
    """One torch on the path."""

    version: str
    folder: str

    def __str__(self) -> str:
        return f"{self.version} in {self.folder}"


@dataclass(frozen=True, slots=True)
class InstalledPackages:
    """All that metadata says."""

    torch: TorchFiles | None
    """None where there is no torch on the path."""
    torch_copies: tuple[TorchCopy, ...]
    """Every torch on the path; the first one is imported."""
    cuda: tuple[InstalledPackage, ...]
    """torch and NVIDIA's libraries."""
    binding: tuple[InstalledPackage, ...]
    """What brings the module pynvml."""
    conda: bool
    """Whether this is a conda environment."""
    isolated: bool
    """Whether this is a virtual environment: its pip uninstalls nothing outside of it."""
    ours: str | None
    """Version of our own package; None where it was not installed as one."""
    ours_by: str | None
    """Who installed it."""
    other: str | None
    """Version of the older package with our import name, where that is installed too."""
    changed: tuple[str, ...]
    """Files of ours that are not what was installed."""
    hiding: tuple[str, ...] = ()
    """Files that are found in place of a module of Python's own, or of a package that torch requires."""
    required: Mapping[str, str] = field(default_factory=dict)
    """What the installed torch requires, also by way of others: specifier by name, as ``==9.10.2``."""
    installed: Mapping[str, InstalledPackage] = field(default_factory=dict)
    """Of torch, numpy and what torch requires, those that are installed, by name."""
    required_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By pynvml and each library that is there for two versions of CUDA: who else than torch requires it."""


def inspect(path: Sequence[str]) -> InstalledPackages:
    """The packages on that path."""
    found: dict[str, InstalledPackage] = {}
    first: dict[str, metadata.Distribution] = {}
    copies: dict[tuple[str, str], TorchCopy] = {}
    torch = _find_torch(path)
    for name, one in _distributions(path):
        if name == "torch":
            folder = str(one.locate_file(""))
            if os.path.isfile(os.path.join(folder, "torch", "__init__.py")):
                # lib64 is a check to lib in many environments, and both are on the path.
                copies.setdefault((os.path.realpath(folder), one.version), TorchCopy(one.version, folder))
        # The first on the path is the one that is imported.
        if name not in found and (name != "torch" or _is_metadata_of(one, torch)):
            first[name] = one
        if name not in found:
            found[name] = InstalledPackage(name, one.version, installer(one))
    conda = _conda_packages()
    relevant = [
        one for name, one in found.items() if _CUDA_PACKAGES.fullmatch(name) and name not in _NVML_BINDINGS
    ]
    required = _required(first)
    return InstalledPackages(
        torch=torch,
        torch_copies=tuple(copies.values()),
        cuda=tuple(sorted({*relevant, *conda}, key=lambda one: (one.name, one.by))),
        binding=tuple(found[name] for name in _NVML_BINDINGS if name in found),
        conda=(Path(sys.prefix) / "conda-meta").is_dir(),
        isolated=sys.prefix != sys.base_prefix,
        ours=found[OUR_DISTRIBUTION].version if OUR_DISTRIBUTION in found else None,
        ours_by=found[OUR_DISTRIBUTION].by if OUR_DISTRIBUTION in found else None,
        other=found[OTHER_DISTRIBUTION].version if OTHER_DISTRIBUTION in found else None,
        changed=tuple(_changed_files(first[OUR_DISTRIBUTION]) if OUR_DISTRIBUTION in first else ()),
        hiding=(*_shadowing_stdlib(path), *_shadowing_required(path, required)),
        required=required,
        installed={name: found[name] for name in ("torch", "numpy", *required) if name in first},
        required_by=_required_by(first),
    )


def torch_distributions(path: Sequence[str]) -> dict[str, metadata.Distribution]:
    """Return torch, numpy, all that torch requires and NVIDIA's libraries, as far as they are installed."""
    first: dict[str, metadata.Distribution] = {}
    torch = _find_torch(path)
    for name, one in _distributions(path):
        if name != "torch" or _is_metadata_of(one, torch):
            first.setdefault(name, one)
    wanted = {"torch", "numpy", *_required(first)} if "torch" in first else set()
    return {
        name: one
        for name, one in first.items()
        if name in wanted or (name.startswith("nvidia-") and name not in _NVML_BINDINGS)
    }


def installer(one: metadata.Distribution) -> str:
    """Return who installed it, as it wrote down: ``pip``, ``conda``, ``uv``, ``debian``…"""
    return (one.read_text("INSTALLER") or "pip").strip() or "pip"


def normalize_name(name: str) -> str:
    """Return the package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_metadata_of(one: metadata.Distribution, torch: TorchFiles | None) -> bool:
    """Whether this is the metadata of the torch that would be imported, and not of another one."""
    folder = os.path.realpath(os.path.join(str(one.locate_file("")), "torch"))
    return torch is not None and folder in map(os.path.realpath, torch.folders)


def satisfies(version: str, specifier: str) -> bool:
    """Whether the version is one that the specifier, as ``>=1.2``, allows; True where that is not known."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _distributions(path: Sequence[str]) -> Iterator[tuple[str, metadata.Distribution]]:
    for one in metadata.distributions(path=list(path)):
        name = normalize_name(str(one.metadata["Name"] or ""))
        if name and not _is_pip_leftover(one):
            yield name, one


def _required(first: Mapping[str, metadata.Distribution]) -> dict[str, str]:
    """Return what torch requires and what that requires, with torch's own wish before the others'."""
    found: dict[str, str] = {}
    queue: list[tuple[str, frozenset[str]]] = [("torch", frozenset())]
    seen = set(queue)
    for name, extras in queue:
        one = first.get(name)
        for requirement in _requirements(one, extras) if one is not None else ():
            required = normalize_name(requirement.name)
            found[required] = found.get(required) or str(requirement.specifier)
            step = (required, frozenset(requirement.extras))
            if step not in seen:
                seen.add(step)
                queue.append(step)
    return found


def _requirements(one: metadata.Distribution, extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """Those that hold on this system, with these extras."""
    for text in one.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _required_by(first: Mapping[str, metadata.Distribution]) -> dict[str, tuple[str, ...]]:
    """Return who else than torch requires pynvml, and libraries that are there for two versions of CUDA."""
    stems: dict[str, list[str]] = {}
    for name in first:
        if name.startswith("nvidia-"):
            stems.setdefault(re.sub(r"-cu\d+$", "", name), []).append(name)
    doubled = {name for names in stems.values() if len(names) > 1 for name in names} | (
        {"pynvml"} & set(first)
    )
    found: dict[str, tuple[str, ...]] = {}
    for dependent, one in first.items() if doubled else ():
        if dependent != "torch":
            for requirement in _requirements(one):
                name = normalize_name(requirement.name)
                if name in doubled:
                    found[name] = (*found.get(name, ()), dependent)
    return found


def _is_pip_leftover(one: metadata.Distribution) -> bool:
    """Whether pip renamed it, as ``~orch``, to take it away, and then could not."""
    path = getattr(one, "_path", None)
    return path is not None and str(getattr(path, "name", "")).startswith("~")


def _conda_packages() -> list[InstalledPackage]:
    """conda's own packages, which have no metadata of Python's."""
    found = []
    for path in sorted((Path(sys.prefix) / "conda-meta").glob("*.json")):
        name, version, _ = (*path.stem.rsplit("-", 2), "", "")[:3]
        if _CUDA_PACKAGES.fullmatch(name):
            found.append(InstalledPackage(name, version, "conda"))
    return found


def _find_torch(path: Sequence[str]) -> TorchFiles | None:
    # Not importlib.util.find_spec, which asks hooks too: whatever they do belongs into a child.
    spec = PathFinder.find_spec("torch", list(path))
    if spec is None:
        return None
    folders = tuple(spec.submodule_search_locations or ())
    version = cuda = None
    for folder in folders:
        version, cuda = _read_version_file(Path(folder) / "version.py")
    real = None if spec.origin is None else os.path.realpath(spec.origin)
    return TorchFiles(spec.origin, folders, version, cuda, real, _in_working_directory("torch", path))


def _read_version_file(path: Path) -> tuple[str | None, str | None]:
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


def _shadowing_stdlib(path: Sequence[str]) -> Iterator[str]:
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


def _shadowing_required(path: Sequence[str], required: Iterable[str]) -> Iterator[str]:
    """Files of the working directory that are found in place of a package that torch uses."""
    for name in ("numpy", *required):
        module = name.replace("-", "_")
        if _in_working_directory(module, path) and PathFinder.find_spec(
            module, without_working_directory(path)
        ):
            spec = PathFinder.find_spec(module, list(path))
            if spec is not None and spec.origin is not None:
                yield os.path.abspath(spec.origin)


def _in_working_directory(module: str, path: Sequence[str]) -> bool:
    """Whether the import would find another file, or none, without the working directory on the path."""
    elsewhere = without_working_directory(path)
    if len(elsewhere) == len(path):
        return False
    specs = [PathFinder.find_spec(module, list(folders)) for folders in (path, elsewhere)]
    files = [
        None if one is None else (one.origin, tuple(one.submodule_search_locations or ())) for one in specs
    ]
    return files[0] is not None and files[0] != files[1]


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _changed_files(ours: metadata.Distribution) -> list[str]:
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


def is_conda_torch(packages: InstalledPackages) -> bool:
    """Whether torch came from conda."""
    return any(one.by == "conda" and one.name in ("torch", "pytorch") for one in packages.cuda)
