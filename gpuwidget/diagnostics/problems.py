"""Group the issues of all checks into problems: one cause, one fix, and the checks that follow from it.

An issue follows from another one in two cases: a rule of ``_RULES`` applies to them, or both have the same
fix. The rules name issues by their ids. A cause may itself follow from another issue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuwidget.diagnostics.issues import WORST_FIRST
from gpuwidget.model.diagnosis import Check, Issue, Problem

_FIXING_ORDER = (
    *("driver", "device_files", "gpu", "sharing", "visible", "health"),
    *("torch", "cuda", "cudnn", "nccl", "shm", "pcie", "peers", "package"),
)
"""The checks in the order of fixing: torch's build and libraries depend on the driver and the GPU."""

_FILES_UNUSABLE = (
    "device-files-forbidden",
    "gpu-files-missing",
    "control-files-missing",
    "device-files-missing",
    "wsl-without-gpu",
)
_NO_FILES = ("container-without-device-files", "no-driver-or-gpu")
_DRIVER_FAILS = (
    "driver-not-installed",
    "container-without-gpus",
    "driver-timeout",
    "driver-no-result",
    "driver-version-mismatch",
    "driver-not-loaded",
    "driver-start-failed",
)
_LIBCUDA_FAILS = (
    "container-without-compute",
    "libcuda-missing",
    "libcuda-stub",
    "libcuda-mismatch",
    "fabric-manager-missing",
    "step-unfinished",
)
_BINDING_FAILS = ("nvml-binding-missing", "nvml-binding-foreign")
_CUDA_FAILS = (
    "cuda-unknown-error",
    "cuda-start-failed",
    "no-gpu-for-cuda",
    "gpu-in-exclusive-use",
)
_TORCH_FAILS = (
    "torch-not-installed",
    "torch-hidden",
    "torch-leftovers",
    "torch-shadowed",
    "torch-in-working-directory",
    "torch-import-timeout",
    "torch-import-killed",
    "torch-import-crashed",
    "torch-import-ended",
    "torch-import-error",
    "torch-import-error-hidden-module",
    "torch-import-error-damaged-package",
    "torch-import-error-in-package",
    "python-not-started",
)
_IMPORT_FAILS = ("torch-import-crashed", "torch-import-ended", "torch-import-error")
_WRONG_PACKAGES = ("package-damaged", "required-package-missing", "required-package-version")
_PACKAGES = (
    "library-missing",
    "library-overridden",
    "library-mixed",
    "library-copies",
    "second-cudnn",
    "packages-share-files",
    *_WRONG_PACKAGES,
)
_STEPS = ("step-failed", "step-unfinished", "steps-not-reached")
_UNKNOWN = ("gpu-unknown-without-driver", "visible-devices-unknown")
_NOT_USABLE = ("cuda-unusable-by-torch", "no-gpu-for-cuda")


class _Rule(NamedTuple):
    """If the check ``cause`` has one of these issues, it causes these issues of the checks ``effects``."""

    cause: str
    ids: Sequence[str]
    effects: Sequence[str]
    effect_ids: Sequence[str]


_RULES = (
    _Rule("device_files", _FILES_UNUSABLE, ("driver",), (*_DRIVER_FAILS, *_LIBCUDA_FAILS)),
    _Rule("driver", _DRIVER_FAILS, ("device_files",), _NO_FILES),
    _Rule("device_files", ("container-without-device-files",), ("driver",), ("libcuda-missing",)),
    _Rule("driver", _DRIVER_FAILS, ("driver",), ("driver-too-old", *_LIBCUDA_FAILS, *_STEPS)),
    _Rule("sharing", ("mig-without-slice",), ("device_files",), ("mig-files-forbidden", "mig-files-missing")),
    _Rule("driver", (*_DRIVER_FAILS, *_BINDING_FAILS), ("gpu", "visible"), _UNKNOWN),
    _Rule("gpu", ("no-gpu", "gpu-lost"), ("visible",), _UNKNOWN),
    _Rule("gpu", ("gpu-lost",), ("health",), ("xids-logged",)),
    *(
        _Rule(cause, ids, ("gpu", "cudnn"), (*_CUDA_FAILS, *_NOT_USABLE, *_STEPS))
        for cause, ids in (
            ("device_files", (*_FILES_UNUSABLE, *_NO_FILES, "mig-files-forbidden", "mig-files-missing")),
            ("driver", (*_DRIVER_FAILS, *_LIBCUDA_FAILS, "driver-too-old")),
        )
    ),
    _Rule("driver", ("step-unfinished",), ("torch",), ("torch-import-crashed", "torch-import-timeout")),
    _Rule("gpu", ("no-gpu", *_CUDA_FAILS), ("gpu", "cudnn"), (*_STEPS, "cuda-unusable-by-torch")),
    _Rule("gpu", ("no-gpu",), ("gpu",), _CUDA_FAILS),
    _Rule("visible", ("visible-devices-empty",), ("gpu", "cudnn"), (*_NOT_USABLE, *_STEPS)),
    _Rule("sharing", ("mig-without-slice", "compute-mode-prohibited"), ("gpu",), (*_NOT_USABLE, *_STEPS)),
    _Rule("torch", _TORCH_FAILS, ("torch", "cuda", "cudnn", "nccl", "gpu"), ("steps-not-reached",)),
    *(_Rule(check, _WRONG_PACKAGES, ("torch",), _IMPORT_FAILS) for check in ("cuda", "cudnn", "nccl")),
    _Rule("torch", ("torch-shadowed",), ("torch", "cuda", "cudnn", "nccl"), (*_PACKAGES, "cudnn-fails")),
    _Rule("torch", ("torch-shadowed",), ("driver",), ("driver-too-old",)),
    _Rule("torch", ("torch-shadowed",), ("gpu",), ("gpu-without-code", "cuda-unusable-by-torch")),
    _Rule("torch", ("torch-copies",), ("torch",), _IMPORT_FAILS),
    _Rule("torch", ("module-hidden",), ("torch",), ("numpy-fails",)),
    _Rule("cudnn", _PACKAGES, ("cudnn",), ("cudnn-fails", "torch-without-cudnn")),
    _Rule("health", ("memory-remap-failed", "memory-reset-pending"), ("health",), ("xids-logged",)),
)
"""The first rule that applies to an issue decides."""


