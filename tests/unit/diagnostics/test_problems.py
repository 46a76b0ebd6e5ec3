"""Tests that issues with one cause are one problem with one fix, and that problems are listed in the order of
fixing, in all forms of a diagnosis."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from helpers_doctor import (
    CUDNN_FILE,
    NO_CUDA,
    NO_GPUS,
    devices,
    h200,
    no_driver,
    no_import,
    nvml,
    results,
)

from gpuwidget.diagnostics.files_probe import CheckedPackage, DamagedFile
from gpuwidget.diagnostics.isolated_run import parse_diagnosis
from gpuwidget.diagnostics.machine import LoggedXid
from gpuwidget.diagnostics.probe_process import ProbeResult
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.diagnostics.problems import _FIXING_ORDER, _RULES
from gpuwidget.diagnostics.run_checks import _summary, diagnose
from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.to_json import to_json
from gpuwidget.sources.nvml_diagnostics import LostGpu
from gpuwidget.views import diagnosis_view

LIBCUDNN = "libcudnn.so.9: cannot open shared object file: No such file or directory"
DAMAGED = CheckedPackage(
    "nvidia-cudnn-cu13",
    "9.10.2.21",
    1,
    (DamagedFile("nvidia/cudnn/lib/libcudnn.so.9", "empty", 0, 64, None, library=True),),
    1,
)
CONTAINER = results(machine={"container": "/.dockerenv", "devices": ()}, **NO_GPUS)
CRASH = {"step": "init", "cuda_driver": 13000}


def problems(doctor: Diagnosis) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return check, issue and affected checks of each problem."""
    return [(problem.check, problem.issues[0], problem.affects) for problem in doctor.problems]


