"""``%gpu compare`` in a real kernel."""

from __future__ import annotations

from helpers_kernel import Kernel, Ran


def table(ran: Ran) -> dict[str, str]:
    """Return the only output of a comparison."""
    assert ran.reply["status"] == "ok", ran.reply
    (shown,) = [message for message in ran.messages if message.type == "display_data"]
    data = shown.content["data"]
    assert sorted(data) == ["text/html", "text/plain"]
    assert isinstance(data, dict)
    return data


def test_cells_labels_and_variables(kernel: Kernel) -> None:
    """A cell's number, a label with spaces and a variable select a run; the user's text is escaped."""
    first = kernel.run("%%gpuwatch --name '<b>big</b> one'\n1").reply["execution_count"]
    second = kernel.run("%%gpuwatch\n2").reply["execution_count"]
    kernel.setup("import gpuwidget\nwith gpuwidget.watch() as w: pass\nkept = w.report")
    made = table(kernel.run(f"%gpu compare {first} {second}"))
    assert f"In [{first}] <b>big</b> one" in made["text/plain"]
    assert f"In [{second}]" in made["text/plain"]
    assert "&lt;b&gt;big&lt;/b&gt;" in made["text/html"]
    assert "<b>big" not in made["text/html"]
    for words in ("'<b>big</b> one' kept", "w kept", f"{second} w"):
        assert "time" in table(kernel.run(f"%gpu compare {words}"))["text/plain"]
    assert kernel.run(f"gpuwidget.compare({first}, kept)").result is not None


def test_a_cell_that_was_run_again(kernel: Kernel) -> None:
    """A number that no watched cell has is a one-line error."""
    for words in ("1 99999", "only-one", "", "1 2 3", "'unclosed 2"):
        ran = kernel.run(f"%gpu compare {words}")
        assert (ran.reply["status"], ran.reply["ename"]) == ("error", "UsageError")
        assert len(ran.text.strip().splitlines()) == 1
        assert "Traceback" not in ran.text
