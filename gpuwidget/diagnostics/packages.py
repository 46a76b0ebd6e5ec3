"""The installed packages that torch and CUDA depend on, read from metadata without importing anything."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path
from types import MappingProxyType

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from gpuwidget.diagnostics.probe_process import without_working_directory
from gpuwidget.diagnostics.torch_copies import (
    TorchCopy,
    TorchFiles,
    TorchMetadata,
    environment_prefix,
    find_copies,
    find_torch,
    in_working_directory,
)
from gpuwidget.model.installation import DISTRIBUTION

OUR_DISTRIBUTION = DISTRIBUTION
OTHER_DISTRIBUTION = "gpuwidget"
"""The name of an unrelated package on PyPI that has the same import name as this project."""
_CUDA_PACKAGES = re.compile(
    r"(nvidia-.*|cuda-toolkit|torch|torchvision|torchaudio|triton|pytorch|cudatoolkit|cudnn|nccl|cuda-cudart|"
    r"libcudnn|pytorch-triton)(-cu\d+)?",
)
_NVML_BINDINGS = ("nvidia-ml-py", "pynvml")


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """An installed package."""

    name: str
    version: str
    by: str
    """The tool that installed it, such as ``pip``, ``conda`` or ``uv``."""


@dataclass(frozen=True, slots=True)
class InstalledPackages:
    """The installed packages, according to their metadata."""

    torch: TorchFiles | None
    """The torch that would be imported; None if none is found."""
    torch_copies: tuple[TorchCopy, ...]
    """All copies of torch in ``sys.path``, in its order; the first one is imported."""
    cuda: tuple[InstalledPackage, ...]
    """The installed torch and NVIDIA's libraries."""
    binding: tuple[InstalledPackage, ...]
    """The packages that contain the module pynvml."""
    conda: bool
    """Whether this is a conda environment."""
    isolated: bool
    """Whether this is a virtual environment. In that case, pip does not uninstall packages outside it."""
    ours: str | None
    """Version of gpuwidget's distribution; None if gpuwidget was not installed as a distribution."""
    ours_by: str | None
    """The tool that installed gpuwidget."""
    other: str | None
    """Version of the unrelated package with gpuwidget's import name; None if it is not installed."""
    changed: tuple[str, ...]
    """gpuwidget's files whose content has changed since installation."""
    hiding: tuple[str, ...] = ()
    """Files that hide a module of the standard library, or a package that torch requires."""
    required: Mapping[str, str] = field(default_factory=dict)
    """Specifiers, such as ``==9.10.2``, of the installed torch's direct and indirect requirements, by
    package."""
    installed: Mapping[str, InstalledPackage] = field(default_factory=dict)
    """torch, numpy and torch's requirements, by name, without the packages that are not installed."""
    required_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For pynvml, and for each library that is installed for two CUDA versions: the packages that require it,
    without torch."""


def inspect(
    path: Sequence[str], python: str = "", variables: Mapping[str, str] = MappingProxyType({})
) -> InstalledPackages:
    """Return the packages that are installed in the folders of ``path``, an environment's ``sys.path``.

    ``python`` is the environment's interpreter, by default this process's.
    """
    found: dict[str, InstalledPackage] = {}
    first: dict[str, metadata.Distribution] = {}
    of_torch: list[TorchMetadata] = []
    torch, prefix = find_torch(path), Path(environment_prefix(python))
    for name, distribution in _distributions(path):
        by = installer(distribution)
        if name == "torch":
            of_torch.append(TorchMetadata(str(distribution.locate_file("")), distribution.version, by))
        # If several folders contain a package of this name, the first one is imported. The first metadata of
        # torch may belong to a copy that is not imported.
        is_imported = name not in first and (name != "torch" or _is_metadata_of(distribution, torch))
        if is_imported:
            first[name] = distribution
        if is_imported or name not in found:
            found[name] = InstalledPackage(name, distribution.version, by)
    conda = _conda_packages(prefix)
    relevant = [
        package
        for name, package in found.items()
        if _CUDA_PACKAGES.fullmatch(name) and name not in _NVML_BINDINGS
    ]
    required = _required(first)
    return InstalledPackages(
        torch=torch,
        torch_copies=find_copies(path, python, variables, of_torch),
        cuda=tuple(sorted({*relevant, *conda}, key=lambda package: (package.name, package.by))),
        binding=tuple(found[name] for name in _NVML_BINDINGS if name in found),
        conda=(prefix / "conda-meta").is_dir(),
        isolated=(prefix / "pyvenv.cfg").is_file(),
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
    """Return the installed packages among torch, numpy, torch's requirements and NVIDIA's libraries."""
    first: dict[str, metadata.Distribution] = {}
    torch = find_torch(path)
    for name, distribution in _distributions(path):
        if name != "torch" or _is_metadata_of(distribution, torch):
            first.setdefault(name, distribution)
    wanted = {"torch", "numpy", *_required(first)} if "torch" in first else set()
    return {
        name: distribution
        for name, distribution in first.items()
        if name in wanted or (name.startswith("nvidia-") and name not in _NVML_BINDINGS)
    }


def installer(distribution: metadata.Distribution) -> str:
    """Return the tool that installed the package, according to its INSTALLER file: ``pip``, ``conda``,
    ``uv``…"""
    return (distribution.read_text("INSTALLER") or "pip").strip() or "pip"


def normalize_name(name: str) -> str:
    """Return a package's name in the normalized form that package indexes use."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_metadata_of(distribution: metadata.Distribution, torch: TorchFiles | None) -> bool:
    """Return whether the metadata belongs to the torch that would be imported, and not to another copy."""
    folder = os.path.realpath(os.path.join(str(distribution.locate_file("")), "torch"))
    return torch is not None and folder in map(os.path.realpath, torch.folders)


