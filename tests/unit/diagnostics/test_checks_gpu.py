"""Tests of the checks of the GPUs and of their condition, with the exact ids and parameters of their issues
and fixes."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_doctor import UUIDS, build, check_of, fix, h200, issue, nvml, outcome, results

from gpuwidget.diagnostics.machine import LoggedXid
from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.sources import xids
from gpuwidget.sources.nvml_diagnostics import LostGpu, PeerAccess

# -- whether torch can use the GPUs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "archs", "status"),
    [
        ("9.0", "sm_80 sm_90", "ok"),
        ("8.9", "sm_80 sm_86", "ok"),
        ("9.0", "sm_80 compute_80", "warning"),
        ("9.0", "sm_80 sm_90a", "broken"),
        ("12.0", "sm_80 sm_90", "broken"),
        ("6.1", "sm_75 sm_80 compute_80", "broken"),
        ("8.0", "sm_86", "broken"),
    ],
)
def test_code_for_this_gpu(capability: str, archs: str, status: str) -> None:
    """The GPU check is "ok" if torch contains code for the GPU or for an older GPU of the same major version.
    It is a "warning" if torch can only compile PTX for the GPU, and otherwise "broken"."""
    gpu = h200(compute_capability=capability, name="NVIDIA X")
    assert check_of("gpu", results(torch={"archs": archs.split()}, nvml=nvml(gpu))).status == status


def test_a_gpu_that_torch_has_no_code_for() -> None:
    """If a GPU is too new for torch, the fix is a newer torch. If a GPU is too old for torch, the fix is an
    older torch or a build for an older CUDA."""
    newest = build("cu128", "'torch>=2.7,<2.12'")
    newer = results(
        torch={"archs": ["sm_80", "sm_90"]},
        nvml=nvml(h200(compute_capability="12.0", name="NVIDIA RTX 5090"), driver="570.86"),
    )
    assert outcome(check_of("gpu", newer)) == (
        "broken",
        issue("gpu-without-code", gpu="NVIDIA RTX 5090", capability="12.0", archs=("sm_80", "sm_90")),
        fix("install-torch", newest, why="too-old", last_torch="2.11"),
    )
    older = results(torch={"archs": ["sm_75"]}, nvml=nvml(h200(compute_capability="6.1", name="NVIDIA P4")))
    assert outcome(check_of("gpu", older))[2] == (
        fix(
            "install-older-torch-or-build",
            build("cu126"),
            gpu="NVIDIA P4",
            cuda="12.6",
            last_torch="2.14",
        )
    )
    kepler = results(torch={"archs": ["sm_75"]}, nvml=nvml(h200(compute_capability="3.7", name="NVIDIA K80")))
    assert outcome(check_of("gpu", kepler))[2] == fix("install-older-torch", gpu="NVIDIA K80")


def test_a_lost_gpu_among_others() -> None:
    """The GPU check is a warning if a GPU is lost while another one works. It is "broken" if the only GPU is
    lost."""
    lost = (LostGpu(1, 15, "GPU is lost"),)
    found = check_of("gpu", results(nvml=nvml(h200(), lost=lost)))
    assert outcome(found) == (
        "warning",
        issue("gpu-lost", gpu=1, code=15, error="GPU is lost"),
        fix("see-kernel-log"),
    )
    only = results(nvml=nvml(lost=(LostGpu(0, 1, "odd"),)))
    assert outcome(check_of("gpu", only))[:2] == ("broken", issue("gpu-lost", gpu=0, code=1, error="odd"))


def test_torch_that_cannot_use_a_working_cuda() -> None:
    """If CUDA starts but torch can't use it, the GPU check is "broken" and shows torch's warning."""
    warning = "CUDA initialization: Unexpected error."
    one = results(torch={"available": False, "warnings": [warning]})
    assert outcome(check_of("gpu", one))[:2] == ("broken", issue("cuda-unusable-by-torch", warning=warning))


@pytest.mark.parametrize("cu", [{"cu_init": 100, "cu_count": None}, {"cu_init": 0, "cu_count": 0}])
def test_cuda_that_finds_no_gpu(cu: dict[str, Any]) -> None:
    """If CUDA finds no GPU, the check that explains the cause is "broken", and the GPU check is "ok". If no
    check explains the cause, the GPU check is "broken"."""
    nothing = {**cu, "available": False}
    unexplained = results(torch=nothing, variables={"CUDA_VISIBLE_DEVICES": "0"})
    assert outcome(check_of("gpu", unexplained))[:2] == ("broken", issue("no-gpu-for-cuda"))
    hidden = results(torch=nothing, variables={"CUDA_VISIBLE_DEVICES": "-1"})
    forbidden = results(torch=nothing, nvml=nvml(h200(compute_mode="prohibited")))
    assert [check_of("gpu", one).status for one in (hidden, forbidden)] == ["ok", "ok"]
    assert (check_of("visible", hidden).status, check_of("sharing", forbidden).status) == (
        "broken",
        "broken",
    )


@pytest.mark.parametrize(
    ("value", "status", "found"),
    [
        ("", "broken", "none"),
        ("0", "ok", "1 of 2 GPUs"),
        ("1,0", "ok", "2 of 2 GPUs"),
        (UUIDS[1][:12], "ok", "1 of 2 GPUs"),
        ("0,2", "warning", "1 of 2 GPUs"),
        ("-1", "broken", "none"),
        ("NoDevFiles", "broken", "none"),
        ("0,0", "broken", "none"),
    ],
)
def test_cuda_visible_devices(value: str, status: str, found: str) -> None:
    """The check of CUDA_VISIBLE_DEVICES shows how many of the machine's GPUs the variable makes visible."""
    one = results(variables={"CUDA_VISIBLE_DEVICES": value}, nvml=nvml(h200(0), h200(1)))
    visible = check_of("visible", one)
    assert (visible.status, visible.found) == (status, found)


