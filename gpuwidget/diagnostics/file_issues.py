"""Issues of the installed files of PyTorch and its libraries: damaged files and wrong versions."""

from __future__ import annotations

from gpuwidget.diagnostics import messages_packages as messages
from gpuwidget.diagnostics.fixes import reinstall
from gpuwidget.diagnostics.packages import satisfies
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Issue, IssueStatus

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
            found.append(messages.damaged_package(package, status, reinstall(results, package.name)))
    return found


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
            found.append(messages.required_package_missing(name, specifier, status, fix))
        elif not satisfies(installed.version, specifier):
            fix = reinstall(results, name)
            found.append(messages.wrong_package_version(name, installed.version, specifier, status, fix))
    return found


def file_issues(results: ProbeResults, check: str) -> list[Issue]:
    """Return all issues of damaged files and wrong versions that belong to a check."""
    return [*damaged_packages(results, check), *wrong_version_issues(results, check)]


def _import_fails(results: ProbeResults) -> bool:
    """Return whether torch can't be imported. An import that is merely slow does not count."""
    return "import_error" in results.torch or results.torch_result.ending == "crashed"


def _check_of(name: str) -> str:
    return next((check for beginning, check in _CHECK_OF_PACKAGE if name.startswith(beginning)), "torch")
