"""``%%gpuwatch --lines`` in a real kernel, with a stand-in for torch that records its allocation history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from helpers_kernel import TORCH_STANDIN, Kernel, Ran
from helpers_outputs import CARD

MIB = 1024**2
PREPARE = "import torch, standin_allocator\nallocator = standin_allocator.install(torch)\nMIB = 2**20"


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with gpuwidget and the torch stand-in, in which CUDA is not initialized yet."""
    kernel = start_kernel(PYTHONPATH=TORCH_STANDIN, GPUWIDGET_SOURCE="none")
    kernel.ok(f"%load_ext gpuwidget\n{PREPARE}")
    return kernel


def notes(report: Mapping[str, Any]) -> list[str]:
    """Return the report's notes, except that the search for holders failed: the stand-in lacks what it
    reads."""
    return [note for note in report["notes"] if "who holds the new memory" not in note]


def lines(ran: Ran) -> list[tuple[Any, ...]]:
    """Return the lines in the cell's report as tuples:
    file, number, function, source, caller, and MiB at the peak, at the end and in total."""
    return [
        (
            *(line[name] for name in ("file", "line", "function", "source", "called_from")),
            *(line[name] / MIB for name in ("at_peak", "held", "allocated")),
        )
        for line in ran.report["lines"]
    ]


def test_cells_functions_and_modules(kernel: Kernel) -> None:
    """The report lists lines of the cell,
    of functions in other cells and of the user's modules, with their source."""
    (kernel.folder / "layers.py").write_text(
        "import torch\n\n\ndef forward(n):\n    return torch.allocate(n)\n", encoding="utf-8"
    )
    kernel.ok(
        "import layers\ndef step():\n    hidden = layers.forward(30 * MIB)\n    return torch.allocate(MIB)"
    )
    ran = kernel.ok(
        "%%gpuwatch --no-live --lines\nx = torch.allocate(8 * MIB)\nfor _ in range(3):\n    y = step()"
    )
    assert lines(ran) == [
        ("layers.py", 5, "forward", "return torch.allocate(n)", "In[3] line 4", 30, 0, 90),
        ("In[3]", 2, None, "x = torch.allocate(8 * MIB)", None, 8, 8, 8),
        ("In[2]", 4, "step", "return torch.allocate(MIB)", "In[3] line 4", 2, 1, 3),
    ]
    (card,) = ran.cards
    assert "layers.py line 5 in forward" in card["text/html"]
    assert "torch's memory by line:" in card["text/plain"]
    assert notes(ran.report) == []


@pytest.mark.parametrize(
    "magics", ["%%gpuwatch --no-live --lines\n%%time", "%%time\n%%gpuwatch --no-live --lines"]
)
def test_cells_with_a_time_magic(kernel: Kernel, magics: str) -> None:
    """If %%time is above or below %%gpuwatch,
    each line of the cell still has its number and source in the report."""
    kernel.ok("def step():\n    return torch.allocate(MIB)")
    ran = kernel.ok(f"{magics}\n\nx = torch.allocate(8 * MIB)\ny = step()")
    assert lines(ran) == [
        ("In[3]", 4, None, "x = torch.allocate(8 * MIB)", None, 8, 8, 8),
        ("In[2]", 2, "step", "return torch.allocate(MIB)", "In[3] line 5", 1, 1, 1),
    ]


@pytest.mark.parametrize(
    "magics",
    [
        "%%gpuwatch --no-live --lines\n%%capture",
        "%%gpuwatch --no-live --lines\n%%time\n%%capture",
        "%%gpuwatch --no-live --lines\n%%capture\n%%time",
    ],
)
def test_cells_with_a_capture_magic(kernel: Kernel, magics: str) -> None:
    """Each line below %%capture has its number in the cell, and so have the lines of a function that another
    %%capture cell defined. The number is that of the cell, not of the next one."""
    kernel.ok("%%capture\n\ndef step():\n    return torch.allocate(MIB)")
    ran = kernel.ok(f"{magics}\n\nx = torch.allocate(8 * MIB)\n%time z = 0\ny = step()")
    above = magics.count("\n") + 1
    assert lines(ran) == [
        ("In[3]", above + 2, None, "x = torch.allocate(8 * MIB)", None, 8, 8, 8),
        ("In[2]", 4, "step", "return torch.allocate(MIB)", f"In[3] line {above + 4}", 1, 1, 1),
    ]


