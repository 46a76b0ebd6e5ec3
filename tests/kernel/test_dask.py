"""Dask workers in a real kernel: each worker that worked for a watched cell has a row on the cell's card."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_kernel import KERNEL_PYTHON, TORCH_STANDIN, Kernel, Ran
from helpers_pair import check_card
from nvml_standin import Standin, build

from gpuwidget.system.processes import in_host_pid_namespace

GIB = 1024**3
UUIDS = [f"GPU-{index:08d}-aaaa-bbbb-cccc-dddddddddddd" for index in range(2)]
"""The UUIDs of the GPUs in the stand-in for torch."""
MACHINE = (
    *("driver=580.95.05", "cuda=13000", "gpus=2", "gpu.*.util=90", "gpu.*.power=80"),
    *(f"gpu.{index}.uuid={uuid}" for index, uuid in enumerate(UUIDS)),
)

HAS_DISTRIBUTED = (
    subprocess.run([KERNEL_PYTHON, "-c", "import distributed"], capture_output=True, check=False).returncode
    == 0
)
pytestmark = [
    pytest.mark.skipif(
        not in_host_pid_namespace(), reason="in a container the driver's process ids are not the workers'"
    ),
    pytest.mark.skipif(not HAS_DISTRIBUTED, reason="distributed is not installed beside the kernel"),
]

SETUP = """
import logging, os, signal, threading, time
import distributed
from distributed import Client, LocalCluster
from gpuwidget.dask import collector
from gpuwidget.measure.worker_updates import WORKER_UPDATES

# The tests must not depend on how fast the workers of a busy machine answer.
collector.BEGIN_TIMEOUT_S = collector.END_TIMEOUT_S = 30.0
collector._COLLECT_TIMEOUT_S = 60.0

def local_cluster(workers, **options):
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=':0', **options)

def use_torch():
    import torch, standin_allocator
    torch.cuda.init()
    if not hasattr(torch, "allocate"):
        standin_allocator.install(torch)

def allocate(size, gpu=0):
    import torch
    x = torch.allocate(size, f"cuda:{gpu}")
    return size

def pids(client):
    by_address = client.run(os.getpid)
    names = client.scheduler_info(n_workers=-1)["workers"]
    # A worker may start or end between the two calls.
    return {str(names[address]["name"]): pid for address, pid in by_address.items() if address in names}

def submit(name, function, *arguments):
    return client.submit(function, *arguments, workers=[name], allow_other_workers=False, pure=False)

def reports():
    collectors = [collect.__self__ for collect in WORKER_UPDATES._collectors]
    clusters = [cluster for one in collectors for cluster in getattr(one, "_clusters", ())]
    updates = [worker.update for cluster in clusters for worker in cluster._workers.values()]
    return [update for update in updates if update is not None]

def wait_for_reports(tasks):
    # Wait until the workers' heartbeats with this number of tasks have arrived.
    while sum(update.steps for update in reports()) != tasks:
        time.sleep(0.02)
"""


class Cluster:
    """A kernel with a local cluster of Dask workers on a machine with two GPUs."""

    def __init__(self, kernel: Kernel, standin: Standin, workers: int) -> None:
        self.kernel = kernel
        self._standin = standin
        kernel.ok("%load_ext gpuwidget\nimport gpuwidget.dask")
        kernel.setup(SETUP)
        kernel.setup(f"cluster = local_cluster({workers})\nclient = Client(cluster)\nclient.run(use_torch)")

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the workers by their names."""
        found = json.loads(self.kernel.value("__import__('json').dumps(pids(client))").strip("'"))
        assert isinstance(found, dict)
        return found

    def put_on_gpus(self, *held: dict[int, int]) -> None:
        """Let processes hold memory: bytes by process id, for each GPU."""
        lines = []
        for index, by_pid in enumerate(held):
            listed = " ".join(f"{pid}:{size}" for pid, size in by_pid.items())
            # The list of processes is read again when the memory in use changes.
            lines += [f"gpu.{index}.compute={listed}", f"gpu.{index}.memory_used={sum(by_pid.values())}"]
        self._standin.scenario(*MACHINE, *lines)

    def watch(self, body: str) -> tuple[list[dict[str, Any]], Ran]:
        """Run a watched cell. Return the rows of its workers, and what the kernel sent."""
        ran = self.kernel.ok(f"%%gpuwatch --no-live\n{body}")
        workers = check_card(ran)["workers"]
        assert isinstance(workers, list)
        return workers, ran


