"""The outputs of the magics in a shell of this process, on a machine without GPUs and without torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from helpers_golden_format import bundle_text
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from gpuwidget.model.translation import set_view_language

CELLS = (
    "%gpu?",
    "%%gpuwatch?",
    "%%gpuwatch --nonsense\n1",
    "%%gpuwatch --interval 0\n1",
    "%%gpuwatch --need 20 --wait 3y\n1",
    "%%gpuwatch --gpu\n1",
    "%gpu watch",
    "%gpu watch on",
    "%gpu watch",
    "%gpu watch off",
    "%gpu watch maybe",
    "%gpu device",
    "%gpu device cuda:1",
    "%gpu device cuda:x",
    "%gpu device cpu --light",
    "%gpu memory",
    "%gpu memory --cells",
    "%gpu memory --nonsense",
    "%gpu free",
    "%gpu free --yes",
    "%gpu free nothing",
    "%gpu compare",
    "%gpu compare 1 2",
    "%gpu compare nothing 2",
    "%gpu switches",
    "%gpu switches cudnn.benchmark on",
    "%gpu switches nonsense",
    "%gpu doctor --nonsense",
    "%gpu docter",
    "%gpu nonsense",
    "import gpuwidget; gpuwidget.reports()",
    "gpuwidget.devices()",
    "gpuwidget.holders()",
    "gpuwidget.set_device('cuda:9')",
    "gpuwidget.compare(1, 2)",
)


def outputs(language: str) -> Iterator[tuple[str, str]]:
    """Yield the output of each cell in this language, by the cell's number and text."""
    os.environ["GPUWIDGET_SOURCE"] = "none"
    shell: Any = InteractiveShell.instance(colors="NoColor")
    set_view_language(language)
    shell.run_cell("%load_ext gpuwidget")
    shell.run_cell("%xmode Minimal")
    for number, cell in enumerate(CELLS):
        with capture_output() as captured:
            shell.run_cell(cell)
        shown = [bundle_text(output.data) for output in captured.outputs]
        text = "\n".join((captured.stdout, captured.stderr, *shown))
        text = re.sub(r"\x1b\[[0-9;]*m|^File: .*", "", text, flags=re.MULTILINE)
        yield f"{number:02} {cell.partition(chr(10))[0]}", text
    shell.run_cell("%unload_ext gpuwidget")
