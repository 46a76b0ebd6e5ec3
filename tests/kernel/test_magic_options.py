"""Each option of ``%%gpuwatch`` has its effect, and an invalid option is reported in one line."""

from __future__ import annotations

import re

import pytest
from helpers_kernel import Kernel
from helpers_pair import check_card

NAMES = ["--gpu", "--interval", "--no-live", "--no-sync", "--quiet", "--name"]
BAD = [
    "--nonsense",
    "--nonsense --no-live",
    "-x",
    "positional",
    "--interval abc",
    "--interval 0",
    "--interval -1",
    "--interval nan",
    "--interval",
    "--gpu 99",
    "--gpu 0 99",
    "--gpu cuda:9",
    "--gpu cuda:x",
    "--gpu GPU-ffffffff",
    "--gpu",
    "--name",
    "--name 'unclosed",
    "--no-liv",
    "--no-live=3",
]


@pytest.mark.parametrize("options", BAD)
def test_invalid_options(kernel: Kernel, options: str) -> None:
    """An invalid option prints one line that names the option;
    the cell's body does not run, and Run All stops."""
    kernel.setup("ran = False")
    refused, next_one = kernel.run_all(f"%%gpuwatch {options}\nran = True", "ran = True")
    assert (refused.reply["status"], refused.reply["ename"]) == ("error", "UsageError")
    assert next_one.reply["status"] == "aborted"
    assert kernel.value("ran") == "False"
    assert len(refused.text.strip().splitlines()) == 1
    assert refused.text.startswith("UsageError: ")
    assert options.split()[0].split("=")[0] in refused.text
    assert "Traceback" not in refused.text
    assert [message.type for message in refused.messages if message.type in ("error", "display_data")] == []
    assert len(check_card(kernel.run("%%gpuwatch\n1"))["gpus"]) == 4


def test_help(kernel: Kernel) -> None:
    """%%gpuwatch? lists every option and watches no cell."""
    ran = kernel.ok("%%gpuwatch?")
    (page,) = [payload["data"]["text/plain"] for payload in ran.reply["payload"]]
    assert [name for name in NAMES if name not in page] == []
    assert ran.cards == []


@pytest.mark.parametrize(
    ("options", "indices"),
    [
        ("", [0, 1, 2, 3]),
        ("--gpu 2", [2]),
        ("--gpu 3 1", [1, 3]),
        ("--gpu 0,2", [0, 2]),
        ("--gpu 0 --gpu 1", [0, 1]),
        ("--gpu=1", [1]),
        ("--gpu 1 --no-live --name 'two words'", [1]),
    ],
)
def test_gpus_by_index(kernel: Kernel, options: str, indices: list[int]) -> None:
    """--gpu accepts nvidia-smi's indices in several notations,
    and the report contains only the selected GPUs."""
    report = check_card(kernel.run(f"%%gpuwatch {options}\n1"))
    assert [gpu["index"] for gpu in report["gpus"]] == indices
    assert {gpu["uuid"] for gpu in report["timeline"]["gpus"]} == {gpu["uuid"] for gpu in report["gpus"]}


def test_gpus_by_uuid(kernel: Kernel) -> None:
    """--gpu accepts a GPU's UUID or a unique prefix of it."""
    wanted = check_card(kernel.run("%%gpuwatch\n1"))["gpus"][2]["uuid"]
    for name in (wanted, wanted[:16]):
        report = check_card(kernel.run(f"%%gpuwatch --gpu {name}\n1"))
        assert [gpu["uuid"] for gpu in report["gpus"]] == [wanted]


def test_name(kernel: Kernel) -> None:
    """--name sets the card's label. The label is shown as plain text, whatever characters it contains."""
    ran = kernel.run("%%gpuwatch --name '<b>run</b> & co'\n1")
    assert check_card(ran)["cell"]["label"] == "<b>run</b> & co"
    assert "&lt;b&gt;run&lt;/b&gt; &amp; co" in ran.cards[0]["text/html"]
    assert "<b>run" not in ran.cards[0]["text/html"]
    assert "<b>run</b> & co" in ran.cards[0]["text/plain"]


def test_quiet(kernel: Kernel) -> None:
    """With --quiet, no card is shown, but gpuwidget.reports() contains the report."""
    ran = kernel.run("%%gpuwatch --quiet --name silently\nprint('only this')\n6 * 7")
    assert ran.message_types == ["stream", "execute_result"]
    assert kernel.value("__import__('gpuwidget').reports()[-1].cell.label") == "'silently'"


def test_interval(kernel: Kernel) -> None:
    """--interval accepts 0.05 to 60 seconds as the time between two samples."""
    for interval in ("0.05", "0.5", "60"):
        report = check_card(kernel.run(f"%%gpuwatch --interval {interval}\n1"))
        assert report["cell"]["status"] == "ok"


def test_a_recording_is_labeled(kernel: Kernel) -> None:
    """If the GPUs come from a recording, the card's text and HTML contain the recording's label."""
    ran = kernel.run("%%gpuwatch\n1")
    report = check_card(ran)
    assert report["source"]["kind"] == "replay"
    label = report["source"]["recording"]
    assert re.search("recording", label, re.IGNORECASE)
    assert label in ran.cards[0]["text/plain"]
    assert label in ran.cards[0]["text/html"]


def test_whether_every_cell_is_watched(kernel: Kernel) -> None:
    """`%gpu watch` tells whether every cell is watched, and how to change that. It changes nothing."""
    off = "Watching only cells with %%gpuwatch. Watch every cell: %gpu watch on"
    assert kernel.ok("%gpu watch").displayed == off
    kernel.ok("%gpu watch on")
    shown = kernel.ok("%gpu watch")
    assert shown.displayed.splitlines()[0] == "Watching every cell. Turn it off: %gpu watch off"
    assert shown.cards == []
    kernel.ok("%gpu watch off")
    assert kernel.ok("%gpu watch").displayed == off
