"""Texts about the probes' steps: those that hung, crashed, raised or were not reached."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwidget.diagnostics.messages import text_fix
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus
from gpuwidget.model.translation import joined, translatable

PYTHON_START = translatable("starting Python")
"""The step name that is displayed if a probe ends before its first step."""
_CODE = re.compile(r"[\w.]+(\(\))?")
"""Matches the name of a step that is code, such as ``torch.cuda.is_available()``."""


def unfinished(step: str, result: ProbeResult, status: IssueStatus, fix: Fix) -> Issue:
    """Return the issue of a step that hung or crashed."""
    name = step if _CODE.fullmatch(step) else step[0].upper() + step[1:]
    reason = translatable("{name} {ending}.", name=name, ending=_ending(result))
    return Issue("step-unfinished", status, _params(step, result), reason, fix)


def not_reached(steps: Sequence[str], unfinished_step: str, result: ProbeResult) -> Issue:
    """Return the issue of steps that were not reached because an earlier step hung or crashed."""
    params = {**_params(unfinished_step, result), "steps": tuple(steps)}
    reason = translatable(
        "Some steps did not run, because {unfinished_step} {ending}: {steps}.",
        unfinished_step=unfinished_step,
        ending=_ending(result),
        steps=joined(steps),
    )
    return Issue("steps-not-reached", "unknown", params, reason, None)


def files_not_compared(step: str, result: ProbeResult) -> Issue:
    """Return the issue reporting that the comparison of installed files did not finish."""
    reason = translatable(
        "Not all installed files were compared: {step} {ending}.", step=step, ending=_ending(result)
    )
    return Issue("files-not-compared", "unknown", _params(step, result), reason, None)


def failed(step: str, error: str, status: IssueStatus) -> Issue:
    """Return the issue of a step that raised an error. ``error`` is the first line of the error."""
    params = {"step": step, "error": error}
    return Issue(
        "step-failed", status, params, translatable("{step} raises {error}", step=step, error=error), None
    )


def _params(step: str, result: ProbeResult) -> dict[str, str | float]:
    return {"step": step, "ending": result.ending, "how": result.detail, "silent_s": result.silent_s}


def _ending(result: ProbeResult) -> str:
    match result.ending:
        case "hung":
            seconds = int(result.silent_s)
            return (
                translatable("did not return within {seconds} s", seconds=seconds)
                if seconds
                else translatable("did not finish in time")
            )
        case "crashed":
            return translatable("crashed Python ({detail})", detail=result.detail)
        case "not started":
            return translatable("failed ({detail})", detail=result.detail)
        case _:
            return translatable("ended Python without an error")


def see_what_hangs() -> Fix:
    """Return the fix for a step that hung."""
    return text_fix(
        "see-what-hangs",
        "Run the doctor again. If this step hangs again, see the kernel log (dmesg), and "
        "check whether nvidia-smi hangs too. A restart of the machine usually helps.",
    )


def see_what_crashes() -> Fix:
    """Return the fix for a step that crashed."""
    return text_fix(
        "see-what-crashes",
        "See the kernel log (dmesg), and check that the driver supports PyTorch's CUDA version.",
    )


def repair_driver(library: str) -> Fix:
    """Return the fix for a crash in this file, the driver's CUDA library."""
    return text_fix(
        "repair-driver",
        "The crash is in the driver's library {library}, not in PyTorch. Restart the machine if the driver "
        "was updated; otherwise, install the driver again. The kernel log (dmesg) may show the cause.",
        library=library,
    )


def fix_driver_first() -> Fix:
    """Return the fix for a step that waits for the driver."""
    return text_fix("fix-driver-first", "Fix the driver first.")
