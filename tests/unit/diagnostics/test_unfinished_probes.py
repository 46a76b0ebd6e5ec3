"""Tests of probe steps that hang, crash or raise an exception. The diagnosis names every such step."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers_doctor import (
    CUDA,
    NOT_INSTALLED,
    TORCH,
    WORKING,
    build_libcuda,
    check_of,
    fake_torch,
    issue,
    outcome,
    results,
)
from nvml_standin import Standin

from gpuwidget.diagnostics import cuda_probe, probe_process, target, torch_probe
from gpuwidget.diagnostics.probe_process import Ending, ProbeEnvironment, ProbeProcess, ProbeResult
from gpuwidget.diagnostics.run_checks import diagnose, run_checks
from gpuwidget.diagnostics.target import Target
from gpuwidget.model.diagnosis import Diagnosis

PROBE_TIMEOUT_S = 8.0
STEPS = [
    *(("torch_result", step) for step in torch_probe.STEPS),
    *(("cuda_result", step) for step in cuda_probe.STEPS),
    *(
        ("nvml_result", step)
        for step in ("import pynvml", "nvmlInit", "NVML's query of GPU 3", "nvmlShutdown")
    ),
    *(("files_result", step) for step in ("reading the packages' file lists", "checking the files of torch")),
]
NAMES = {step: name for steps in (torch_probe.STEPS, cuda_probe.STEPS) for step, (_, name) in steps.items()}


def values_until(probe: str, step: str) -> dict[str, Any]:
    """Return the values that a probe has sent when it stops in ``step``."""
    steps, values = (torch_probe.STEPS, TORCH) if probe == "torch_result" else (cuda_probe.STEPS, CUDA)
    if probe not in ("torch_result", "cuda_result"):
        return {"step": step}
    left = list(steps)[list(steps).index(step) :]
    unknown = {*left, *(("imported", "cuda", "version") if step == "import" else ())}
    unknown |= {"cu_init", "cu_count"} if step in ("load", "init") else set()
    return {name: value for name, value in values.items() if name not in unknown} | {"step": step}


def all_texts(doctor: Diagnosis) -> str:
    """Return all reasons, fixes and evidence of a diagnosis as one text."""
    return "\n".join(
        text for one in doctor.links for text in (one.reason or "", one.remedy or "", *one.evidence.values())
    )


@pytest.mark.parametrize("ending", ["hung", "crashed", "ended", "not started"])
@pytest.mark.parametrize(("probe", "step"), STEPS)
def test_every_step_that_does_not_finish_is_named(probe: str, step: str, ending: Ending) -> None:
    """If a probe stops in a step, the diagnosis names the step, and the status of the diagnosis is not
    "ok"."""
    detail = {"crashed": "SIGSEGV", "not started": "No such file"}.get(ending, "")
    values = {} if ending == "not started" else values_until(probe, step)
    changes: dict[str, Any] = {probe: ProbeResult(ending, detail, values, 9.0 if ending == "hung" else 0.0)}
    if probe == "nvml_result":
        changes["nvml"] = None
    doctor = diagnose(replace(results(), **changes))
    assert not doctor.summary.startswith("No problems")
    assert doctor.status != "ok"
    assert not doctor.ok
    if ending == "not started":
        assert doctor.unfinished == ("starting Python",)
    else:
        assert doctor.unfinished == (NAMES.get(step, step),)
        assert NAMES.get(step, step).lower() in all_texts(doctor).lower()


@pytest.mark.parametrize("probe", ["nvml_result", "files_result"])
def test_unfinished_steps_on_a_server_without_torch(probe: str) -> None:
    """On a server without torch, where most checks are skipped, an unfinished step is still reported."""
    one = results(place="server", **NOT_INSTALLED)
    changed: dict[str, Any] = {probe: ProbeResult("crashed", "SIGSEGV", {"step": "odd"})}
    doctor = diagnose(replace(one, **changed))
    assert (doctor.unfinished, doctor.ok) == (("odd",), False)
    assert "odd" in doctor.summary.lower()
    assert "crashed Python (SIGSEGV)." in doctor.summary


def test_all_steps_finished() -> None:
    """If every step has finished and no check has an issue, the summary states that everything from
    PyTorch to the GPU was found."""
    doctor = diagnose(results())
    assert (doctor.unfinished, doctor.ok) == ((), True)
    assert doctor.summary.startswith("No problems")


@pytest.mark.parametrize("step", [step for step in torch_probe.STEPS if step not in ("import", "libraries")])
def test_every_step_that_raises_is_named(step: str) -> None:
    """If a step raises an exception, the check of that step shows the exception and is "broken" or a
    "warning"."""
    which, name = torch_probe.STEPS[step]
    doctor = diagnose(results(torch={step: None, f"{step}_error": "RuntimeError: odd"}))
    one = next(one for one in doctor.links if one.id == which)
    assert one.status in ("broken", "warning")
    expected = {
        "cudnn": issue("cudnn-fails", error="RuntimeError: odd"),
        "numpy": issue("numpy-fails", error="RuntimeError: odd"),
    }
    failed = issue("step-failed", step=name, error="RuntimeError: odd")
    assert outcome(one)[1] == expected.get(step, failed)


def test_steps_that_were_not_reached_are_unknown() -> None:
    """If a step hangs, the checks that depend on later steps are "unknown", and their reason names the step
    that hung."""
    values = {**values_until("torch_result", "distributed")}
    one = replace(results(), torch_result=ProbeResult("hung", "", values, 9.0))
    hung = {"step": "torch.distributed.is_available()", "ending": "hung", "how": "", "silent_s": 9.0}
    assert outcome(check_of("nccl", one))[1] == issue("step-unfinished", **hung)
    assert (check_of("cudnn", one).status, check_of("cudnn", one).found) == ("unknown", "not checked")
    not_reached = (
        "torch.backends.cudnn.enabled",
        "torch._C._cudnn.getCompileVersion()",
        "torch.backends.cudnn.version()",
    )
    assert outcome(check_of("cudnn", one))[1] == issue("steps-not-reached", **hung, steps=not_reached)
    assert check_of("gpu", one).status == "unknown"


def test_an_import_that_takes_long_is_not_called_broken() -> None:
    """If `import torch` times out, no check is "broken", because a slow network disk can be the cause. The
    summary calls the PyTorch check incomplete."""
    values = values_until("torch_result", "import")
    one = replace(results(), torch_result=ProbeResult("hung", "", values, 15.0))
    doctor = diagnose(one)
    assert {check.status for check in doctor.links} <= {"ok", "unknown", "skipped"}
    assert doctor.problems[0].issues == ("torch-import-timeout",)
    assert doctor.summary == f"Incomplete: PyTorch. {doctor.problems[0].reasons[0]}"
    assert not doctor.ok


def test_a_step_that_had_no_time_left_is_not_called_broken() -> None:
    """If a step begins shortly before the time is up, because earlier steps were slow, the step's check is
    "unknown", not "broken"."""
    one = replace(
        results(), torch_result=ProbeResult("hung", "", values_until("torch_result", "available"), 0.4)
    )
    assert outcome(check_of("gpu", one))[:2] == (
        "unknown",
        issue("step-unfinished", step="torch.cuda.is_available()", ending="hung", how="", silent_s=0.4),
    )


def test_the_run_ends_within_20_seconds() -> None:
    """The probes end before the deadline of the process that runs them, and that process ends within 20
    seconds."""
    assert target.PROBE_TIMEOUT_S + probe_process._KILL_TIMEOUT_S < target.RUN_TIMEOUT_S
    assert target.RUN_TIMEOUT_S + probe_process._KILL_TIMEOUT_S <= 20.0


# -- real probe processes --------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path, library: Path) -> ProbeEnvironment:
    """Return an environment with a fake torch, an NVML stand-in and a fake libcuda, all of which work."""
    standin = Standin(library, tmp_path / "driver", "gpus=2\ndriver=580.95.05")
    build_libcuda(standin.folder)
    fake_torch(tmp_path / "site", WORKING)
    variables = {**standin.environment(), "PATH": "/usr/bin:/bin"}
    return ProbeEnvironment(sys.executable, [str(tmp_path / "site"), *sys.path], variables)


@pytest.mark.parametrize("probe", [torch_probe, cuda_probe])
def test_each_step_is_announced_before_it_begins(probe: Any, environment: ProbeEnvironment) -> None:
    """A probe sends the names of its steps in the order of its table STEPS, followed by "end" at the end of
    the probe."""
    child = ProbeProcess(probe.__name__, environment)
    assert child.wait(time.monotonic() + 60.0).unfinished is None
    result = [json.loads(line.removeprefix(probe_process._MARK)) for line in child._messages]
    assert [values["step"] for values in result if "step" in values] == [*probe.STEPS, "end"]


def test_cuda_that_hangs_is_a_broken_driver(tmp_path: Path, environment: ProbeEnvironment) -> None:
    """If cuInit hangs, the driver check is "broken". The diagnosis names every unfinished step and keeps the
    results of the finished steps."""
    hanging = WORKING.replace("version=lambda: 91002", "version=lambda: __import__('time').sleep(600)")
    (tmp_path / "site/torch/__init__.py").write_text(hanging)
    hung = replace(environment, variables={**environment.variables, "FAKE_CUINIT": "hang"})
    doctor = run_checks(Target("shell", "0.1.0", hung, root=tmp_path, timeout_s=PROBE_TIMEOUT_S))
    found = {check.id: check for check in doctor.links}
    assert (doctor.status, doctor.ok) == ("broken", False)
    assert doctor.unfinished == ("torch.backends.cudnn.version()", "CUDA initialization (cuInit)")
    for which, step in zip(("cudnn", "driver"), doctor.unfinished, strict=True):
        worst = found[which].issues[0]
        assert (worst.id, worst.params["step"], worst.params["ending"]) == ("step-unfinished", step, "hung")
    assert doctor.summary == f"1 problem: Driver. {found['driver'].reason}"
    assert found["driver"].status == "broken"
    assert found["torch"].found == "2.10.0, built for CUDA 12.8"
    assert found["nccl"].found == "2.27.5"
    assert "torch.cuda.is_available()" in [
        step for each in found["gpu"].issues for step in each.params.get("steps", ())
    ]
