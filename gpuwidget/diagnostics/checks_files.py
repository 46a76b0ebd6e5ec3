"""What the installed files add to the links of PyTorch and its libraries: damage, and wrong versions."""

from __future__ import annotations

from gpuwidget.diagnostics.files_probe import Checked
from gpuwidget.diagnostics.fixes import reinstall
from gpuwidget.diagnostics.issues import Finding, counted
from gpuwidget.diagnostics.packages import satisfies
from gpuwidget.diagnostics.probe_results import Facts

_LINKS = (("nvidia-cudnn", "cudnn"), ("nvidia-nccl", "nccl"), ("nvidia-", "cuda"), ("cuda-", "cuda"))
_BINARY = ("nvidia-", "triton", "pytorch-triton", "cuda-toolkit")


def damaged(facts: Facts, link: str) -> list[Finding]:
    """Return a finding for each package of that link whose files are not as recorded when it was installed.

    A missing or short shared library breaks the chain; so does any damage where torch can't be imported.
    """
    found = []
    for one in facts.damaged:
        if _link_of(one.name) == link:
            serious = any(file.library for file in one.damaged) or _import_fails(facts)
            found.append(
                Finding("broken" if serious else "warning", describe(one), *reinstall(facts, one.name))
            )
    return found


def describe(one: Checked) -> str:
    """Return a sentence about the damaged files of one package."""
    first, others = one.damaged[0], one.count - 1
    more = (
        f", and {counted(others, 'other file')} of it {'is' if others == 1 else 'are'} damaged"
        if others
        else ""
    )
    return f"{first.path} of {one.name} {one.version} {first.problem}{more}."


def wrong_versions(facts: Facts, link: str) -> list[Finding]:
    """Return a finding for each NVIDIA library, and Triton, that is not of the version torch requires."""
    found = []
    for name, specifier in facts.packages.required.items():
        if not name.startswith(_BINARY) or _link_of(name) != link:
            continue
        installed = facts.packages.installed.get(name)
        if installed is None:
            reason = f"{name}{specifier}, which this PyTorch requires, is not installed."
        elif not satisfies(installed.version, specifier):
            reason = f"{name} {installed.version} is installed, but this PyTorch requires {specifier}."
        else:
            continue
        serious = _import_fails(facts)
        found.append(Finding("broken" if serious else "warning", reason, *reinstall(facts, name)))
    return found


def of_files(facts: Facts, link: str) -> list[Finding]:
    """Return all that the files and versions add to one link."""
    return [*damaged(facts, link), *wrong_versions(facts, link)]


def _import_fails(facts: Facts) -> bool:
    """Whether torch can't be imported; one whose import is only slow may be well."""
    return "import_error" in facts.torch or facts.torch_said.ending == "crashed"


def _link_of(name: str) -> str:
    return next((link for beginning, link in _LINKS if name.startswith(beginning)), "torch")
