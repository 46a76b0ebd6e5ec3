"""Tests of the checks of shared memory and of packages, with the exact ids and parameters of their issues
and fixes, and of the summary of a diagnosis."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from helpers_doctor import (
    GIB,
    NO_GPUS,
    PIP,
    TORCH,
    check_of,
    fix,
    h200,
    issue,
    nvml,
    outcome,
    results,
)

from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.sources.nvml_diagnostics import GpuDiagnostics
from gpuwidget.system.host_limits import SharedMemory


def test_a_healthy_machine_has_no_issues() -> None:
    """On a healthy machine, the diagnosis contains every check in a fixed order, and no check has a reason or
    a fix."""
    doctor = diagnose(results())
    assert doctor.status == "ok"
    assert doctor.summary.startswith("No problems")
    assert [(one.id, one.status, one.found) for one in doctor.links] == [
        ("torch", "ok", "2.13.0, built for CUDA 13.0"),
        ("cuda", "ok", "13.0"),
        ("cudnn", "ok", "9.10.2"),
        ("nccl", "ok", "2.27.5"),
        ("driver", "ok", "580.95.05, for CUDA up to 13.0"),
        ("device_files", "ok", "1 GPU under /dev"),
        ("gpu", "ok", "1 \N{MULTIPLICATION SIGN} NVIDIA H200"),
        ("visible", "ok", "all: CUDA_VISIBLE_DEVICES is not set"),
        ("sharing", "ok", "whole GPUs"),
        ("health", "ok", "No memory errors, not throttled"),
        ("pcie", "ok", "full width (x16)"),
        ("peers", "skipped", "one GPU"),
        ("shm", "ok", "64.0 GiB"),
        ("package", "ok", "0.1.0"),
    ]
    assert {(one.reason, one.remedy, one.issues) for one in doctor.links} == {(None, None, ())}


def test_a_missing_toolkit_is_no_issue() -> None:
    """If nvcc is not installed, the CUDA check states that none is needed, because PyTorch contains its own
    CUDA libraries."""
    assert check_of("cuda", results()).evidence["CUDA toolkit (nvcc)"] == "none (not needed)"
    with_it = results(machine={"nvcc": "/usr/local/cuda/bin/nvcc"})
    assert check_of("cuda", with_it).evidence["CUDA toolkit (nvcc)"] == "/usr/local/cuda/bin/nvcc"


def test_small_shared_memory() -> None:
    """If /dev/shm is full or has only 64 MiB, which is Docker's default, the shared memory check is a warning
    with a fix."""
    small = {"shm": SharedMemory(64 * 1024**2, 64 * 1024**2)}
    docker = check_of("shm", results(machine={**small, "container": "/.dockerenv"}))
    assert outcome(docker) == (
        "warning",
        issue("shm-small", total=64 * 1024**2),
        fix("start-container-with-shm"),
    )
    assert outcome(check_of("shm", results(machine=small)))[2] == (
        fix("enlarge-shm", "sudo mount -o remount,size=50% /dev/shm")
    )
    full = check_of("shm", results(machine={"shm": SharedMemory(8 * GIB, 0)}))
    assert outcome(full)[1] == issue("shm-full", free=0, total=8 * GIB)
    assert check_of("shm", results(machine={"shm": None})).status == "skipped"


def test_files_that_another_package_overwrote() -> None:
    """If the unrelated package gpuwidget from PyPI is installed, the package check names it and counts the
    files of this project that it overwrote."""
    reinstall = fix(
        "reinstall-gpuwidget-manually",
        documentation=None,
        instructions="see docs/using/install.md in gpuwidget's repository",
    )
    over = results(packages={"other": "0.0.3", "changed": ("gpuwidget/__init__.py",)})
    assert outcome(check_of("package", over)) == (
        "warning",
        issue("gpuwidget-overwritten", files=1, other="0.0.3"),
        reinstall,
    )
    beside = results(packages={"other": "0.0.3"})
    assert outcome(check_of("package", beside))[1:] == (
        issue("gpuwidget-other-package", version="0.0.3"),
        reinstall,
    )


def test_how_the_administrator_has_gpuwidget_installed() -> None:
    """If GPUWIDGET_INSTALL_REQUIREMENT is set, the command that repairs gpuwidget installs the requirement in
    that variable. If the variable can't be parsed, the check offers no command."""
    again = f"{PIP} install --force-reinstall --no-deps '/srv/my wheels/x.whl[lab]'"
    wheel = {"GPUWIDGET_INSTALL_REQUIREMENT": "'/srv/my wheels/x.whl[lab]'"}
    changed = {"changed": ("gpuwidget/__init__.py",)}
    assert check_of("package", results(packages=changed, variables=wheel)).command == again
    both = results(packages={**changed, "other": "0.0.3"}, variables=wheel)
    assert check_of("package", both).command == (
        f"{again} --dry-run && {PIP} uninstall -y gpuwidget && {again}"
    )
    named = {
        "GPUWIDGET_INSTALL_REQUIREMENT": "jupyterlab-gpuwidget --index-url https://pypi.example.org/simple"
    }
    assert check_of("package", results(packages=changed, variables=named)).command == (
        f"{PIP} install --force-reinstall --no-deps jupyterlab-gpuwidget==0.1.0 "
        "--index-url https://pypi.example.org/simple"
    )
    wrong = {"GPUWIDGET_INSTALL_REQUIREMENT": "'no end"}
    assert check_of("package", results(packages=changed, variables=wrong)).command is None


def test_a_recording_is_not_this_machine() -> None:
    """If GPUWIDGET_SOURCE selects a recording, the package check warns that charts do not show this machine's
    GPUs. The doctor checks this machine's GPUs nevertheless."""
    assert outcome(check_of("package", results(variables={"GPUWIDGET_SOURCE": "replay"}))) == (
        "warning",
        issue("gpuwidget-source", source="replay"),
        fix("unset-gpuwidget-source"),
    )


def test_the_summary_names_what_to_fix_first() -> None:
    """A diagnosis's summary contains the first check whose status is "broken", the check's reason, and the
    number of other such checks. If no check is "broken", the summary names the first warning."""
    broken = diagnose(results(machine={"container": "/.dockerenv", "devices": ()}, **NO_GPUS))
    (problem,) = broken.problems
    assert problem.issues == ("container-without-gpus",)
    assert (broken.status, broken.summary) == ("broken", f"1 problem: Driver. {problem.reasons[0]}")
    doubtful = diagnose(results(nvml=nvml(h200(pcie_width=8))))
    assert (doubtful.status, doubtful.summary) == (
        "warning",
        "Nothing is broken; 1 warning: PCIe.",
    )


def test_no_secret_is_shown() -> None:
    """A diagnosis contains only environment variables from a fixed list, so that it never contains a
    secret."""
    variables = {"AWS_SECRET_ACCESS_KEY": "s3cret", "CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "s3cret"}
    doctor = diagnose(results(variables=variables))
    assert doctor.variables == {"CUDA_VISIBLE_DEVICES": "0"}
    assert "s3cret" not in repr(doctor)


def test_an_unknown_value_breaks_no_check() -> None:
    """If torch's probe returns no values and NVML returns only the required values of a GPU, every check
    still has a status, and only the PyTorch check is "broken"."""
    unknown: dict[str, Any] = {
        field.name: None for field in fields(GpuDiagnostics) if str(field.type).endswith("| None")
    }
    blank = results(torch=dict.fromkeys(TORCH), nvml=nvml(h200(**unknown)))
    statuses = {one.id: one.status for one in diagnose(blank).links}
    assert [which for which, status in statuses.items() if status == "broken"] == ["torch"]
