"""Problems of the examination itself: probe steps that hung, crashed, raised or were never reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuwidget.diagnostics import cuda_probe, torch_probe
from gpuwidget.diagnostics.issues import Finding
from gpuwidget.diagnostics.probe_process import Said
from gpuwidget.diagnostics.probe_results import Facts

_SHORT_S = 2.0
"""A step that was killed after less was short of time, and nothing is known against it."""
_START_PYTHON = "starting Python"
_HANGS = (
    "Run the doctor again. If it still does not return, see whether nvidia-smi hangs too and what the kernel "
    "log (dmesg) says; a restart of the machine usually helps."
)
_CRASHES = "See what the kernel log (dmesg) says, and whether the driver and PyTorch's libraries fit."
_SERIOUS = ("available", "count")
"""Steps of torch without whose result it can't use a GPU."""
_START_CUDA = ("cudnn", "available", "count")
"""Steps of torch that start CUDA."""
_TOLD_ELSEWHERE = ("import", "cudnn", "numpy")
"""Steps whose own failure the link of PyTorch or of cuDNN explains in detail."""
_Steps = Mapping[str, tuple[str, str]]


def unfinished(facts: Facts) -> tuple[str, ...]:
    """Return the step at which each incomplete probe stopped, by its name on the screen."""
    probes = _probes(facts)
    return tuple(_name(said, steps) for said, steps in probes if said.unfinished is not None)


def problems(facts: Facts) -> dict[str, list[Finding]]:
    """Return the findings about unfinished and failed steps, by the id of the link that they belong to.

    Every step without a result has one, so that no link reads as found that was not checked.
    """
    found: dict[str, list[Finding]] = {}
    for said, steps in _probes(facts):
        for link, finding in _stopped(said, steps):
            if said is facts.torch_said and said.unfinished in _START_CUDA and _cuda_hangs(facts):
                # A consequence: the driver's link is the broken one.
                finding = replace(finding, status="unknown", remedy="Fix the problem of the driver first.")
            found.setdefault(link, []).append(finding)
    if facts.files_said.unfinished is not None:
        name = _name(facts.files_said, {})
        reason = f"Not all installed files were compared: {name} {_how(facts.files_said)}."
        found.setdefault("torch", []).append(Finding("unknown", reason, None))
    # Without an answer of NVML the driver's link has told so.
    if facts.nvml_said.unfinished is not None and facts.nvml is not None:
        finding = _problem(facts.nvml_said, _name(facts.nvml_said, {}))
        found.setdefault("driver", []).append(replace(finding, status="unknown"))
    if facts.cuda is not None:
        for step, (link, name) in torch_probe.STEPS.items():
            error = facts.torch.get(f"{step}_error")
            if error is not None and step not in _TOLD_ELSEWHERE:
                reason = f"{name} raises {str(error).strip().splitlines()[0]}"
                found.setdefault(link, []).append(
                    Finding("broken" if step in _SERIOUS else "warning", reason, None)
                )
    return found


def _cuda_hangs(facts: Facts) -> bool:
    return facts.cuda_said.ending == "hung" and facts.cuda_said.unfinished == "init"


def _probes(facts: Facts) -> tuple[tuple[Said, _Steps], ...]:
    return (
        (facts.torch_said, torch_probe.STEPS),
        (facts.cuda_said, cuda_probe.STEPS),
        (facts.nvml_said, {}),
        (facts.files_said, {}),
    )


def _name(said: Said, steps: _Steps) -> str:
    step = said.unfinished or ""
    return steps[step][1] if step in steps else step or _START_PYTHON


def _stopped(said: Said, steps: _Steps) -> list[tuple[str, Finding]]:
    """The findings about one probe: the step at which it stopped, and what was not reached after it."""
    step = said.unfinished
    if step is None or not steps:
        return []
    order = list(steps)
    found = []
    if step in steps and step != "import":
        found.append((steps[step][0], _problem(said, steps[step][1])))
    reached = order.index(step) + 1 if step in steps else 0
    left: dict[str, list[str]] = {}
    for link, name in (steps[one] for one in order[reached:]):
        left.setdefault(link, []).append(name)
    for link, names in left.items():
        reason = f"Not checked, since {_name(said, steps)} {_how(said)}: {', '.join(names)}."
        found.append((link, Finding("unknown", reason, None)))
    return found


def _problem(said: Said, name: str) -> Finding:
    name = name if "." in name.split()[0] else name[0].upper() + name[1:]
    if said.ending == "hung":
        return Finding("broken" if said.silent_s >= _SHORT_S else "unknown", f"{name} {_how(said)}.", _HANGS)
    return Finding("broken", f"{name} {_how(said)}.", _CRASHES)


def _how(said: Said) -> str:
    match said.ending:
        case "hung":
            seconds = int(said.silent_s)
            return f"did not return within {seconds} s" if seconds else "had not returned when time was up"
        case "crashed":
            return f"crashed Python ({said.how})"
        case "not started":
            return f"failed ({said.how})"
        case _:
            return "ended Python without an error"
