"""Long watched runs outlast their kernel, and nothing that is wrong with the journal reaches a cell."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import Kernel
from helpers_wait import until
from nvml_standin import Standin, build

from gpuwidget.journal.conclude import conclude
from gpuwidget.journal.records import KernelEnd
from gpuwidget.journal.store import JournalRow, JournalStore, death_of
from gpuwidget.model import units
from gpuwidget.model.clock import SYSTEM_CLOCK

NOTEBOOK = "/home/ann/train.ipynb"
# With all four GPUs of the recording, a card may omit its time series to stay small.
LONG = "%%gpuwatch --gpu 0\nimport time\nprint('secret line')\ntime.sleep(0.8)"
ENDLESS = "%%gpuwatch\nimport time\nfor step in range(6000): time.sleep(0.1)"
GPUS = ("driver=580.95.05", "cuda=13000", "gpus=1", "gpu.*.compute=self:1000000000", "gpu.*.util=90")
StartKernel = Callable[..., Kernel]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return an empty folder for Jupyter's data."""
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> JournalStore:
    """Return the journal of the kernels."""
    return JournalStore(data / "gpuwidget" / "runs")


@pytest.fixture
def start(start_kernel: StartKernel, data: Path) -> StartKernel:
    """Return a function that starts a kernel of one notebook with gpuwidget loaded, whose runs are in the
    journal after a fifth of a second."""

    def start(**environment: str) -> Kernel:
        variables = {
            "JUPYTER_DATA_DIR": str(data),
            "JPY_SESSION_NAME": NOTEBOOK,
            "GPUWIDGET_JOURNAL_SECONDS": "0.2",
            **environment,
        }
        return start_kernel(**variables)

    return start


def ended(store: JournalStore, count: int) -> list[JournalRow]:
    """Return the ended runs, the newest first, once there are ``count``."""
    until(lambda: len(store.rows("ended")) == count)
    return store.rows("ended")


def test_a_long_run_is_written_with_its_card(start: StartKernel, store: JournalStore) -> None:
    """The journal has the notebook, the cell, the figures and the report of a run, as on its card."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    ran = kernel.ok(LONG)

    (row,) = ended(store, 1)
    found = store.find(row.id)

    assert (row.state, row.status, row.notebook, row.execution_count) == ("ended", "ok", NOTEBOOK, 2)
    assert found is not None
    assert row.started == ran.report["cell"]["started"]
    assert units.duration(row.duration_s) == units.duration(ran.report["cell"]["duration_s"])
    assert found[1].process.pid == kernel.process_id
    assert store.rows("live") == []


def test_a_short_run_and_a_quiet_run_are_not_written(start: StartKernel, store: JournalStore) -> None:
    """A run below the limit leaves no file, and the report of a quiet run stays in the kernel."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok("%%gpuwatch\npass")
    kernel.ok(LONG.replace("%%gpuwatch", "%%gpuwatch --quiet"))
    kernel.ok("import gpuwidget, time\nwith gpuwidget.watch('epoch 1'):\n    time.sleep(0.5)")

    (row,) = ended(store, 1)

    assert (row.label, row.cell_id, row.code) == ("epoch 1", None, None)


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        pytest.param({}, False, id="default"),
        pytest.param({"GPUWIDGET_JOURNAL_PRINTED": "1"}, True, id="turned on"),
    ],
)
def test_printed_lines(
    start: StartKernel, store: JournalStore, variables: dict[str, str], printed: bool
) -> None:
    """Lines that the cell printed are in its card, but in the journal only if the user wants them."""
    kernel = start(**variables)
    kernel.ok("%load_ext gpuwidget")
    ran = kernel.ok(LONG)

    (row,) = ended(store, 1)
    found = store.find(row.id)

    marks = [mark["label"] for mark in ran.report["timeline"]["marks"]]
    assert marks == ["secret line"]
    assert found is not None
    assert found[1].report.timeline is not None
    kept = [mark.label for mark in found[1].report.timeline.marks]
    assert kept == (["secret line"] if printed else [])