def with_damage(**values: Any) -> ProbeResults:
    return results(
        files_result=ProbeResult("ended", "", {"step": "end", "checked": [to_json(DAMAGED)]}), **values
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(
            CONTAINER,
            [("driver", "container-without-gpus", ("device_files", "gpu"))],
            id="container without GPUs",
        ),
        pytest.param(
            results(
                torch={"libcuda_error": "libcuda.so.1: cannot open shared object file", "cu_init": None},
                nvml=nvml(),
                machine={"container": "/.dockerenv", "devices": ()},
            ),
            [("device_files", "container-without-device-files", ("driver", "gpu"))],
            id="container without GPUs and libcuda",
        ),
        pytest.param(
            results(
                machine={"devices": (), "module": None}, variables={"CUDA_VISIBLE_DEVICES": "0"}, **NO_GPUS
            ),
            [("driver", "driver-start-failed", ("device_files", "gpu", "visible"))],
            id="no driver",
        ),
        pytest.param(
            results(
                torch={"cu_init": 999, "cu_count": None, "available": False},
                machine={"expected": ("/dev/nvidia-uvm",)},
            ),
            [("device_files", "control-files-missing", ("gpu",))],
            id="no nvidia-uvm",
        ),
        pytest.param(
            results(torch=NO_CUDA, nvml=no_driver(4), machine={"devices": devices("nvidia0", usable=False)}),
            [("device_files", "device-files-forbidden", ("driver", "gpu"))],
            id="no permission",
        ),
        pytest.param(
            results(torch=no_import(LIBCUDNN)),
            [("cudnn", "library-missing", ("torch",))],
            id="no cuDNN",
        ),
        pytest.param(
            with_damage(torch=no_import(LIBCUDNN)),
            [("cudnn", "library-missing", ("torch",))],
            id="empty cuDNN",
        ),
        pytest.param(
            results(
                torch=no_import("libtorch_cuda.so: undefined symbol: ncclCommInit"),
                packages={"required": {"nvidia-nccl-cu13": "==2.28.3"}},
            ),
            [("nccl", "required-package-version", ("torch",))],
            id="NCCL of another version",
        ),
        pytest.param(
            results(
                torch={"mapped": [CUDNN_FILE, "/opt/c/libcudnn_ops.so.9", "/opt/c/libcudart.so.13"]},
                machine={"libraries": {"/opt/c": ("libcudnn_ops.so.9", "libcudart.so.13")}},
            ),
            [("cuda", "library-overridden", ("cudnn",))],
            id="one folder of LD_LIBRARY_PATH",
        ),
        pytest.param(
            results(
                nvml=nvml(h200(), lost=(LostGpu(1, 15, "lost"),)),
                machine={"xids": (LoggedXid("0000:02:00", 79, 0.0, "drain"),)},
            ),
            [("gpu", "gpu-lost", ("health",))],
            id="lost GPU",
        ),
        pytest.param(
            replace(
                results(torch={"available": None}),
                cuda_result=ProbeResult("crashed", "SIGABRT", CRASH),
                torch_result=ProbeResult("crashed", "SIGABRT", {"step": "import"}),
            ),
            [("driver", "step-unfinished", ("torch", "cuda", "cudnn", "nccl", "gpu"))],
            id="crash in cuInit",
        ),
    ],
)
def test_one_cause_is_one_problem(
    one: ProbeResults, expected: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    """Issues that follow from one cause are one problem of the check that has found the cause."""
    doctor = diagnose(one)
    assert problems(doctor) == expected
    assert doctor.summary.startswith("1 problem: ") or doctor.status != "broken"


def test_every_issue_belongs_to_one_problem() -> None:
    """Each check without a good result has found a problem, or is affected by one."""
    doctor = diagnose(CONTAINER)
    found = {check for problem in doctor.problems for check in (problem.check, *problem.affects)}
    assert found == {check.id for check in doctor.links if check.issues}


def test_problems_in_the_order_of_fixing() -> None:
    """Broken checks come before warnings, and the driver before torch, because torch's build depends on it.
    Two causes in one check are two problems."""
    doctor = diagnose(
        results(
            torch={**NO_CUDA, "cuda": None, "version": "2.13.0+cpu"},
            nvml=no_driver(9),
            machine={"shm": None, "xids": None},
            variables={"GPUWIDGET_SOURCE": "replay"},
        )
    )
    assert [(check, issue) for check, issue, _ in problems(doctor)] == [
        ("driver", "driver-not-loaded"),
        ("torch", "torch-without-cuda"),
        ("package", "gpuwidget-source"),
    ]
    assert doctor.summary == f"2 problems: Driver, PyTorch. {doctor.problems[0].reasons[0]}"
    switches = diagnose(results(variables={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}))
    assert problems(switches) == [("nccl", "nccl-switch", ()), ("nccl", "nccl-switch", ())]
    assert switches.summary == "Nothing is broken; 2 warnings: NCCL."
    unknown = replace(switches.problems[0], status="unknown")
    titles = {"nccl": "NCCL"}
    assert _summary([*switches.problems, unknown], titles, (), results()) == (
        "Nothing is broken; 2 warnings: NCCL; no result: NCCL."
    )
    assert _summary([unknown, unknown], titles, (), results()) == "Nothing is broken; no result: NCCL."
    broken = [replace(problem, status="broken") for problem in switches.problems]
    assert _summary(broken, titles, (), results()).startswith("2 problems: NCCL. ")


def test_a_problem_as_text() -> None:
    """The text lists the problems first. A problem names the checks that it affects, and such a check refers
    to the check with the cause instead of repeating a fix."""
    doctor = diagnose(CONTAINER)
    (cause,) = doctor.problems
    assert cause.fix is not None
    lines = diagnosis_view.text(doctor, 100).splitlines()
    assert lines[:10] == [
        f"1 problem: Driver. {cause.reasons[0]}",
        "",
        "BROKEN   Driver         580.95.05, for CUDA up to 13.0",
        f"           {cause.reasons[0]}",
        f"           Fix: {cause.fix.text}",
        "           Also affected: Device files, GPU.",
        "OK       PyTorch        2.13.0, built for CUDA 13.0",
        "OK       CUDA runtime   13.0",
        "OK       cuDNN          9.10.2",
        "OK       NCCL           2.27.5",
    ]
    assert lines[10:14] == [
        "BROKEN   Device files   none",
        "           See: Driver.",
        "unknown  GPU            not visible",
        "           See: Driver.",
    ]
    assert sum("Fix:" in line for line in lines) == 1


def test_a_problem_as_html() -> None:
    """The HTML has the same order, fixes and references as the text."""
    html = diagnosis_view.html(diagnose(CONTAINER))
    assert html.count("<b>Fix:</b>") == 1
    assert "<div>Also affected: Device files, GPU.</div>" in html
    assert html.count("<div>See: Driver.</div>") == 2
    assert html.index(">Driver</th>") < html.index(">PyTorch</th>")


def test_a_problem_as_json() -> None:
    """The JSON contains the problems, and they can be read back."""
    doctor = diagnose(CONTAINER)
    values = json.loads(json.dumps(to_json(doctor)))
    (problem,) = values["problems"]
    assert (problem["check"], problem["status"]) == ("driver", "broken")
    assert problem["issues"] == ["container-without-gpus"]
    assert problem["reasons"] == [doctor.problems[0].reasons[0]]
    assert (problem["fix"]["id"], problem["fix"]["params"]) == ("start-container-with-gpus", {})
    assert problem["affects"] == ["device_files", "gpu"]
    assert parse_diagnosis(values) == doctor
    del values["problems"]
    assert parse_diagnosis(values) == replace(doctor, problems=())


def test_issues_with_the_same_fix_in_one_check() -> None:
    """Several issues of one check with the same fix are one problem, whose reasons are all shown."""
    gpus = nvml(h200(ecc_uncorrected=2), h200(1, ecc_uncorrected=3))
    (problem,) = diagnose(results(nvml=gpus)).problems
    assert problem.issues == ("memory-errors-uncorrected", "memory-errors-uncorrected")
    assert [reason[:5] for reason in problem.reasons] == ["GPU 0", "GPU 1"]


def test_every_check_has_its_place_in_the_order_of_fixing() -> None:
    """The order of fixing contains each check once."""
    assert sorted(_FIXING_ORDER) == sorted(check.id for check in diagnose(results()).links)


def test_rules_name_existing_issues() -> None:
    """Every id in a rule is the id of an issue."""
    from unit.diagnostics.test_messages import ids

    named = {id_ for rule in _RULES for id_ in (*rule.ids, *rule.effect_ids)}
    assert named - {*ids()} == set()
