"""Issues of the probes themselves: steps that hung, crashed, raised an error or were not reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
                issue = replace(issue, status="unknown", fix=messages.fix_driver_first())
            elif result is results.cuda_result and result.ending == "crashed":
                issue = replace(issue, fix=_crash_fix(results)) if issue.fix is not None else issue
            found.setdefault(check, []).append(issue)
    if results.files_result.unfinished is not None:
        name = _step_name(results.files_result, {})
        found.setdefault("torch", []).append(messages.files_not_compared(name, results.files_result))
    # If NVML returned no values at all, the driver's check already reports the failure.
    if results.nvml_result.unfinished is not None and results.nvml is not None:
        name = _step_name(results.nvml_result, {})
        issue = messages.unfinished(name, results.nvml_result, "unknown", _fix(results.nvml_result))
        found.setdefault("driver", []).append(issue)
    if results.cuda is not None:
        for step, (check, name) in torch_probe.STEPS.items():
            error = results.torch.get(f"{step}_error")
            if error is not None and step not in _CHECKED_SEPARATELY:
                status: IssueStatus = "broken" if step in _REQUIRED_STEPS else "warning"
                first_line = str(error).strip().splitlines()[0]
                found.setdefault(check, []).append(messages.failed(name, first_line, status))
    return found


def libcuda_fails(results: ProbeResults) -> bool:
    """Return whether the driver's CUDA library hangs or crashes when it is loaded or initialized."""
    result = results.cuda_result
    return result.ending in ("hung", "crashed") and result.unfinished in ("load", "init")


def _crash_fix(results: ProbeResults) -> Fix:
    """Return the fix for a crash in the driver's CUDA library, which has been loaded without torch."""
    preload, library = results.variables.get("LD_PRELOAD"), ", ".join(results.mapped("libcuda"))
    if preload:
        return messages_packages.unset_preload(preload)
    return messages.repair_driver(library or "libcuda.so.1")


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
        issue = messages.unfinished(name, result, _status(result), _fix(result))
        found.append((check, issue))
    reached = order.index(step) + 1 if step in steps else 0
    left: dict[str, list[str]] = {}
    for check, name in (steps[step] for step in order[reached:]):
        left.setdefault(check, []).append(name)
    found += (
        (check, messages.not_reached(names, _step_name(result, steps), result))
        for check, names in left.items()
    )
    return found


def _status(result: ProbeResult) -> IssueStatus:
    return "unknown" if result.ending == "hung" and result.silent_s < _MIN_SILENCE_S else "broken"


def _fix(result: ProbeResult) -> Fix:
    return messages.see_what_hangs() if result.ending == "hung" else messages.see_what_crashes()
