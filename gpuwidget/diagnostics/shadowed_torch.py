"""Issues of a copy of torch that Python imports instead of another copy."""

from __future__ import annotations

import os

from gpuwidget.diagnostics import messages_torch as messages
from gpuwidget.diagnostics.fixes import reinstall_torch_copies, remove_torch_copy
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.torch_copies import TorchCopy
from gpuwidget.model.diagnosis import Issue
from gpuwidget.model.translation import Text, translatable


def shadowed_torch_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if the copy of torch that Python imports should not be the first one in ``sys.path``.

    If this copy can't use the GPU, another copy should be first. If it can, the environment's own copy should
    be first, unless it is the same build or a build without CUDA.
    """
    copies = results.packages.torch_copies
    if not copies:
        return []
    first, *others = copies
    if len(first.metadata) > 1:
        return [
            messages.SEVERAL_VERSIONS(
                folder=first.folder,
                versions=first.metadata,
                fix=reinstall_torch_copies(results),
                shown={"number": len(first.metadata)},
            )
        ]
    if not _is_imported(first, results) or (results.without_gpu and results.torch.get("imported")):
        return []  # without a GPU, any copy that can be imported is right
    problem = _problem(first, results)
    right = _better_copy(first, others) if problem is not None else _other_build(first, others)
    if right is None:
        return []
    return [
        messages.SHADOWED(
            first=first.path,
            second=right.path,
            source=first.source,
            set_in=first.set_in,
            status="warning" if problem is None else "broken",
            fix=remove_torch_copy(results, first),
            shown={
                "first": version_and_folder(first),
                "second": version_and_folder(right),
                "source": path_source(first),
                "problem": problem,
            },
        )
    ]


def version_and_folder(copy: TorchCopy) -> Text:
    """Return the version and the folder of a copy of torch, such as ``2.13.0 in /env/site-packages``."""
    return translatable("{version} in {folder}", version=copy.version or "torch", folder=copy.folder)


def path_source(copy: TorchCopy) -> str:
    """Return what puts the folder of a copy of torch into ``sys.path``, without a full stop."""
    return messages.PATH_SOURCES[copy.source](set_in=copy.set_in)


def _is_imported(first: TorchCopy, results: ProbeResults) -> bool:
    """Return whether the torch probe has tested this copy. An import hook may find yet another one."""
    file = results.torch.get("file")
    return not isinstance(file, str) or os.path.realpath(file).startswith(os.path.realpath(first.path))


def _problem(first: TorchCopy, results: ProbeResults) -> str | None:
    """Return why the first copy can't use the GPU, if the reason is the copy itself."""
    torch = results.torch
    if torch.get("imported"):
        return messages.FOR_CPU_ONLY() if torch.get("cuda") is None and not torch.get("hip") else None
    if first.source == "environment":
        # The environment's own copy is broken, and should be repaired.
        return None
    if "import_error" in torch:
        lines = str(torch["import_error"]).strip().splitlines()
        error = lines[0].rstrip(" .:") if lines else str(torch.get("import_error_type"))
        return messages.FAILS(error=error)
    result = results.torch_result
    crashed = result.ending == "crashed" and result.detail != "SIGKILL"
    return messages.FAILS(error=result.detail) if crashed else None


def _better_copy(first: TorchCopy, others: list[TorchCopy]) -> TorchCopy | None:
    """Return the copy to use instead of one that can't use the GPU: a build for CUDA, if there is one."""
    for copy in others:
        if copy.package and copy.cuda is not None:
            return copy
    return _own_copy(first, others)


def _other_build(first: TorchCopy, others: list[TorchCopy]) -> TorchCopy | None:
    """Return the environment's own copy if it is another build for CUDA than the first one."""
    own = _own_copy(first, others)
    if own is None or own.cuda is None or (own.version, own.cuda) == (first.version, first.cuda):
        return None
    return own


def _own_copy(first: TorchCopy, others: list[TorchCopy]) -> TorchCopy | None:
    """Return the environment's own copy if it is not the first one."""
    if first.source == "environment":
        return None
    return next((copy for copy in others if copy.package and copy.source == "environment"), None)