@dataclass(slots=True)
class _Node:
    """An issue with the issue from which it follows."""

    check: str
    issue: Issue
    cause: _Node | None = None

    @property
    def root(self) -> _Node:
        return self if self.cause is None else self.cause.root


def find_problems(checks: Sequence[Check]) -> tuple[Problem, ...]:
    """Return the problems in the order of fixing: the worst status first, then from the driver to torch."""
    nodes = [_Node(check.id, issue) for check in checks for issue in check.issues]
    _join_steps(nodes)
    for rule in _RULES:
        _apply(rule, nodes)
    _join_equal_fixes(nodes)
    found = [_problem(root, [node for node in nodes if node.root is root]) for root in _roots(nodes)]
    return tuple(sorted(found, key=_fixing_rank))


def _fixing_rank(problem: Problem) -> tuple[int, int]:
    return WORST_FIRST.index(problem.status), _FIXING_ORDER.index(problem.check)


def _roots(nodes: Sequence[_Node]) -> Iterator[_Node]:
    return (node for node in nodes if node.cause is None)


def _apply(rule: _Rule, nodes: Sequence[_Node]) -> None:
    causes = [node for node in nodes if node.check == rule.cause and node.issue.id in rule.ids]
    for node in nodes:
        if node.cause is None and node.check in rule.effects and _is_effect(node.issue, rule):
            node.cause = next((cause for cause in causes if cause.root is not node), None)


def _is_effect(issue: Issue, rule: _Rule) -> bool:
    """Return whether the rule names the issue. Only some types of errors are caused by a library."""
    of_library = issue.params.get("type") in (None, "ImportError", "OSError")
    return issue.id in rule.effect_ids and (of_library or issue.id not in _IMPORT_FAILS)


def _join_steps(nodes: Sequence[_Node]) -> None:
    """Make steps that were not reached follow from the step that did not finish."""
    for node in nodes:
        if node.issue.id == "steps-not-reached":
            step = node.issue.params["step"]
            node.cause = next(
                (
                    other
                    for other in nodes
                    if other.issue.id == "step-unfinished" and other.issue.params["step"] == step
                ),
                None,
            )


def _join_equal_fixes(nodes: Sequence[_Node]) -> None:
    """Make issues with the same fix follow from one of them.

    This is the first one in the order of fixing, except that a failed import of torch follows from the issue
    of the library or package that made it fail.
    """
    groups: dict[tuple[Any, ...], list[_Node]] = {}
    for node in _roots(nodes):
        fix = node.issue.fix
        if fix is not None:
            groups.setdefault((fix.id, fix.command, _hashable(fix.params)), []).append(node)
    for group in groups.values():
        cause = min(group, key=_cause_rank)
        for node in group:
            node.cause = None if node is cause else cause


def _cause_rank(node: _Node) -> tuple[bool, int, int]:
    return (
        node.issue.id in (*_IMPORT_FAILS, "torch-import-error-damaged-package"),
        _FIXING_ORDER.index(node.check),
        WORST_FIRST.index(node.issue.status),
    )


def _hashable(params: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in params.items()))


def _problem(root: _Node, nodes: Sequence[_Node]) -> Problem:
    others = [node for node in nodes if node is not root and node.check == root.check]
    fix = root.issue.fix
    same_fix = [node.issue for node in others if fix is not None and node.issue.fix == fix]
    status = min((node.issue.status for node in nodes), key=WORST_FIRST.index)
    affected = dict.fromkeys(node.check for node in nodes if node.check != root.check)
    return Problem(
        check=root.check,
        status=status,
        issues=(root.issue.id, *(issue.id for issue in same_fix)),
        reasons=(root.issue.reason, *(issue.reason for issue in same_fix)),
        fix=fix,
        affects=tuple(affected),
    )
