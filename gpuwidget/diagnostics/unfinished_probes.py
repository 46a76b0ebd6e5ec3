"""Issues of the probes themselves: steps that hung, crashed, raised or were not reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuwidget.diagnostics import cuda_probe, torch_probe
from gpuwidget.diagnostics.issues import Issue
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults

_MIN_SILENCE_S = 2.0
"""Seconds. A step that was killed earlier after its last message had too little time, which proves nothing
about it."""
_PYTHON_START = "starting Python"
_HUNG_FIX = (
    "Run the doctor again. If it still does not return, see whether nvidia-smi hangs too and what the kernel "
    "log (dmesg) says; a restart of the machine usually helps."
)
_CRASHED_FIX = "See what the kernel log (dmesg) says, and whether the driver and PyTorch's libraries fit."
_REQUIRED_STEPS = ("available", "count")
"""Steps of the torch probe that must succeed for torch to use a GPU."""
_CUDA_STEPS = ("cudnn", "available", "count")
"""Steps of the torch probe that start CUDA."""
_CHECKED_SEPARATELY = ("import", "cudnn", "numpy")
"""Steps whose failure is explained in detail by the check of PyTorch or of cuDNN."""
_Steps = Mapping[str, tuple[str, str]]


def unfinished_steps(results: ProbeResults) -> tuple[str, ...]:
    """Return, for each unfinished probe, the displayed name of the step at which it stopped."""
    probes = _probes(results)
    return tuple(_step_name(result, steps) for result, steps in probes if result.unfinished is not None)


def probe_issues(results: ProbeResults) -> dict[str, list[Issue]]:
    """Return the issues of unfinished and failed steps, by the id of their check.

    Every step without a result has an issue, so that no check is ``ok`` unless it was actually made.
    """
    found: dict[str, list[Issue]] = {}
    for result, steps in _probes(results):
        for check, issue in _unfinished_issues(result, steps):
            if result is results.torch_result and result.unfinished in _CUDA_STEPS and _cuda_hangs(results):
                # This is a consequence of the driver's problem, which the driver's check reports as broken.
                issue = replace(issue, status="unknown", fix="Fix the problem of the driver first.")
            found.setdefault(check, []).append(issue)
    if results.files_result.unfinished is not None:
        name = _step_name(results.files_result, {})
        reason = f"Not all installed files were compared: {name} {_ending_text(results.files_result)}."
        found.setdefault("torch", []).append(Issue("unknown", reason, None))
    # If NVML returned nothing at all, the driver's check reports it.
    if results.nvml_result.unfinished is not None and results.nvml is not None:
        issue = _step_issue(results.nvml_result, _step_name(results.nvml_result, {}))
        found.setdefault("driver", []).append(replace(issue, status="unknown"))
    if results.cuda is not None:
        for step, (check, name) in torch_probe.STEPS.items():
            error = results.torch.get(f"{step}_error")
            if error is not None and step not in _CHECKED_SEPARATELY:
                reason = f"{name} raises {str(error).strip().splitlines()[0]}"
                found.setdefault(check, []).append(
                    Issue("broken" if step in _REQUIRED_STEPS else "warning", reason, None)
                )
    return found


def _cuda_hangs(results: ProbeResults) -> bool:
    return results.cuda_result.ending == "hung" and results.cuda_result.unfinished == "init"


def _probes(results: ProbeResults) -> tuple[tuple[ProbeResult, _Steps], ...]:
    return (
        (results.torch_result, torch_probe.STEPS),
        (results.cuda_result, cuda_probe.STEPS),
        (results.nvml_result, {}),
        (results.files_result, {}),
    )


def _step_name(result: ProbeResult, steps: _Steps) -> str:
    step = result.unfinished or ""
    return steps[step][1] if step in steps else step or _PYTHON_START


def _unfinished_issues(result: ProbeResult, steps: _Steps) -> list[tuple[str, Issue]]:
    """Return the issues of one probe: for the step at which it stopped, and for the steps after it."""
    step = result.unfinished
    if step is None or not steps:
        return []
    order = list(steps)
    found = []
    if step in steps and step != "import":
        found.append((steps[step][0], _step_issue(result, steps[step][1])))
    reached = order.index(step) + 1 if step in steps else 0
    left: dict[str, list[str]] = {}
    for check, name in (steps[one] for one in order[reached:]):
        left.setdefault(check, []).append(name)
    for check, names in left.items():
        reason = f"Not checked, since {_step_name(result, steps)} {_ending_text(result)}: {', '.join(names)}."
        found.append((check, Issue("unknown", reason, None)))
    return found


def _step_issue(result: ProbeResult, name: str) -> Issue:
    name = name if "." in name.split()[0] else name[0].upper() + name[1:]
    if result.ending == "hung":
        return Issue(
            "broken" if result.silent_s >= _MIN_SILENCE_S else "unknown",
            f"{name} {_ending_text(result)}.",
            _HUNG_FIX,
        )
    return Issue("broken", f"{name} {_ending_text(result)}.", _CRASHED_FIX)


def _ending_text(result: ProbeResult) -> str:
    match result.ending:
        case "hung":
            seconds = int(result.silent_s)
            return f"did not return within {seconds} s" if seconds else "had not returned when time was up"
        case "crashed":
            return f"crashed Python ({result.how})"
        case "not started":
            return f"failed ({result.how})"
        case _:
            return "ended Python without an error"