def test_the_journal_can_be_turned_off(start: StartKernel, data: Path) -> None:
    """With GPUWIDGET_JOURNAL=0, nothing is written."""
    kernel = start(GPUWIDGET_JOURNAL="0")
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(LONG)
    kernel.shutdown()
    assert not (data / "gpuwidget" / "runs").exists()


def test_a_run_is_written_although_the_kernel_ends_at_once(start: StartKernel, store: JournalStore) -> None:
    """A program that executes a notebook shuts the kernel down after the last cell, and loses no run."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(LONG)
    kernel.client.shutdown()
    until(lambda: not kernel.alive)
    assert [row.status for row in store.rows("ended")] == ["ok"]


def test_the_card_compares_with_the_last_run_of_another_kernel(
    start: StartKernel, store: JournalStore
) -> None:
    """After a restart, the card says how the run differs from the last run of the same cell."""
    for number in (1, 2):
        kernel = start()
        kernel.ok("%load_ext gpuwidget")
        ran = kernel.ok(LONG)
        ended(store, number)
    (card,) = ran.cards
    assert "vs. last run: time" in card["text/plain"]
    assert "data-runs" not in card["text/html"]  # %gpu compare does not know the run of another kernel


def kill_in_mid_run(kernel: Kernel, store: JournalStore) -> None:
    """Kill a kernel while its watched cell runs and is in the journal."""
    kernel.ok("%load_ext gpuwidget")
    kernel.send(ENDLESS)
    until(lambda: store.rows("live") != [])
    os.kill(kernel.process_id, signal.SIGKILL)
    until(lambda: not kernel.alive)


def test_the_next_kernel_shows_a_run_that_died(start: StartKernel, store: JournalStore) -> None:
    """After a kernel was killed, %load_ext shows the card of its run once, with what is known."""
    kill_in_mid_run(start(), store)

    loaded = start().ok("%load_ext gpuwidget")

    assert loaded.report["cell"]["status"] == "died"
    assert start().ok("%load_ext gpuwidget").cards == []
    (row,) = store.rows("ended")
    assert (row.state, row.status) == ("died", "died")


def test_another_notebook_does_not_show_it(start: StartKernel, store: JournalStore) -> None:
    """A run that died is shown in its own notebook."""
    kill_in_mid_run(start(), store)

    assert start(JPY_SESSION_NAME="/home/ann/other.ipynb").ok("%load_ext gpuwidget").cards == []
    assert [row.state for row in store.rows("died")] == ["died"]


def test_the_panel_does_not_use_up_the_card(start: StartKernel, store: JournalStore) -> None:
    """If the panel loads the extension, which shows nothing, the card waits for the user's %load_ext."""
    kill_in_mid_run(start(), store)

    later = start()
    later.run("%load_ext gpuwidget", silent=True)
    assert len(later.ok("%reload_ext gpuwidget").cards) == 1


