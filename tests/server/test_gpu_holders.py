"""For one GPU: the holders of its memory, and how much of its memory is unattributed.
Both are computed from the driver's process list and the kernels' reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from helpers_samples import GIB, LIVE, h200, process, reading

from gpuwidget.model.gpu_process import Process
from gpuwidget.server.gpu_holders import ProcessContext, gpu_ownership
from gpuwidget.server.gpu_owners import ProcessOwner
from gpuwidget.server.kernel_reports import KernelUsage
from gpuwidget.server.wire import GpuMemoryOwnership, MemoryHolder
from gpuwidget.system.processes import Identity

GPU = h200(0)
SLICE = h200(0, uuid="MIG-1", mig_index=1, mig_parent=GPU.uuid)
OWNERS = {
    10: ProcessOwner("k1", None),
    11: ProcessOwner("k1", None),
    12: ProcessOwner("k2", None),
} | dict.fromkeys((20, 21), ProcessOwner(None, "1"))
NO_SIZES = "The driver does not report how much each process holds."
FOREIGN = (
    "The driver's process ids can't be matched with those of this server's processes, "
    "for example because this container has its own ids."
)
BY_TORCH = (
    "The memory of kernels is torch's count, without CUDA contexts, other libraries and child processes."
)
BY_TORCH_ITSELF = (
    "A kernel's memory is torch's count for its own process, without CUDA contexts, other "
    "libraries, and child processes whose memory the driver does not report."
)
INVALID = "A kernel reported an impossible amount of torch memory, so its memory is unknown."
LOAD_EXTENSION = (
    "A notebook that has loaded gpuwidget (%load_ext gpuwidget) reports how much torch holds in it."
)


def ownership(
    *listed: Process,
    reports: Mapping[str, KernelUsage] | None = None,
    pids_match: bool = True,
    in_container: bool = False,
    remote_kernels: int = 0,
    gpu: Any = GPU,
    own_user: str | None = None,
    **values: Any,
) -> GpuMemoryOwnership:
    """Return the memory ownership of one GPU that has 60 GiB in use. If ``own_user`` is given, the processes
    of other users are hidden."""
    context = ProcessContext(
        owner=lambda pid: OWNERS.get(pid, ProcessOwner(None, None)),
        identity=lambda one: Identity(one.user, one.program),
        is_hidden=lambda one: own_user is not None and one.user != own_user,
        kernels={"k1": 10, "k2": 12, "k3": None},
        pids_match=pids_match,
        in_container=in_container,
        reports={kernel: {gpu.uuid: report} for kernel, report in (reports or {}).items()},
        remote_kernels=remote_kernels,
        cuda_owners=frozenset,
    )
    return gpu_ownership(reading(gpu, **{"processes": listed, **values}), LIVE, context, ())


def test_holders_are_sorted_by_memory() -> None:
    """Holders are sorted by memory.
    A kernel or a terminal forms one holder together with its child processes."""
    usage = ownership(
        process(20, 2 * GIB, program="bash"),
        process(21, 3 * GIB, program="python train.py"),
        process(10, GIB),
        process(11, 20 * GIB),
        process(12, 6 * GIB),
        process(30, 7 * GIB, user="ben", program="python a.py"),
        process(31, 1 * GIB, user=None, program=None),
    )
    assert usage == GpuMemoryOwnership(
        GPU.uuid,
        (
            MemoryHolder("k1", None, None, None, None, 21 * GIB, "driver", other_users=False),
            MemoryHolder(None, None, 30, "ben", "python a.py", 7 * GIB, "driver", other_users=False),
            MemoryHolder("k2", None, 12, None, None, 6 * GIB, "driver", other_users=False),
            MemoryHolder(None, "1", None, None, "python train.py", 5 * GIB, "driver", other_users=False),
            MemoryHolder(None, None, 31, None, None, GIB, "driver", other_users=False),
        ),
        20 * GIB,
        None,
        (),
        60 * GIB,
    )


def test_hidden_processes_are_one_holder() -> None:
    """If other users' processes are hidden, all of them and those of unknown users are one holder without a
    process id, user or command. All shares still add up to the used memory."""
    usage = ownership(
        process(10, 20 * GIB),
        process(30, 7 * GIB, user="ben", program="python a.py"),
        process(31, GIB, user=None, program=None),
        process(32, 3 * GIB, user="anna", program="python own.py"),
        own_user="anna",
    )
    assert usage == GpuMemoryOwnership(
        GPU.uuid,
        (
            MemoryHolder("k1", None, 10, None, None, 20 * GIB, "driver", other_users=False),
            MemoryHolder(None, None, None, None, None, 8 * GIB, "driver", other_users=True),
            MemoryHolder(None, None, 32, "anna", "python own.py", 3 * GIB, "driver", other_users=False),
        ),
        29 * GIB,
        None,
        (),
        60 * GIB,
    )
    assert [holder.other_users for holder in usage.holdings] == [False, True, False]


def test_a_process_without_a_valid_id_is_not_another_users() -> None:
    """A process that the driver lists with the id 0 is a holder without an id. It counts as another user's
    only if the server hides the processes of other and unknown users."""
    (holder,) = ownership(process(0, GIB, user=None, program=None)).holdings
    assert (holder.pid, holder.user, holder.memory, holder.other_users) == (None, None, GIB, False)
    (holder,) = ownership(process(0, GIB, user=None, program=None), own_user="anna").holdings
    assert (holder.pid, holder.user, holder.memory, holder.other_users) == (None, None, GIB, True)


def test_a_hidden_process_of_unknown_size_makes_the_sum_unknown() -> None:
    """If the driver does not report the memory of one hidden process, their sum is unknown, and so is the
    unattributed memory."""
    usage = ownership(process(30, 7 * GIB, user="ben"), process(31, None, user="eve"), own_user="anna")
    assert usage.holdings == (MemoryHolder(None, None, None, None, None, None, "driver", other_users=True),)
    assert usage.unattributed is None


@pytest.mark.parametrize(("pid", "kernel", "terminal"), [(12, "k2", None), (20, None, "1")])
def test_a_hidden_process_in_a_kernel_or_terminal(pid: int, kernel: str, terminal: str) -> None:
    """The memory of a process that another user runs in a kernel or terminal of this server, as with sudo,
    counts as that of the kernel or terminal, without the process's id and command."""
    usage = ownership(process(pid, GIB, user="root", program="secret"), own_user="anna")
    assert usage.holdings == (
        MemoryHolder(kernel, terminal, None, None, None, GIB, "driver", other_users=False),
    )