def shown(*indices: int) -> dict[str, Any]:
    """Return the value that the CUDA probe sends if CUDA finds the GPUs with these indices."""
    if not indices:
        return {"cu_init": 100, "cu_count": None, "available": False}
    cuda = [
        {"name": "NVIDIA H200", "uuid": UUIDS[index][4:].replace("-", ""), "capability": "9.0"}
        for index in indices
    ]
    return {"cu_devices": cuda, "cu_count": len(cuda)}


@pytest.mark.parametrize(
    ("value", "mine", "now", "found"),
    [
        ("", (0, 1), (), "2 of 2 GPUs"),
        ("7", (0, 1), (), "2 of 2 GPUs"),
        ("1", (0, 1), (1,), "2 of 2 GPUs"),
        ("1", (0,), (1,), "1 of 2 GPUs"),
        (None, (0,), (0, 1), "1 of 2 GPUs"),
    ],
)
def test_a_variable_that_was_set_after_cuda_was_started(
    value: str | None, mine: tuple[int, ...], now: tuple[int, ...], found: str
) -> None:
    """If CUDA_VISIBLE_DEVICES was changed after the notebook started CUDA, the check warns that the change
    has no effect until the kernel is restarted."""
    one = results(
        torch=shown(*now),
        variables={} if value is None else {"CUDA_VISIBLE_DEVICES": value},
        nvml=nvml(h200(0), h200(1)),
        notebook=NotebookState("2.13.0", devices=[UUIDS[index][4:] for index in mine]),
    )
    assert outcome(check_of("visible", one)) == (
        "warning",
        issue("visible-devices-changed-after-start", value=value, reordered=False),
        fix("restart-and-set-visible-devices"),
    )
    assert check_of("visible", one).found == f"{found} in this notebook"
    assert diagnose(one).status == "warning"


def test_a_variable_that_was_set_in_time() -> None:
    """If CUDA_VISIBLE_DEVICES selects the GPUs that the notebook's CUDA uses, the check is "ok", even if one
    of these GPUs has been lost since CUDA was started."""
    two = nvml(h200(0), h200(1))
    mine = NotebookState("2.13.0", devices=[UUIDS[1][4:]])
    value = {"CUDA_VISIBLE_DEVICES": "1"}
    one = results(torch=shown(1), variables=value, nvml=two, notebook=mine)
    assert outcome(check_of("visible", one)) == ("ok", None, None)
    unsaid = results(torch=shown(1), variables=value, nvml=two, notebook=NotebookState("2.0", devices=[None]))
    assert check_of("visible", unsaid).status == "ok"
    both = NotebookState("2.13.0", devices=[UUIDS[0][4:], UUIDS[1][4:]])
    lost = results(torch=shown(0), nvml=nvml(h200(0), lost=(LostGpu(1, 15, "GPU is lost"),)), notebook=both)
    assert check_of("visible", lost).status == "ok"


def test_a_bad_entry_of_cuda_visible_devices_is_named() -> None:
    """The warning names the invalid entry of CUDA_VISIBLE_DEVICES, and explains that CUDA ignores it and all
    later entries."""
    one = results(variables={"CUDA_VISIBLE_DEVICES": "0,7,1"}, nvml=nvml(h200(0), h200(1)))
    assert outcome(check_of("visible", one)) == (
        "warning",
        issue("visible-devices-entry-rejected", value="0,7,1", entry="7", why="out-of-range", number=2),
        fix("set-visible-devices"),
    )