def satisfies(version: str, specifier: str) -> bool:
    """Return whether the specifier, such as ``>=1.2``, allows the version; True if unknown."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _distributions(path: Sequence[str]) -> Iterator[tuple[str, metadata.Distribution]]:
    for distribution in metadata.distributions(path=list(path)):
        name = normalize_name(str(distribution.metadata["Name"] or ""))
        if name and not _is_pip_leftover(distribution):
            yield name, distribution


def _required(first: Mapping[str, metadata.Distribution]) -> dict[str, str]:
    """Return the specifiers of torch's direct and indirect requirements; torch's own specifiers take
    precedence."""
    found: dict[str, str] = {}
    queue: list[tuple[str, frozenset[str]]] = [("torch", frozenset())]
    seen = set(queue)
    for name, extras in queue:
        distribution = first.get(name)
        for requirement in _requirements(distribution, extras) if distribution is not None else ():
            required = normalize_name(requirement.name)
            found[required] = found.get(required) or str(requirement.specifier)
            step = (required, frozenset(requirement.extras))
            if step not in seen:
                seen.add(step)
                queue.append(step)
    return found


def _requirements(distribution: metadata.Distribution, extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """Return the package's requirements that apply to this system, with these extras."""
    for text in distribution.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _required_by(first: Mapping[str, metadata.Distribution]) -> dict[str, tuple[str, ...]]:
    """Return, for pynvml and each library that is installed for two CUDA versions, the packages that require
    it.

    torch is left out.
    """
    stems: dict[str, list[str]] = {}
    for name in first:
        if name.startswith("nvidia-"):
            stems.setdefault(re.sub(r"-cu\d+$", "", name), []).append(name)
    doubled = {name for names in stems.values() if len(names) > 1 for name in names} | (
        {"pynvml"} & set(first)
    )
    found: dict[str, tuple[str, ...]] = {}
    for dependent, distribution in first.items() if doubled else ():
        if dependent != "torch":
            for requirement in _requirements(distribution):
                name = normalize_name(requirement.name)
                if name in doubled:
                    found[name] = (*found.get(name, ()), dependent)
    return found


def _is_pip_leftover(distribution: metadata.Distribution) -> bool:
    """Return whether the package is left over from a failed uninstallation. While pip uninstalls a package,
    it renames the package's folders, for example to ``~orch``."""
    path = getattr(distribution, "_path", None)
    return path is not None and str(getattr(path, "name", "")).startswith("~")


def _conda_packages(prefix: Path) -> list[InstalledPackage]:
    """Return conda's CUDA packages, which have no Python metadata."""
    found = []
    for path in sorted((prefix / "conda-meta").glob("*.json")):
        name, version, _ = (*path.stem.rsplit("-", 2), "", "")[:3]
        if _CUDA_PACKAGES.fullmatch(name):
            found.append(InstalledPackage(name, version, "conda"))
    return found


def _shadowing_stdlib(path: Sequence[str]) -> Iterator[str]:
    """Yield files that hide a module of the standard library because their folder comes first in ``path``."""
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
            # Built-in and frozen modules are found before ``sys.path`` is searched.
            if BuiltinImporter.find_spec(stem) is None and FrozenImporter.find_spec(stem) is None:
                yield os.path.abspath(os.path.join(folder, name))


def _shadowing_required(path: Sequence[str], required: Iterable[str]) -> Iterator[str]:
    """Yield files in the working directory that hide a package that torch requires."""
    for name in ("numpy", *required):
        module = name.replace("-", "_")
        if in_working_directory(module, path) and PathFinder.find_spec(
            module, without_working_directory(path)
        ):
            spec = PathFinder.find_spec(module, list(path))
            if spec is not None and spec.origin is not None:
                yield os.path.abspath(spec.origin)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _changed_files(ours: metadata.Distribution) -> list[str]:
    """Return gpuwidget's files that are missing or differ from the hash recorded at installation."""
    changed = []
    # ``Distribution.files`` leaves out missing files in Python 3.12 and in the package importlib_metadata,
    # whose distributions are the ones found once it is imported.
    for row in csv.reader((ours.read_text("RECORD") or "").splitlines()):
        path, recorded = (*row, "", "")[:2]
        mode, _, expected = recorded.partition("=")
        if not path.startswith("gpuwidget/") or not path.endswith(".py") or not expected:
            continue
        try:
            digest = hashlib.new(mode, Path(str(ours.locate_file(path))).read_bytes()).digest()
        except (OSError, ValueError):
            changed.append(path)
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != expected.rstrip("="):
            changed.append(path)
    return changed


def is_conda_torch(packages: InstalledPackages) -> bool:
    return any(package.by == "conda" and package.name in ("torch", "pytorch") for package in packages.cuda)
