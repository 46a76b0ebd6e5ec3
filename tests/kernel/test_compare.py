"""``%gpu compare`` compares the runs of watched cells, in a real kernel."""

from __future__ import annotations

from helpers_kernel import Kernel, Ran


def table(ran: Ran) -> dict[str, str]:
    """Return the MIME bundle of a comparison, which must be the cell's only output."""
    assert ran.reply["status"] == "ok", ran.reply
    (shown,) = [message for message in ran.messages if message.type == "display_data"]
    data = shown.content["data"]
    assert sorted(data) == ["text/html", "text/plain"]
    assert isinstance(data, dict)
    return data


def test_cells_labels_and_variables(kernel: Kernel) -> None:
    """%gpu compare accepts cell numbers, labels and variables as runs. Labels are escaped in the HTML."""
    first = kernel.run("%%gpuwatch --name '<b>big</b> one'\n1").reply["execution_count"]
    second = kernel.run("%%gpuwatch\n2").reply["execution_count"]
    kernel.setup("import gpuwidget\nwith gpuwidget.watch() as w: pass\nkept = w.report")
    comparison = table(kernel.run(f"%gpu compare {first} {second}"))
    assert f"In [{first}] <b>big</b> one" in comparison["text/plain"]
    assert f"In [{second}]" in comparison["text/plain"]
    assert "&lt;b&gt;big&lt;/b&gt;" in comparison["text/html"]
    assert "<b>big" not in comparison["text/html"]
    for runs in ("'<b>big</b> one' kept", "w kept", f"{second} w"):
        assert "time" in table(kernel.run(f"%gpu compare {runs}"))["text/plain"]
    assert kernel.run(f"gpuwidget.compare({first}, kept)").result is not None


def test_unknown_runs(kernel: Kernel) -> None:
    """If a run is unknown or the number of runs is wrong, %gpu compare prints an error, no traceback."""
    for runs in ("1 99999", "only-one", "", "1 2 3", "'unclosed 2"):
        ran = kernel.run(f"%gpu compare {runs}")
        assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
        assert "Traceback" not in ran.text