def test_mig_without_a_slice() -> None:
    """If the only GPU is in MIG mode and has no slice, the sharing check is "broken". If there is another
    GPU, the check is a warning."""
    empty = h200(0, mig=True, mig_pending=True)
    assert outcome(check_of("sharing", results(nvml=nvml(empty)))) == (
        "broken",
        issue("mig-without-slice", gpus=(0,)),
        fix("create-mig-slice", "sudo nvidia-smi mig -cgi 0 -C"),
    )
    assert check_of("sharing", results(nvml=nvml(empty, h200(1)))).status == "warning"
    cut = h200(0, mig=True, mig_pending=True, slices=("MIG-a", "MIG-b"))
    assert outcome(check_of("sharing", results(nvml=nvml(cut)))) == ("ok", None, None)
    assert check_of("sharing", results(nvml=nvml(cut))).found == "MIG: 2 slices"


def test_compute_modes_and_mps() -> None:
    """If a GPU's compute mode is "prohibited", the sharing check is "broken". If the mode is "exclusive
    process", the check is a warning, or "ok" if MPS is running."""
    assert outcome(check_of("sharing", results(nvml=nvml(h200(compute_mode="prohibited")))))[:2] == (
        "broken",
        issue("compute-mode-prohibited", gpus=(0,)),
    )
    alone = nvml(h200(compute_mode="exclusive process"))
    assert outcome(check_of("sharing", results(nvml=alone)))[:2] == (
        "warning",
        issue("compute-mode-exclusive", gpus=(0,), mode="exclusive process"),
    )
    shared = check_of("sharing", results(nvml=alone, machine={"mps": "/tmp/nvidia-mps"}))
    assert (shared.status, shared.found) == ("ok", "whole GPUs, MPS runs")


# -- condition of the GPUs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "status", "expected"),
    [
        ({"ecc_uncorrected": 2}, "warning", issue("memory-errors-uncorrected", gpu=0, count=2)),
        ({"remap_pending": True}, "warning", issue("memory-reset-pending", gpu=0)),
        ({"retired_pending": True}, "warning", issue("memory-reset-pending", gpu=0)),
        ({"remap_failed": True}, "broken", issue("memory-remap-failed", gpu=0)),
        (
            {"throttle": ("too hot (hardware)",)},
            "warning",
            issue("gpu-throttled", gpu=0, reasons=("too hot (hardware)",)),
        ),
        ({"persistence": False}, "warning", issue("persistence-off", gpus=1)),
    ],
)
def test_issues_of_a_gpus_condition(trouble: dict[str, Any], status: str, expected: Any) -> None:
    """The health check reports memory errors, thermal throttling and disabled persistence mode."""
    assert outcome(check_of("health", results(nvml=nvml(h200(**trouble)))))[:2] == (status, expected)


def test_one_bad_gpu_among_good_ones_is_a_warning() -> None:
    """If one of several GPUs has broken memory, the health check is a warning that names the GPU. If all GPUs
    have broken memory, the check is "broken"."""
    one = results(nvml=nvml(h200(0), h200(1, remap_failed=True)))
    assert outcome(check_of("health", one)) == (
        "warning",
        issue("memory-remap-failed", gpu=1),
        fix("replace-gpu"),
    )
    assert diagnose(one).status == "warning"
    both = results(nvml=nvml(h200(0, remap_failed=True), h200(1, remap_failed=True)))
    assert check_of("health", both).status == "broken"


@pytest.mark.parametrize("throttle", [("power cap",), ("idle",), ("clock setting",), None])
def test_the_power_limit_is_no_issue(throttle: tuple[str, ...] | None) -> None:
    """The health check is "ok" if a GPU's clocks are limited only by its power cap, by idling or by a clock
    setting, or if it is unknown what limits them."""
    assert check_of("health", results(nvml=nvml(h200(throttle=throttle)))).status == "ok"


def logged(*found: tuple[str, int, float]) -> dict[str, Any]:
    """Return the state of a machine with these XIDs in its kernel log: PCI address, number and time."""
    return {"xids": tuple(LoggedXid(gpu, number, time, xids.action(number)) for gpu, number, time in found)}