def test_a_terminal_is_named_after_a_visible_process() -> None:
    """A terminal with several processes is named after the largest one that is not hidden."""
    listed = (
        process(20, 9 * GIB, user="root", program="secret"),
        process(21, GIB, program="python mine.py"),
    )
    usage = ownership(*listed, own_user="anna")
    assert usage.holdings == (
        MemoryHolder(None, "1", None, None, "python mine.py", 10 * GIB, "driver", other_users=False),
    )


def test_a_gpu_without_processes() -> None:
    """If no process is listed for a GPU, all of its used memory is unattributed, and no reason is given."""
    assert (ownership().holdings, ownership().unattributed, ownership().reason) == ((), 60 * GIB, None)


def test_unattributed_memory_is_never_negative() -> None:
    """Unattributed memory is never negative, even if the listed processes hold more than the used memory,
    which is read at another time."""
    assert ownership(process(10, 61 * GIB)).unattributed == 0


@pytest.mark.parametrize(
    ("values", "unattributed", "reason"),
    [
        ({"lost_since": 1.0, "missing": {"memory_used": "the GPU is lost"}}, None, "The GPU is lost."),
        (
            {"silent_since": 1.0, "missing": {"memory_used": "the GPU does not answer"}},
            None,
            "The GPU does not answer.",
        ),
        (
            {
                "memory_used": None,
                "missing": {"memory_used": "this user or container has no permission to read this value"},
            },
            None,
            ("The used memory is unknown: this user or container has no permission to read this value."),
        ),
        (
            {"processes": None, "missing": {"processes": "not supported by this GPU"}},
            60 * GIB,
            f"The driver does not list this GPU's processes: not supported by this GPU. {LOAD_EXTENSION}",
        ),
        ({"processes": None}, 60 * GIB, f"The driver does not list this GPU's processes. {LOAD_EXTENSION}"),
    ],
)
def test_unknown_memory(values: dict[str, Any], unattributed: int | None, reason: str) -> None:
    """If the used memory or the process list can't be read, no holder is listed,
    and a sentence gives the reason."""
    usage = ownership(**values)
    assert (usage.holdings, usage.unattributed, usage.reason) == ((), unattributed, reason)


def test_torch_reports_are_used_without_a_process_list() -> None:
    """If the driver does not list the processes of a GPU or MIG slice,
    the holders come from the kernels' own reports."""
    reports = {"k1": KernelUsage(True, 20 * GIB), "k2": KernelUsage(True, 0), "k3": KernelUsage(False, None)}
    usage = ownership(gpu=SLICE, processes=None, reports=reports)
    assert usage.holdings == (
        MemoryHolder("k1", None, None, None, None, 20 * GIB, "torch", other_users=False),
        MemoryHolder("k2", None, None, None, None, 0, "torch", other_users=False),
    )
    assert usage.unattributed == 40 * GIB
    assert (usage.reason or "").startswith("The driver does not list")
    assert (usage.reason or "").endswith(BY_TORCH)


