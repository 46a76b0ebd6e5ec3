"""Issues of the installed files of PyTorch and its libraries: damaged files and wrong versions."""

from __future__ import annotations

from typing import Any

from gpuwidget.diagnostics import messages_packages as messages
from gpuwidget.diagnostics.files_probe import CheckedPackage
from gpuwidget.diagnostics.fixes import reinstall
from gpuwidget.diagnostics.packages import satisfies
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus

_CHECK_OF_PACKAGE = (
    ("nvidia-cudnn", "cudnn"),
    ("nvidia-nccl", "nccl"),
    ("nvidia-", "cuda"),
    ("cuda-", "cuda"),
)
_NVIDIA_PACKAGES = ("nvidia-", "triton", "pytorch-triton", "cuda-toolkit")


def damaged_packages(results: ProbeResults, check: str) -> list[Issue]:
    """Return an issue for each package of a check whose files differ from those recorded at installation.

    The issue is "broken" if a shared library is damaged or torch can't be imported, otherwise a warning. If
    several versions of torch overwrote each other's files, the issue of these copies replaces torch's.
    """
    copies = results.packages.torch_copies
    overwritten = "torch" if copies and len(copies[0].metadata) > 1 else None
    found = []
    for package in results.damaged:
        if _check_of(package.name) == check and package.name != overwritten:
            breaks = any(file.library for file in package.damaged) or _import_fails(results)
            status: IssueStatus = "broken" if breaks else "warning"
            found.append(_damage_issue(package, status, reinstall(results, package.name)))
    return found


def _damage_issue(package: CheckedPackage, status: IssueStatus, fix: Fix) -> Issue:
    first = package.damaged[0]
    return messages.PACKAGE_DAMAGED(
        package=package.name,
        version=package.version,
        file=first.path,
        problem=first.problem,
        count=package.count,
        status=status,
        fix=fix,
        shown=damage(package),
    )


def damage(package: CheckedPackage) -> dict[str, Any]:
    """Return what the texts about a package's damaged files show."""
    file = package.damaged[0]
    name = f"{package.name} {package.version}"
    first = messages.DAMAGES[file.problem](
        path=file.path, package=name, size=file.size, recorded_size=file.recorded_size, error=file.error
    )
    return {"damage": first, "others": package.count - 1 or None}


def wrong_version_issues(results: ProbeResults, check: str) -> list[Issue]:
    """Return an issue for each package of an NVIDIA library or Triton whose version is not the one that torch
    requires."""
    found = []
    for name, specifier in results.packages.required.items():
        if not name.startswith(_NVIDIA_PACKAGES) or _check_of(name) != check:
            continue
        installed = results.packages.installed.get(name)
        status: IssueStatus = "broken" if _import_fails(results) else "warning"
        if installed is None:
            fix = reinstall(results, name)
            found.append(
                messages.REQUIRED_PACKAGE_MISSING(package=name, specifier=specifier, status=status, fix=fix)
            )
        elif not satisfies(installed.version, specifier):
            fix = reinstall(results, name)
            found.append(
                messages.REQUIRED_PACKAGE_VERSION(
                    package=name, version=installed.version, specifier=specifier, status=status, fix=fix
                )
            )
    return found


def file_issues(results: ProbeResults, check: str) -> list[Issue]:
    """Return all issues of damaged files and wrong versions that belong to a check."""
    return [*damaged_packages(results, check), *wrong_version_issues(results, check)]


def _import_fails(results: ProbeResults) -> bool:
    """Return whether torch can't be imported. An import that is merely slow does not count."""
    return "import_error" in results.torch or results.torch_result.ending == "crashed"


def _check_of(name: str) -> str:
    return next((check for beginning, check in _CHECK_OF_PACKAGE if name.startswith(beginning)), "torch")
