"""Tests on a real GPU that every check of the doctor passes and that its results agree with nvidia-smi and
torch."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from helpers_doctor import checks_by_id
from helpers_gpu import nvidia_smi, run_program

pytestmark = pytest.mark.gpu

CHECKS = ("torch", "cuda", "cudnn", "nccl", "driver", "device_files", "gpu")


def doctor(**environment: str) -> dict[str, Any]:
    """Return the doctor's diagnosis of this environment, with these environment variables added."""
    found: dict[str, Any] = run_program(
        "import gpuwidget\nresult = gpuwidget.doctor().to_dict()", **environment
    )
    return found


def test_all_checks_pass() -> None:
    """On a healthy machine, all checks of PyTorch, CUDA, the driver and the GPU are ok. Other checks may
    warn, but none is broken."""
    found = doctor()
    statuses = {name: check["status"] for name, check in checks_by_id(found).items()}
    assert {name: statuses[name] for name in CHECKS} == dict.fromkeys(CHECKS, "ok"), found
    assert "broken" not in statuses.values(), found


def test_versions_match_torch_and_nvidia_smi() -> None:
    """The doctor reports the same versions as torch, and the same driver version, error counts and link
    widths as nvidia-smi."""
    found = checks_by_id(doctor())
    torch = run_program(
        """
        import torch
        major, rest = divmod(torch.backends.cudnn.version(), 10000)
        result = {
            "torch": f"{torch.__version__}, built for CUDA {torch.version.cuda}",
            "cuda": torch.version.cuda,
            "cudnn": f"{major}.{rest // 100}.{rest % 100}",
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }
        """
    )
    assert {name: found[name]["found"] for name in torch} == torch
    rows = nvidia_smi(
        "driver_version,name,uuid,ecc.errors.uncorrected.volatile.total,pcie.link.width.current"
    )
    assert found["driver"]["evidence"]["driver"] == rows[0][0]
    for index, (_, name, uuid, errors, width) in enumerate(rows):
        assert found["gpu"]["evidence"][f"GPU {index}"].startswith(f"{name}, ")
        assert found["gpu"]["evidence"][f"GPU {index}"].endswith(uuid)
        if errors.isdigit():
            assert f"{errors} uncorrected" in found["health"]["evidence"][f"GPU {index}"]
        if width.isdigit():
            assert found["pcie"]["evidence"][f"GPU {index}"].startswith(f"x{width} of ")


def test_gpus_that_are_hidden() -> None:
    """If CUDA_VISIBLE_DEVICES hides all GPUs, the check of this variable is broken."""
    found = doctor(CUDA_VISIBLE_DEVICES="-1")
    assert (found["status"], checks_by_id(found)["visible"]["status"]) == ("broken", "broken")


def test_the_checks_open_no_context() -> None:
    """The doctor opens no CUDA context, neither in its own process nor in its probe processes."""
    used = run_program(
        """
        import gpuwidget, threading
        source = gpuwidget.sample()
        before = [reading.memory_used for reading in source.readings]
        peak = list(before)
        doctor = threading.Thread(target=gpuwidget.doctor)
        doctor.start()
        while doctor.is_alive():
            now = [reading.memory_used for reading in gpuwidget.sample().readings]
            peak = list(map(max, peak, now))
        result = [highest - first for highest, first in zip(peak, before)]
        """
    )
    # A CUDA context takes hundreds of MiB, an NVML client only a few.
    assert max(used) < 64 * 1024**2


def test_the_commands_exit_status() -> None:
    """`gpuwidget doctor --json` exits with status 0 and prints JSON that a script can parse."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuwidget", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["schema"]) == (0, 1), done.stdout


def test_error_counts_match_nvidia_smi() -> None:
    """The number of uncorrected ECC errors is the same as in nvidia-smi, and a healthy GPU has no XID."""
    readings = run_program(
        """
        import dataclasses, gpuwidget
        sample = gpuwidget.sample()
        result = [dataclasses.asdict(reading) for reading in sample.readings]
        """
    )
    rows = nvidia_smi("ecc.errors.uncorrected.volatile.total")
    for reading, (errors,) in zip(readings, rows, strict=True):
        if reading["ecc_uncorrected"] is not None:
            assert str(reading["ecc_uncorrected"]) == errors
        assert reading["xid"] is None


def test_a_variable_that_is_set_after_cuda_started() -> None:
    """If CUDA_VISIBLE_DEVICES was set before CUDA was initialized, its check is ok. If it is changed later,
    the check warns."""
    before, after = run_program(
        """
        import os
        import torch
        import gpuwidget
        torch.ones(1, device="cuda")
        before = gpuwidget.doctor().to_dict()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        result = [before, gpuwidget.doctor().to_dict()]
        """
    )
    assert checks_by_id(before)["visible"]["status"] == "ok"
    late = checks_by_id(after)["visible"]
    assert (late["status"], late["reason"]) == (
        "warning",
        (
            "CUDA_VISIBLE_DEVICES was set to '' after CUDA was started. The change has no "
            "effect in this notebook until the kernel is restarted."
        ),
    )
    assert after["status"] != "broken"