def test_torch_reports_are_used_without_matching_pids() -> None:
    """If the driver's process ids don't match this server's, the listed processes are ignored.
    Only kernels that report memory are holders, and all other memory is unattributed."""
    usage = ownership(process(10, 30 * GIB), pids_match=False, reports={"k2": KernelUsage(True, 20 * GIB)})
    assert usage.holdings == (
        MemoryHolder("k2", None, None, None, None, 20 * GIB, "torch", other_users=False),
    )
    assert (usage.unattributed, usage.reason) == (40 * GIB, f"{FOREIGN} {BY_TORCH}")
    assert ownership(process(10, 30 * GIB), pids_match=False).reason == f"{FOREIGN} {LOAD_EXTENSION}"


def test_a_kernel_with_unknown_memory() -> None:
    """If a kernel uses the GPU but can't report how much memory it holds,
    the unattributed memory is unknown too."""
    usage = ownership(pids_match=False, reports={"k1": KernelUsage(True, None), "k2": KernelUsage(True, GIB)})
    assert [(one.kernel, one.memory) for one in usage.holdings] == [("k2", GIB), ("k1", None)]
    assert usage.unattributed is None


def test_a_driver_without_sizes() -> None:
    """If the driver gives no size for a kernel's process, torch's count is used instead and the holder is
    labeled ``torch``. The sizes of the kernel's child processes are added to that count."""
    reports = {"k1": KernelUsage(True, 20 * GIB)}
    listed = (process(10, None), process(11, 5 * GIB))
    usage = ownership(*listed, reports=reports)
    unsaid = "The driver does not report how much each process holds."
    assert usage.holdings == (
        MemoryHolder("k1", None, None, None, None, 25 * GIB, "torch", other_users=False),
    )
    assert (usage.unattributed, usage.reason) == (35 * GIB, f"{unsaid} {BY_TORCH_ITSELF}")
    usage = ownership(*listed, process(30, None), reports=reports)
    assert [(one.kernel, one.memory, one.source) for one in usage.holdings] == [
        ("k1", 25 * GIB, "torch"),
        (None, None, "driver"),
    ]
    assert usage.unattributed is None
    assert ownership(*listed).holdings == (
        MemoryHolder("k1", None, None, None, None, None, "driver", other_users=False),
    )


@pytest.mark.parametrize("own", [(process(10, 30 * GIB),), ()])
def test_a_child_without_a_size(own: tuple[Process, ...]) -> None:
    """If the driver gives no size for a kernel's child process, the kernel's memory is unknown,
    because torch's count excludes child processes."""
    usage = ownership(*own, process(11, None), reports={"k1": KernelUsage(True, 5 * GIB)})
    (holding,) = usage.holdings
    assert (holding.kernel, holding.memory, holding.source) == ("k1", None, "driver")
    assert usage.unattributed is None
    assert usage.reason == NO_SIZES


def test_processes_outside_the_container() -> None:
    """In a container, a sentence explains that processes outside the container may hold the unattributed
    memory."""
    outside = "Processes outside this container, which are not listed here, may hold some of the memory."
    assert ownership(process(10, GIB), in_container=True).reason == outside
    assert ownership(process(10, 60 * GIB), in_container=True).reason is None


def test_remote_kernels() -> None:
    """If a kernel runs remotely and a listed process has no known owner,
    a sentence explains that the process may belong to that kernel."""
    one = (
        "One kernel of this server has no process here: its memory can't be told apart from that of "
        "other processes."
    )
    two = (
        "2 kernels of this server have no process here: their memory can't be told apart from that of "
        "other processes."
    )
    assert ownership(process(30, GIB), remote_kernels=1).reason == one
    assert ownership(process(30, GIB), remote_kernels=2).reason == two
    assert ownership(process(10, GIB), remote_kernels=1).reason is None


def test_an_invalid_report_of_a_kernel() -> None:
    """If a kernel's memory can only be known from the kernel's report and that report is invalid,
    its memory and the unattributed memory are unknown, and the reason is given."""
    invalid = {"k1": KernelUsage(False, None, invalid=True), "k2": KernelUsage(True, 5 * GIB)}
    usage = ownership(process(10, None), reports=invalid, pids_match=False)
    assert usage.holdings == (
        MemoryHolder("k2", None, None, None, None, 5 * GIB, "torch", other_users=False),
        MemoryHolder("k1", None, None, None, None, None, "torch", other_users=False),
    )
    assert (usage.unattributed, usage.reason) == (None, f"{FOREIGN} {BY_TORCH} {INVALID}")
    usage = ownership(process(10, None), reports=invalid)
    assert usage.holdings == (MemoryHolder("k1", None, 10, None, None, None, "driver", other_users=False),)
    assert (usage.unattributed, usage.reason) == (None, f"{NO_SIZES} {INVALID}")


def test_an_invalid_report_that_is_not_needed() -> None:
    """If the driver reports a kernel's memory, an invalid report from that kernel has no effect."""
    usage = ownership(process(10, 20 * GIB), reports={"k1": KernelUsage(True, None, invalid=True)})
    assert usage.holdings == (
        MemoryHolder("k1", None, 10, None, None, 20 * GIB, "driver", other_users=False),
    )
    assert (usage.unattributed, usage.reason) == (40 * GIB, None)