def test_lines_with_magics(kernel: Kernel) -> None:
    """A line with a line magic is shown as the user wrote it.
    If the lines below a cell magic can't be distinguished, they share one row."""
    ran = kernel.ok("%%gpuwatch --no-live --lines\n\n%time x = torch.allocate(8 * MIB)")
    assert [line[:4] for line in lines(ran)] == [
        ("In[2]", 3, None, "%time x = torch.allocate(8 * MIB)"),
    ]
    ran = kernel.ok("%%gpuwatch --no-live --lines\n%%prun -q\nx = torch.allocate(8 * MIB)")
    assert [line[:4] for line in lines(ran)] == [
        ("In[3]", 2, None, "%%prun -q (its lines can't be told apart)"),
    ]


def test_an_edited_module(kernel: Kernel) -> None:
    """The source of a module's line is shown as it is in the file now, as in a traceback."""
    module = kernel.folder / "layers.py"
    code = "import torch\n\ndef forward(n):\n    return torch.allocate(n)\n"
    module.write_text(code, encoding="utf-8")
    cell = "%%gpuwatch --no-live --lines\nx = layers.forward(MIB)"
    kernel.ok("import layers")
    assert [line[3] for line in lines(kernel.ok(cell))] == ["return torch.allocate(n)"]
    module.write_text(code.replace("allocate(n)", "allocate(n) # later"), encoding="utf-8")
    assert [line[3] for line in lines(kernel.ok(cell))] == ["return torch.allocate(n) # later"]
    module.write_text(code.replace("import torch\n", "import torch\nlimit = 3\n"), encoding="utf-8")
    assert [line[1:4] for line in lines(kernel.ok(cell))] == [(4, "forward", "def forward(n):")]
    kernel.ok("import importlib; importlib.reload(layers)")
    assert [line[1:4] for line in lines(kernel.ok(cell))] == [(5, "forward", "return torch.allocate(n)")]


def test_after_an_error(kernel: Kernel) -> None:
    """After an error or an interrupt, the report still lists the lines,
    and torch no longer records its allocation history."""
    ran = kernel.run("%%gpuwatch --no-live --lines\nx = torch.allocate(8 * MIB)\n1 / 0")
    assert ran.reply["ename"] == "ZeroDivisionError"
    assert lines(ran) == [("In[2]", 2, None, "x = torch.allocate(8 * MIB)", None, 8, 8, 8)]
    assert kernel.value("allocator.enabled") == "False"
    request = kernel.send(
        "%%gpuwatch --no-live --lines\ny = torch.allocate(MIB)\nopen('on', 'w').close()\nwhile True: pass"
    )
    kernel.wait_for_file("on")
    kernel.interrupt()
    assert lines(kernel.wait(request)) == [("In[3]", 2, None, "y = torch.allocate(MIB)", None, 1, 1, 1)]
    assert kernel.value("allocator.enabled") == "False"


def test_an_interrupt_while_recording_starts(kernel: Kernel) -> None:
    """If an interrupt arrives while torch's allocation history is being turned on,
    the interrupt is raised in the cell's code. The history is turned off when the cell ends."""
    kernel.ok(
        "torch.cuda.init()\nimport signal, gpuwidget.pytorch.allocation_history as h\n"
        "counts = h._requested_bytes\n"
        "def once():\n    h._requested_bytes = counts\n    signal.raise_signal(signal.SIGINT)\n"
        "    return counts()\n"
        "h._requested_bytes = once"
    )
    ran = kernel.run("%%gpuwatch --no-live --lines\nx = torch.allocate(MIB)\nwhile True: pass")
    assert ran.reply["ename"] == "KeyboardInterrupt"
    assert lines(ran) == [("In[3]", 2, None, "x = torch.allocate(MIB)", None, 1, 1, 1)]
    assert kernel.value("allocator.enabled, h.ALLOCATION_HISTORY._scopes") == "(False, [])"


