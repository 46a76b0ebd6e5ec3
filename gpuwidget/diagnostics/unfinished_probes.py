"""Issues of the probes themselves: steps that hung, crashed, raised an error or were not reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuwidget.diagnostics import cuda_probe, messages_packages, torch_probe
from gpuwidget.diagnostics import messages_probes as messages
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus

_MIN_SILENCE_S = 2.0
"""Seconds without a message after which a step that was killed counts as broken. A step that was killed
sooner may just have had too little time, so its check is unknown."""
_REQUIRED_STEPS = ("available", "count")
"""Steps of the torch probe that must succeed for torch to use a GPU."""
_CUDA_STEPS = ("cudnn", "available", "count")
"""Steps of the torch probe that start CUDA."""
_CHECKED_SEPARATELY = ("import", "cudnn", "numpy")
"""Steps whose errors are explained by the check of PyTorch or of cuDNN."""
_CODE = re.compile(r"[\w.]+(\(\))?")
"""Matches the name of a step that is code, such as ``torch.cuda.is_available()``."""
_Steps = Mapping[str, tuple[str, str]]


def unfinished_steps(results: ProbeResults) -> tuple[str, ...]:
    """Return, for each unfinished probe, the displayed name of the step at which it stopped."""
    probes = _probes(results)
    return tuple(_step_name(result, steps) for result, steps in probes if result.unfinished is not None)


def probe_issues(results: ProbeResults) -> dict[str, list[Issue]]:
    """Return the issues of unfinished and failed steps, by the id of their check.

    Every step without a result has an issue, so that a check is ``ok`` only if all its steps ran.
    """
    found: dict[str, list[Issue]] = {}
    for result, steps in _probes(results):
        for check, issue in _unfinished_issues(result, steps):
            if result is results.torch_result and result.unfinished in _CUDA_STEPS and libcuda_fails(results):
                # The step failed because of the driver, which the driver's check reports as broken.
                issue = replace(issue, status="unknown", fix=messages.FIX_DRIVER_FIRST())
            elif result is results.cuda_result and result.ending == "crashed":
                issue = replace(issue, fix=_crash_fix(results)) if issue.fix is not None else issue
            found.setdefault(check, []).append(issue)
    if results.files_result.unfinished is not None:
        name = _step_name(results.files_result, {})
        values = _values(name, results.files_result)
        issue = messages.FILES_NOT_COMPARED(**values, shown={"ending": _ending(results.files_result)})
        found.setdefault("torch", []).append(issue)
    # If NVML returned no values at all, the driver's check already reports the failure.
    if results.nvml_result.unfinished is not None and results.nvml is not None:
        name = _step_name(results.nvml_result, {})
        issue = _unfinished_issue(name, results.nvml_result, "unknown")
        found.setdefault("driver", []).append(issue)
    if results.cuda is not None:
        for step, (check, name) in torch_probe.STEPS.items():
            error = results.torch.get(f"{step}_error")
            if error is not None and step not in _CHECKED_SEPARATELY:
                status: IssueStatus = "broken" if step in _REQUIRED_STEPS else "warning"
                first_line = str(error).strip().splitlines()[0]
                issue = messages.STEP_FAILED(step=name, error=first_line, status=status)
                found.setdefault(check, []).append(issue)
    return found


def libcuda_fails(results: ProbeResults) -> bool:
    """Return whether the driver's CUDA library hangs or crashes when it is loaded or initialized."""
    result = results.cuda_result
    return result.ending in ("hung", "crashed") and result.unfinished in ("load", "init")


def _crash_fix(results: ProbeResults) -> Fix:
    """Return the fix for a crash in the driver's CUDA library, which has been loaded without torch."""
    preload, library = results.variables.get("LD_PRELOAD"), ", ".join(results.mapped("libcuda"))
    if preload:
        return messages_packages.UNSET_PRELOAD(value=preload)
    return messages.REPAIR_DRIVER(library=library or "libcuda.so.1")


def _probes(results: ProbeResults) -> tuple[tuple[ProbeResult, _Steps], ...]:
    return (
        (results.torch_result, torch_probe.STEPS),
        (results.cuda_result, cuda_probe.STEPS),
        (results.nvml_result, {}),
        (results.files_result, {}),
    )


def _step_name(result: ProbeResult, steps: _Steps) -> str:
    step = result.unfinished or ""
    return steps[step][1] if step in steps else step or messages.PYTHON_START


def _unfinished_issues(result: ProbeResult, steps: _Steps) -> list[tuple[str, Issue]]:
    """Return the issues of one probe: of the step at which it stopped, and of the steps after it."""
    step = result.unfinished
    if step is None or not steps:
        return []
    order = list(steps)
    found = []
    if step in steps and step != "import":
        check, name = steps[step]
        found.append((check, _unfinished_issue(name, result, _status(result))))
    reached = order.index(step) + 1 if step in steps else 0
    left: dict[str, list[str]] = {}
    for check, name in (steps[step] for step in order[reached:]):
        left.setdefault(check, []).append(name)
    values, ending = _values(_step_name(result, steps), result), _ending(result)
    found += (
        (check, messages.STEPS_NOT_REACHED(**values, steps=tuple(names), shown={"ending": ending}))
        for check, names in left.items()
    )
    return found


def _unfinished_issue(step: str, result: ProbeResult, status: IssueStatus) -> Issue:
    name = step if _CODE.fullmatch(step) else step[0].upper() + step[1:]
    fix = messages.SEE_WHAT_HANGS if result.ending == "hung" else messages.SEE_WHAT_CRASHES
    return messages.STEP_UNFINISHED(
        **_values(step, result), status=status, fix=fix(), shown={"name": name, "ending": _ending(result)}
    )


def _values(step: str, result: ProbeResult) -> dict[str, Any]:
    return {"step": step, "ending": result.ending, "how": result.detail, "silent_s": result.silent_s}


def _ending(result: ProbeResult) -> str:
    ending = messages.ENDINGS[result.ending]
    return ending(how=result.detail, seconds=int(result.silent_s) or None)


def _status(result: ProbeResult) -> IssueStatus:
    return "unknown" if result.ending == "hung" and result.silent_s < _MIN_SILENCE_S else "broken"
