"""In a real kernel, a watched cell with --need runs only if enough GPU memory is free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_kernel import Kernel, Ran
from helpers_outputs import Message
from helpers_pair import check_card


def is_status_line(message: Message) -> bool:
    """Return whether the message shows the status line of a cell that waits for memory."""
    text = message.content.get("data", {}).get("text/plain", "") if message.is_live else ""
    return text.startswith("Waiting for ")


def assert_skipped(ran: Ran, message: str) -> None:
    """Assert that the cell failed with one printed line that contains ``message``,
    and that it has no other output."""
    assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
    assert len(ran.text.strip().splitlines()) == 1
    assert ran.text.startswith("UsageError: ")
    assert message in ran.text
    assert [message.type for message in ran.messages if message.type in ("error", "execute_result")] == []
    assert ran.cards == []
    places = {m.content["transient"]["display_id"]: m.content["data"] for m in ran.messages if m.is_live}
    assert [data for data in places.values() if data] == []


@pytest.fixture
def busy(start_kernel: Callable[..., Kernel], tmp_path: Path) -> Kernel:
    """Return a kernel on a machine whose only GPU always has 12 GiB free."""
    recording = tmp_path / "full.jsonl"
    meta = (
        '{"meta": {"driver": "580.95.05", "cuda_driver": 13000, "tick_s": 1.0, "gpus": [{"name": '
        '"NVIDIA H200", "memory_total": 150754820096, "memory_reserved": 644939776, '
        '"power_limit_mw": 700000, "pci_bus_id": "00000000:17:00.0"}]}}'
    )
    reading = (
        '{{"t": {t}.0, "phase": null, "gpus": [{{"util": 5, "mem_util": 1, "mem_used": 137224978432, '
        '"power_mw": 90000, "temp_c": 30, "mem_temp_c": 30, "sm_mhz": 345, "throttle": 0, "procs": [], '
        '"gpm": {{}}, "energy_mj": {t}}}]}}'
    )
    recording.write_text("\n".join([meta, *(reading.format(t=t) for t in range(3))]) + "\n")
    kernel = start_kernel(GPUWIDGET_SOURCE=f"replay:{recording}")
    kernel.ok("%load_ext gpuwidget")
    return kernel


def test_not_enough_memory(busy: Kernel) -> None:
    """If not enough memory is free, the cell does not run, one line explains why, and Run All stops."""
    busy.setup("ran = False")
    refused, next_one = busy.run_all("%%gpuwatch --need 20GiB\nran = True", "ran = True")
    assert_skipped(refused, "the GPU has 12.0 of 140.4 GiB free")
    assert next_one.reply["status"] == "aborted"
    assert busy.value("ran") == "False"
    assert check_card(busy.run("%%gpuwatch --need 10GiB\n6 * 7"))["cell"]["status"] == "ok"
    assert busy.run("ran").result == "False"


@pytest.mark.parametrize(
    "cell",
    [
        "{}\nran = True",
        "\n{}\n\nran = True",
        "%%time\n{}\nran = True",
        "{}\n%%time\nran = True",
        "{}\nimport asyncio\nawait asyncio.sleep(0)\nran = True",
        "{}\nfrom __future__ import annotations\nran = True",
        "{}\n!touch ran\nran = True",
        "get_ipython().run_cell_magic('gpuwatch', '--need 20GiB', 'ran = True')",
    ],
)
def test_no_kind_of_cell_runs_without_memory(busy: Kernel, cell: str) -> None:
    """If a cell is skipped, none of its code runs, whatever magics it contains. The next cell runs."""
    busy.setup("ran = False")
    ran = busy.run(cell.format("%%gpuwatch --need 20GiB"))
    assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
    assert busy.value("ran") == "False"
    assert not (busy.folder / "ran").exists()
    assert busy.run("ran = True\nran").result == "True"


def test_a_syntax_error_does_not_wait(busy: Kernel) -> None:
    """A cell with a syntax error shows the error without waiting for memory."""
    ran = busy.run("%%gpuwatch --need 20GiB --wait 1h\nran = (1")
    assert (ran.reply["status"], ran.reply["ename"]) == ("error", "SyntaxError")
    assert [message for message in ran.messages if is_status_line(message)] == []


@pytest.mark.parametrize("body", ["ran = True", "import asyncio\nawait asyncio.sleep(0)\nran = True"])
def test_an_interrupt_while_it_waits(busy: Kernel, body: str) -> None:
    """An interrupt ends the wait for memory.
    The cell does not run, even if it contains ``await``; the next cell runs."""
    busy.setup("ran = False")
    request = busy.send(f"%%gpuwatch --need 20GiB --wait 1h\n{body}")
    shown = busy.wait_for_message(request, is_status_line)
    assert shown is not None
    assert shown.content["data"]["text/plain"].startswith(
        "Waiting for 20.0 GiB free on GPU 0 H200 (the only GPU; values are from a recording): the GPU has "
        "12.0 of 140.4 GiB free. "
    )
    busy.interrupt()
    assert_skipped(busy.wait(request), "Interrupted after ")
    assert busy.value("ran") == "False"
    assert busy.run("6 * 7").result == "42"


@pytest.mark.parametrize(
    "cell",
    [
        "%%gpuwatch --need 1GiB\nran = True",
        "get_ipython().run_cell_magic('gpuwatch', '--need 1GiB', 'ran = True')",
    ],
)
def test_a_cell_whose_memory_can_not_be_checked(busy: Kernel, cell: str) -> None:
    """If checking the free memory fails,
    the cell is skipped and one line explains why. The next cell runs."""
    busy.setup(
        "ran = False\nfrom gpuwidget.kernel.cells import wait_for_memory as w\n"
        "w.find_target_gpus = lambda *_: 1 / 0"
    )
    assert_skipped(busy.run(cell), "(ZeroDivisionError: division by zero)")
    assert busy.value("ran") == "False"
    assert busy.run("6 * 7").result == "42"


@pytest.mark.stops_errors
def test_a_cell_that_can_not_be_watched_runs(busy: Kernel) -> None:
    """If enough memory is free but gpuwidget fails to watch the cell, the cell runs, and its card says why
    nothing was measured."""
    busy.setup("from gpuwidget.kernel.cells import watch_api as w\nw.new_run = lambda *_: 1 / 0")
    ran = busy.run("%%gpuwatch --need 10GiB\n6 * 7")
    assert (ran.result, ran.report["gpus"]) == ("42", [])
    assert [note["id"] for note in ran.report["note_ids"]] == ["not-measured"]


@pytest.mark.parametrize(
    "cell",
    [
        "%%gpuwatch --exclusive\nran = True",
        "get_ipython().run_cell_magic('gpuwatch', '--exclusive', 'ran = True')",
    ],
)
def test_exclusive_is_unknown(busy: Kernel, cell: str) -> None:
    """%%gpuwatch has no option --exclusive. A cell with this option is skipped with a usage error."""
    busy.setup("ran = False")
    assert_skipped(busy.run(cell), "%%gpuwatch: unrecognized arguments: --exclusive.")
    assert busy.value("ran") == "False"
