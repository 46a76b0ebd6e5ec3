"""On a real GPU: all links of the chain are found, and what they say is nvidia-smi's and torch's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from helpers_gpu import nvidia_smi, run_program

pytestmark = pytest.mark.gpu

CHAIN = ("torch", "cuda", "cudnn", "nccl", "driver", "device_files", "gpu")


def doctor(**environment: str) -> dict[str, Any]:
    """The diagnosis of this environment."""
    found: dict[str, Any] = run_program(
        "import gpuwidget\nresult = gpuwidget.doctor().to_dict()", **environment
    )
    return found


def links(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By id."""
    return {link["id"]: link for link in found["links"]}


def test_all_links_are_found() -> None:
    """From PyTorch down to the GPU; nothing is broken around them."""
    found = doctor()
    statuses = {which: link["status"] for which, link in links(found).items()}
    assert {which: statuses[which] for which in CHAIN} == dict.fromkeys(CHAIN, "ok"), found
    assert "broken" not in statuses.values(), found


def test_the_versions_are_torchs_and_nvidia_smis() -> None:
    """What each link found, by the ones that it is about."""
    found = links(doctor())
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
    assert {which: found[which]["found"] for which in torch} == torch
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
    """CUDA_VISIBLE_DEVICES is named as the one that hides them."""
    found = doctor(CUDA_VISIBLE_DEVICES="-1")
    assert (found["status"], links(found)["visible"]["status"]) == ("broken", "broken")


def test_looking_opens_no_context() -> None:
    """No process has a context on any GPU for it: neither the one that asks nor those that look."""
    used = run_program(
        """
        import gpuwidget, threading
        source = gpuwidget.sample()
        before = [reading.memory_used for reading in source.readings]
        most = list(before)
        looking = threading.Thread(target=gpuwidget.doctor)
        looking.start()
        while looking.is_alive():
            now = [reading.memory_used for reading in gpuwidget.sample().readings]
            most = list(map(max, most, now))
        result = [after - one for after, one in zip(most, before)]
        """
    )
    # A context takes hundreds of MiB; clients that come and go, a few.
    assert max(used) < 64 * 1024**2


def test_the_commands_exit_status() -> None:
    """0, and JSON that a script can read."""
    done = subprocess.run(
        [sys.executable, "-m", "gpuwidget", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["schema"]) == (0, 1), done.stdout


def test_errors_are_those_that_nvidia_smi_counts() -> None:
    """A healthy GPU has uncorrected errors as nvidia-smi counts them, and no XID while it was watched."""
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


def test_a_variable_that_is_set_once_cuda_is_up() -> None:
    """The notebook's GPUs are known to be those that CUDA shows, and what is set later to have no effect."""
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
    assert links(before)["visible"]["status"] == "ok"
    late = links(after)["visible"]
    assert (late["status"], late["reason"]) == (
        "warning",
        "CUDA_VISIBLE_DEVICES was set to '' after CUDA was started: "
        "it has no effect in this notebook until a restart.",
    )
    assert after["status"] != "broken"