def test_errors_in_the_kernels_log() -> None:
    """If the kernel log contains an XID that indicates a faulty GPU, the health check reports it with its
    meaning, its time and what to do. An XID that a user's program caused is listed only in the evidence, and
    so is one that needs no action."""
    one = results(
        machine=logged(
            ("0000:01:00", 31, 0), ("0000:17:00", 79, 60), ("0000:17:00", 79, 7200), ("0000:01:00", 63, 9)
        )
    )
    found = check_of("health", one)
    assert outcome(found) == (
        "warning",
        issue("xids-logged", gpus=("0000:17:00",), xids=(79,), times=(7200,)),
        fix("drain-node"),
    )
    assert found.reason == (
        "The driver has reported XID 79 of 0000:17:00 (the GPU fell off the bus) at 1970-01-01 02:00."
    )
    assert found.remedy == (
        "Drain the node: ask its administrator to take the machine out of service, check the GPU and restart "
        "the machine."
    )
    assert found.evidence["errors in the kernel's log"] == (
        "XID 31 of GPU 0 (a GPU kernel read or wrote memory that it may not access), "
        "XID 63 of GPU 0 (faulty memory is taken out of use at the next reset), "
        "XID 79 of 0000:17:00 (the GPU fell off the bus)"
    )
    assert check_of("health", results(machine=logged(("0000:17:00", 13, 0)))).status == "ok"
    unread = check_of("health", results(machine={"xids": None}))
    assert (unread.status, unread.evidence["errors in the kernel's log"]) == (
        "ok",
        "unknown: this user has no permission to read the log",
    )


def test_each_error_in_the_kernels_log_has_its_action() -> None:
    """XIDs with the same action are one issue. The issue with the most severe action is the first. GPUs that
    must be reset are in the command, unless one isn't found any more."""
    both = nvml(h200(0), h200(1))
    errors = [
        ("0000:02:00", 48, 60),
        ("0000:01:00", 95, 120),
        ("0000:01:00", 32, 180),
        ("0000:01:00", 999, 0),
    ]
    found = check_of("health", results(nvml=both, machine=logged(*errors, ("0000:02:00", 54, 0))))
    assert [(one.params["xids"], one.fix and one.fix.id) for one in found.issues] == [
        ((54,), "drain-node"),
        ((48, 95), "reset-gpus"),
        ((32,), "restart-program"),
        ((999,), "see-xid-documentation"),
    ]
    reset = found.issues[1]
    assert reset.reason == (
        "The driver has reported XID 48 of GPU 1 (an uncorrectable memory error) at 1970-01-01 00:01, "
        "XID 95 of GPU 0 (a memory error that affected all programs) at 1970-01-01 00:02."
    )
    assert reset.fix is not None
    assert reset.fix.text == (
        "Save your work and stop all programs that use GPU 0, GPU 1. Then reset, as root: "
        "sudo nvidia-smi --gpu-reset -i 0,1."
    )
    unlisted = check_of("health", results(machine=logged(("0000:99:00", 48, 0)))).issues[0].fix
    assert unlisted is not None
    assert (unlisted.id, unlisted.command) == ("reset-unlisted-gpus", None)


def test_errors_of_the_only_gpu_after_it_was_lost() -> None:
    """If the machine's only GPU is gone, the error that the driver has reported for it is still shown."""
    gone = results(nvml=nvml(), machine=logged(("0000:01:00", 79, 0)))
    assert outcome(check_of("health", gone))[1] == issue(
        "xids-logged", gpus=("0000:01:00",), xids=(79,), times=(0,)
    )


def test_pcie_with_fewer_lanes_than_it_could_have() -> None:
    """If a GPU uses only some of its PCIe lanes, the PCIe check is a warning. A low PCIe generation is no
    issue, because idle GPUs use a lower generation."""
    assert outcome(check_of("pcie", results(nvml=nvml(h200(pcie_width=8)))))[:2] == (
        "warning",
        issue("pcie-narrow", gpu=0, width=8, max_width=16, others=0),
    )
    assert check_of("pcie", results(nvml=nvml(h200(pcie_generation=1)))).status == "ok"
    assert check_of("pcie", results(nvml=nvml(h200(pcie_width=None)))).status == "skipped"


def test_peer_access_between_gpus() -> None:
    """The peer check lists which GPUs can access each other's memory. It is a warning if only some pairs can,
    and "ok" if no pair can, as with consumer GPUs."""
    pair = (h200(0), h200(1))
    assert check_of("peers", results(nvml=nvml(*pair))).evidence == {
        "GPU 0": "1:NVLink",
        "GPU 1": "0:NVLink",
    }
    three = (*pair, h200(2))
    some = tuple(
        PeerAccess(one, other, nvlink=False, reads=2 not in (one, other))
        for one in range(3)
        for other in range(3)
        if one != other
    )
    assert outcome(check_of("peers", results(nvml=nvml(*three, peers=some)))) == (
        "warning",
        issue("peers-without-access", pairs=("0-2", "1-2", "2-0", "2-1")),
        fix("choose-connected-gpus", "nvidia-smi topo -p2p r"),
    )
    none = tuple(PeerAccess(one, 1 - one, nvlink=False, reads=False) for one in range(2))
    assert check_of("peers", results(nvml=nvml(*pair, peers=none))).status == "ok"
    unsaid = tuple(PeerAccess(one, 1 - one, nvlink=None, reads=None) for one in range(2))
    assert check_of("peers", results(nvml=nvml(*pair, peers=unsaid))).status == "unknown"