def test_nested_cells(kernel: Kernel) -> None:
    """If a watched cell runs another watched cell,
    each report lists what was allocated while its own cell ran."""
    inner = "%%gpuwatch --no-live --lines\\nb = torch.allocate(2 * MIB)"
    ran = kernel.ok(
        f"%%gpuwatch --no-live --lines\na = torch.allocate(MIB)\nr = get_ipython().run_cell('{inner}')\n"
        "c = torch.allocate(4 * MIB)"
    )
    first, second = (card[CARD]["lines"] for card in ran.cards)
    assert [line["allocated"] for line in first] == [2 * MIB]
    assert sorted(line["allocated"] for line in second) == [MIB, 2 * MIB, 4 * MIB]
    assert kernel.value("[call[0] for call in allocator.calls]") == "['all', None]"


def test_a_recording_that_the_user_started(kernel: Kernel) -> None:
    """If the user has already turned on torch's allocation history, gpuwidget uses it and leaves it on,
    and a note in the report mentions that."""
    kernel.ok("torch.cuda.init()\ntorch.cuda.memory._record_memory_history('all')")
    ran = kernel.ok("%%gpuwatch --no-live --lines\nx = torch.allocate(MIB)")
    assert len(lines(ran)) == 1
    (note,) = notes(ran.report)
    assert "allocation history was already on" in note
    assert kernel.value("allocator.enabled, [call[0] for call in allocator.calls]") == "(True, ['all'])"


def test_without_torch(start_kernel: Callable[..., Kernel]) -> None:
    """If torch is not loaded, a note in the report explains that.
    If the cell itself imports torch, the report lists the cell's lines that allocate memory."""
    kernel = start_kernel(PYTHONPATH=TORCH_STANDIN, GPUWIDGET_SOURCE="none")
    kernel.ok("%load_ext gpuwidget")
    ran = kernel.ok("%%gpuwatch --no-live --lines\n1")
    assert [one["id"] for one in ran.report["note_ids"]] == ["memory-by-line"]
    assert "torch is not loaded" in ran.report["notes"][0]
    late = f"%%gpuwatch --no-live --lines\n{PREPARE}\nimport time; time.sleep(1)\nx = torch.allocate(MIB)"
    assert [line[:2] for line in lines(kernel.ok(late))] == [("In[3]", 6)]


def test_a_history_that_overflows(kernel: Kernel) -> None:
    """If torch's allocation history overflows, a note gives the bytes that can't be attributed to lines,
    and all other lines are reported."""
    kernel.ok(
        "import gpuwidget.pytorch.allocation_history as h\n"
        "import gpuwidget.kernel.attribution.line_memory as l\nh.MAX_HISTORY_EVENTS = 20\n"
        # On an overloaded machine, the profiler's thread may lose the GIL while it has a frame of the loop. A
        # block of this frame is then freed later, and the last 20 events have one allocation less.
        "import sys\nsys.setswitchinterval(60)"
    )
    ran = kernel.ok(
        "%%gpuwatch --no-live --lines\nl.MAX_HISTORY_EVENTS = 20\nx = torch.allocate(8 * MIB)\n"
        "for _ in range(50):\n    y = torch.allocate(MIB)"
    )
    report = ran.report
    assert [(line["line"], line["held"]) for line in report["lines"]] == [(3, 8 * MIB), (5, MIB)]
    (note,) = notes(report)
    assert "40 MiB of the 58 MiB that this run allocated on cuda:0" in note
    assert "the last 20 events" in note