def start(start_kernel: Callable[..., Kernel], standin: Standin, **environment: str) -> Kernel:
    standin.scenario(*MACHINE)
    path = {"LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"], "PYTHONPATH": TORCH_STANDIN}
    return start_kernel(GPUWIDGET_SOURCE=None, **standin.variables, **path, **environment)


@pytest.fixture(scope="module")
def cluster(
    start_kernel: Callable[..., Kernel], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Return a cluster of three workers whose client is watched."""
    folder = tmp_path_factory.mktemp("nvml")
    standin = Standin(build(folder / "library"), folder / "driver")
    made = Cluster(start(start_kernel, standin), standin, 3)
    made.kernel.setup("gpuwidget.dask.watch(client)")
    yield made
    made.kernel.ok("client.close()\ncluster.close()")


def named(workers: list[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(row[field] for field in fields) for row in workers]


def test_each_worker_that_worked_has_a_row(cluster: Cluster) -> None:
    """Each worker that executed a task during the cell has one row: its name, process, GPU and number of
    tasks, and its memory by the driver. A worker without a task has no row, also if it holds memory. The
    utilization and the energy of a GPU are shown only for a worker that has the GPU alone."""
    pids = cluster.pids
    cluster.put_on_gpus({pids["0"]: GIB, pids["2"]: GIB}, {pids["1"]: 2 * GIB})
    workers, ran = cluster.watch(
        "client.gather([submit(0, time.sleep, 1.5), submit(1, time.sleep, 1.5), submit(1, int)])"
    )
    assert named(workers, "kind", "name", "host", "pid", "gpu", "steps", "status") == [
        ("dask", "0", None, pids["0"], UUIDS[0], 1, "running"),
        ("dask", "1", None, pids["1"], UUIDS[1], 2, "running"),
    ]
    assert [row["memory"] for row in workers] == [
        {"start": GIB, "end": GIB, "peak": GIB},
        {"start": 2 * GIB, "end": 2 * GIB, "peak": 2 * GIB},
    ]
    shared, alone = workers
    assert shared["missing_ids"]["energy_j"]["id"] == "worker-gpu-shared"
    assert (shared["utilization"], shared["energy_j"]) == (None, None)
    assert alone["utilization"] == {"mean": 90.0, "max": 90.0}
    assert alone["energy_j"] > 0
    assert all(
        row["started_s"] == 0.0 and row["ended_s"] is None and row["cpu"] is not None for row in workers
    )
    text = ran.cards[0]["text/plain"]
    assert "worker 0" in text
    assert "tasks" in text


def test_torch_peaks_are_those_of_the_cell(cluster: Cluster) -> None:
    """The torch peaks of a worker are exact, and never include those of an earlier cell."""
    cluster.put_on_gpus()
    peaks = []
    for size in (3 * GIB, GIB, 2 * GIB):
        workers, _ = cluster.watch(
            f"client.gather([submit(0, allocate, {size}), submit(1, allocate, {size // 2}, 1)])"
        )
        peaks.append([(row["gpu"], row["torch_allocated"]) for row in workers])
    assert peaks == [
        [(UUIDS[gpu], {"start": 0, "end": 0, "peak": size // (gpu + 1)}) for gpu in range(2)]
        for size in (3 * GIB, GIB, 2 * GIB)
    ]


def test_a_cell_behaves_as_without_the_magic(cluster: Cluster) -> None:
    """Output, result, and the errors of tasks are the same in a watched and in a plain cell."""
    kernel = cluster.kernel
    for body in (
        "print(client.gather([client.submit(pow, 2, n) for n in range(8)]))\n"
        "client.submit(sum, [1, 2]).result()",
        "client.submit(divmod, 1, 0, pure=False).result()",
    ):
        plain = kernel.run(f"# %%gpuwatch --no-live\n{body}")
        watched = kernel.run(f"%%gpuwatch --no-live\n{body}")
        # The worker logs a failed task with the time and a random key.
        assert re.sub(r"[-\d:, ]{20,}|divmod-\S+", "", watched.text) == re.sub(
            r"[-\d:, ]{20,}|divmod-\S+", "", plain.text
        )
        assert watched.result == plain.result
        assert watched.message_types[:-1] == plain.message_types
        for name in ("status", "ename", "evalue"):
            assert watched.reply.get(name) == plain.reply.get(name)
        assert len(watched.cards) == 1


def test_runs_inside_each_other(cluster: Cluster) -> None:
    """A watch inside a watched cell has its own numbers of tasks and its own torch peaks."""
    workers, _ = cluster.watch(
        f"submit(0, allocate, {2 * GIB}).result()\n"
        f"with gpuwidget.watch() as w:\n    submit(0, allocate, {GIB}).result()\n"
        "inner = [(row.steps, row.torch_allocated.peak) for row in w.report.workers]"
    )
    assert [(row["steps"], row["torch_allocated"]["peak"]) for row in workers] == [(2, 2 * GIB)]
    assert cluster.kernel.value("inner") == f"[(1, {GIB})]"


def test_an_interrupt(cluster: Cluster) -> None:
    """An interrupt while the cell waits for its tasks ends the cell as it would without the magic. The card
    shows the workers, including one that still executes a task."""
    kernel = cluster.kernel
    kernel.setup(
        "def wait_for_go(folder):\n    open(folder + '/computing', 'w').close()\n"
        "    while not os.path.exists(folder + '/go'): time.sleep(0.01)\n    return 7"
    )
    request = kernel.send("%%gpuwatch --no-live\nlong = submit(0, wait_for_go, os.getcwd())\nlong.result()")
    kernel.wait_for_file("computing")
    # Jupyter's interrupt goes to the kernel's process group, where it also ends a local cluster's workers.
    os.kill(kernel.process_id, signal.SIGINT)
    ran = kernel.wait(request)
    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert named(check_card(ran)["workers"], "name", "steps", "status") == [("0", 1, "running")]
    (kernel.folder / "go").touch()
    assert kernel.ok("long.result()").result == "7"


def test_workers_that_come_and_go(cluster: Cluster) -> None:
    """A worker that starts during the cell has a row with all that it has done. A worker that leaves in an
    orderly way has its last figures, and the status ``ended``."""
    workers, ran = cluster.watch(
        f"submit(0, allocate, {GIB}).result()\nsubmit(2, allocate, 5).result()\n"
        "before = set(pids(client))\nclient.retire_workers(names=[2])\n"
        "while '2' in pids(client): time.sleep(0.02)\n"
        "cluster.scale(4)\nwhile not set(pids(client)) - before: time.sleep(0.02)\n"
        "added = [int(name) for name in set(pids(client)) - before]\nclient.run(use_torch)\n"
        f"for name in added[:1]: submit(name, allocate, {3 * GIB}).result()\nadded[0]"
    )
    assert [
        (row["name"], row["steps"], row["torch_allocated"]["peak"], row["status"]) for row in workers
    ] == [("0", 1, GIB, "running"), ("2", 1, 512, "ended"), (ran.result, 1, 3 * GIB, "running")]
    _, left, added = workers
    assert (left["started_s"], added["ended_s"]) == (0.0, None)
    assert added["started_s"] > 0


def test_a_worker_that_is_killed(cluster: Cluster) -> None:
    """If a worker is killed, the cell's results are the same. The worker's row has no figures that miss its
    last moments; the reason contains those of its last report."""
    pids = cluster.pids
    workers, ran = cluster.watch(
        f"submit(0, allocate, {GIB}).result()\nwait_for_reports(1)\n"
        "os.kill(pids(client)['0'], signal.SIGKILL)\nclient.submit(pow, 2, 5, pure=False).result()"
    )
    assert ran.result == "32"
    (killed,) = (row for row in workers if row["pid"] == pids["0"])
    assert (killed["name"], killed["status"], killed["steps"], killed["torch_allocated"]) == (
        *("0", "ended", None, None),
    )
    reason = killed["missing_ids"]["torch_allocated"]
    assert (reason["id"], reason["params"]["steps"], reason["params"]["torch_peak"]) == (
        *("dask-worker-without-end", 1, GIB),
    )
    cluster.kernel.ok("client.wait_for_workers(3)\nclient.run(use_torch)")


def test_a_worker_without_gpuwidget(cluster: Cluster) -> None:
    """If gpuwidget can't be imported on a worker, tasks run there as usual, and the card contains the
    reason."""
    kernel = cluster.kernel
    kernel.setup(
        "without = local_cluster(1, preload=[\"import sys; sys.modules['gpuwidget'] = None\"])\n"
        "other = Client(without, set_as_default=False)\ngpuwidget.dask.watch(other)"
    )
    workers, ran = cluster.watch("other.submit(pow, 2, 5, pure=False).result()")
    assert (workers, ran.result) == ([], "32")
    (note,) = ran.report["note_ids"]
    assert (note["id"], note["params"]["workers"]) == ("dask-no-reports", 1)
    assert re.fullmatch("ModuleNotFoundError: .*gpuwidget.*", note["params"]["error"])
    assert re.search(r"\(tcp://127.0.0.1:\d+\)", ran.report["notes"][0])
    kernel.setup("other.close()\nwithout.close()")


def test_workers_on_another_host(cluster: Cluster) -> None:
    """The row of a worker on another host has the worker's own readings: its memory, and the utilization and
    the energy of a GPU that it has alone. The GPU is joined by its UUID."""
    kernel = cluster.kernel
    kernel.setup(
        "far = local_cluster(1, preload=['import socket; socket.gethostname = lambda: \"node7\"'])\n"
        "other = Client(far, set_as_default=False)\ngpuwidget.dask.watch(other)"
    )
    pid = int(kernel.value("list(other.run(os.getpid).values())[0]"))
    cluster.put_on_gpus({}, {pid: 3 * GIB})
    workers, ran = cluster.watch(
        "other.submit(int).result()\n"
        "while not any(gpu.utilization for update in reports() for gpu in update.gpus): time.sleep(0.02)"
    )
    row = next(row for row in workers if row["kind"] == "dask")
    assert (row["host"], row["pid"], row["gpu"], row["steps"], row["status"]) == (
        *("node7", pid, UUIDS[1], 1, "running"),
    )
    assert (row["memory"]["end"], row["memory"]["peak"]) == (3 * GIB, 3 * GIB)
    assert row["utilization"] == {"mean": 90.0, "max": 90.0}
    assert row["energy_j"] > 0
    assert "worker 0 on node7" in ran.cards[0]["text/plain"]
    kernel.ok("other.close()\nfar.close()")


def test_removal(cluster: Cluster) -> None:
    """``unwatch`` removes the plugin, its metrics, its handler and its threads from all workers. Cards then
    have no rows of workers. Both functions can be called twice."""
    kernel = cluster.kernel
    kernel.setup(
        "def left(dask_worker):\n    import threading\n"
        "    found = [*dask_worker.plugins, *dask_worker.metrics, *dask_worker.handlers]\n"
        "    return [str(x) for x in (*found, *threading.enumerate()) if 'gpuwidget' in str(x)]"
    )
    workers, _ = cluster.watch("submit(0, int).result()")
    assert len(workers) == 1
    kernel.setup(
        "gpuwidget.dask.watch(client)\ngpuwidget.dask.unwatch(client)\n"
        "while any(client.run(left).values()): time.sleep(0.02)\n"
        "while gpuwidget.dask.clients._has_plugin(client): time.sleep(0.02)\n"
        "gpuwidget.dask.unwatch(client)"
    )
    ran = kernel.ok("%%gpuwatch --no-live\nsubmit(0, int).result()")
    assert [row["kind"] for row in ran.report["workers"]] == []
    kernel.setup("gpuwidget.dask.watch(client)\ngpuwidget.dask.watch(client)")


def test_clients_of_the_cell_itself(cluster: Cluster) -> None:
    """In the automatic mode, the workers of a cluster that the cell itself makes have rows. If the cell also
    closes the cluster, the card contains the reason why the last figures are missing."""
    kernel = cluster.kernel
    kernel.setup("gpuwidget.dask.unwatch(client)\ngpuwidget.dask.watch()")
    workers, ran = cluster.watch(
        "with local_cluster(1) as made, Client(made) as other:\n"
        "    other.submit(pow, 2, 5).result()\n    wait_for_reports(1)\n"
        "    print(gpuwidget.dask.clients._active_client() is other)"
    )
    assert ran.text == "True\n"
    assert named(workers, "kind", "name", "steps", "status") == [("dask", "0", None, "ended")]
    assert workers[0]["missing_ids"]["steps"]["params"]["steps"] == 1
    # On a busy machine, there may also be a note about the worker's process as a child process.
    assert {"id": "dask-no-connection", "params": {"error": "The client was closed during the run."}} in (
        ran.report["note_ids"]
    )
    kernel.setup("gpuwidget.dask.unwatch()\ngpuwidget.dask.watch(client)")


def test_a_cell_that_calls_watch(cluster: Cluster) -> None:
    """If the cell itself makes the first call of ``watch``, the workers measure from this call on, and have
    rows. A worker that was started in the cell has all values. The torch peak and the number of tasks of an
    older worker are unknown, because its earlier use of the GPU is unknown."""
    kernel = cluster.kernel
    kernel.setup("gpuwidget.dask.unwatch()")
    pids = cluster.pids
    cluster.put_on_gpus({pids["0"]: GIB})
    workers, _ = cluster.watch("gpuwidget.dask.watch(client)\nsubmit(0, int).result()")
    assert named(workers, "kind", "name", "pid", "steps", "torch_allocated", "status") == [
        ("dask", "0", pids["0"], None, None, "running")
    ]
    assert workers[0]["memory"] == {"start": GIB, "end": GIB, "peak": GIB}
    assert workers[0]["missing_ids"]["steps"]["id"] == "dask-worker-late"
    kernel.setup("gpuwidget.dask.unwatch()")
    cluster.put_on_gpus()
    workers, _ = cluster.watch(
        "made = local_cluster(1)\nother = Client(made, set_as_default=False)\n"
        "gpuwidget.dask.watch(other)\nother.run(use_torch)\n"
        f"other.gather([other.submit(allocate, {GIB}), other.submit(int, 3)])"
    )
    assert named(workers, "kind", "name", "steps", "status") == [("dask", "0", 2, "running")]
    assert workers[0]["torch_allocated"] == {"start": 0, "end": 0, "peak": GIB}
    kernel.setup("other.close()\nmade.close()\ngpuwidget.dask.watch(client)")


def test_clients_that_cannot_be_watched(cluster: Cluster) -> None:
    """``watch`` explains why it can't use an asynchronous client or something else than a client."""
    kernel = cluster.kernel
    kernel.ok("other = await Client(cluster.scheduler_address, asynchronous=True, set_as_default=False)")
    ran = kernel.run("gpuwidget.dask.watch(other)")
    assert ran.reply["ename"] == "DaskError"
    assert ran.reply["evalue"].startswith("The Dask client is asynchronous")
    kernel.ok("await other.close()")
    ran = kernel.run("gpuwidget.dask.watch(3)")
    assert ran.reply["evalue"] == "gpuwidget.dask.watch() needs a distributed.Client, not int."


def test_dask_is_not_imported(start_kernel: Callable[..., Kernel]) -> None:
    """The automatic mode does not import Dask for a notebook that does not use it."""
    kernel = start_kernel()
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget.dask, sys\ngpuwidget.dask.watch()")
    kernel.ok("%%gpuwatch\n1")
    assert (
        kernel.value("[name for name in sys.modules if name.partition('.')[0] in ('dask', 'distributed')]")
        == "[]"
    )