def test_a_request_to_shut_down_is_noted(start: StartKernel, store: JournalStore) -> None:
    """A run that goes on although Jupyter asked the kernel to end has that reason without a server."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    code = ENDLESS.replace("for", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nfor")
    kernel.send(code)
    until(lambda: store.rows("live") != [])
    kernel.client.shutdown()
    until(lambda: found_shutdown(store))
    kernel.shutdown()

    assert conclude(store) == []

    (row,) = store.rows("died")
    why = death_of(row)
    assert why is not None
    assert (why.cause, why.certainty) == ("shut_down", "certain")


def found_shutdown(store: JournalStore) -> bool:
    """Return whether the running run says that Jupyter asked its kernel to shut down."""
    found = store.read("live", store.rows("live")[0].id)
    return found is not None and found[1].machine.shutdown_requested is not None


def test_two_kernels_write_beside_each_other(start: StartKernel, store: JournalStore) -> None:
    """Each kernel writes its own runs, and both are whole."""
    kernels = [start(JPY_SESSION_NAME=f"/home/ann/{name}.ipynb") for name in "ab"]
    for kernel in kernels:
        kernel.ok("%load_ext gpuwidget")
    requests = [kernel.send(LONG) for kernel in kernels]
    for kernel, request in zip(kernels, requests, strict=True):
        kernel.wait(request)

    rows = ended(store, 2)

    assert {row.notebook for row in rows} == {"/home/ann/a.ipynb", "/home/ann/b.ipynb"}
    assert all(store.find(row.id) is not None for row in rows)


@pytest.mark.parametrize("problem", ["a file", "read-only"])
def test_a_journal_that_cant_be_written_is_noted(start: StartKernel, data: Path, problem: str) -> None:
    """The cell runs as always, and its card says once why the run won't outlast its kernel."""
    data.mkdir()
    if problem == "a file":
        (data / "gpuwidget").write_text("")
    elif os.getuid() == 0:
        # Root may write everywhere, but not into the kernel's own files.
        data.rmdir()
        data.symlink_to("/proc/1/fdinfo")
    else:
        data.chmod(0o500)
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    first, second = kernel.ok(LONG), kernel.ok(LONG)
    data.chmod(0o700) if not data.is_symlink() else None

    notes = [[note["id"] for note in ran.report["note_ids"]] for ran in (first, second)]
    assert notes == [["not-in-journal"], []]
    assert first.text == second.text == "secret line\n"


def test_a_forked_child_writes_nothing(start: StartKernel, store: JournalStore) -> None:
    """A child that the cell forks leaves the journal to its parent."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(
        "%%gpuwatch\nimport os, time\ntime.sleep(0.6)\n"
        "if (child := os.fork()) == 0: os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\ntime.sleep(0.3)"
    )
    assert [row.status for row in ended(store, 1)] == ["ok"]


def test_no_thread_is_left_after_a_run(start: StartKernel, store: JournalStore) -> None:
    """The journal's thread exists only while a long run lasts."""
    kernel = start()
    kernel.ok("%load_ext gpuwidget")
    kernel.ok(LONG)
    ended(store, 1)
    names = "sorted(t.name for t in __import__('threading').enumerate() if 'journal' in t.name)"
    until(lambda: kernel.value(names) == "[]")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that answers in place of the driver."""
    return build(tmp_path_factory.mktemp("library"))


@pytest.mark.parametrize(
    ("failure", "cause", "id_"),
    [
        pytest.param(("gpu.0.xids=79",), "xid", "death-xid-crashed", id="XID"),
        pytest.param(("gpu.0.*=error 15",), "gpu_lost", "death-gpu-lost-crashed", id="lost"),
    ],
)
def test_a_gpu_that_fails_before_the_kernel_does(
    start: StartKernel,
    store: JournalStore,
    library: Path,
    tmp_path: Path,
    failure: tuple[str, ...],
    cause: str,
    id_: str,
) -> None:
    """A run whose GPU failed and whose process then crashed says both, as likely."""
    standin = Standin(library, tmp_path / "driver")
    standin.scenario(*GPUS)
    path = {"LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"], "GPUWIDGET_SOURCE": "nvml"}
    kernel = start(**standin.variables, **path)
    kernel.ok("%load_ext gpuwidget")
    kernel.send(ENDLESS)
    until(lambda: store.rows("live") != [])
    standin.scenario(*GPUS, *failure)
    until(lambda: noticed(store, cause), 60)  # A state is written every ten seconds.
    os.kill(kernel.process_id, signal.SIGABRT)
    until(lambda: not kernel.alive)
    (row,) = store.rows("live")

    conclude(store, lambda run: KernelEnd(SYSTEM_CLOCK.time(), -signal.SIGABRT, None))

    found = store.find(row.id)
    assert found is not None
    why = death_of(found[0])
    assert why is not None
    assert (why.cause, why.certainty, why.text.id) == (cause, "likely", id_)


def noticed(store: JournalStore, cause: str) -> bool:
    """Return whether the running run's state has the failure of the GPU."""
    found = store.read("live", store.rows("live")[0].id)
    if found is None:
        return False
    run = found[1]
    return bool(run.machine.xids) if cause == "xid" else any(gpu.lost_since for gpu in run.report.gpus)
