"""A saved notebook contains no secrets, user names, notebook names or escape sequences of other processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import pytest
from helpers_kernel import KERNEL_PYTHON, skip_without_torch
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nvml_standin import Standin, build

from gpuwidget.cli.main import main
from gpuwidget.system.processes import in_host_pid_namespace

pytestmark = pytest.mark.skipif(
    not in_host_pid_namespace(), reason="in a container the driver's process ids are not the processes' own"
)

GIB = 1024**3
OTHER_USER = 54321
"""A user id for which the system has no user name."""
ESCAPES = "\x1b]0;PRIVATE_title\x07\x9b2J\u202e"
SECRETS = ("SECRET", "PRIVATE", str(OTHER_USER), "\x1b", "\x9b", "\u202e")
REPORT = "application/vnd.gpuwidget.report+json"
TESTS = Path(__file__).parents[1]
MACHINE = "gpus=1\ngpu.0.uuid=GPU-00000000-aaaa-bbbb-cccc-dddddddddddd\ngpu.0.util=0\ngpu.0.power=80"
WAITING = "print(flush=True); input()"

SETUP = f"""
import os, subprocess, sys, time
sys.path.insert(0, {str(TESTS)!r})
import torch
from helpers_out_of_memory import LimitedGpu
gpu = LimitedGpu(torch, 64 * 2**20, "2.13")
gpu.install()
torch.version.cuda, torch._C._cuda_getDevice = "13.0", lambda: 0
import gpuwidget

def driver(used, listed):
    beside = os.environ["NVML_STANDIN"] + ".new"
    with open(beside, "w") as file:
        file.write(f"{{MACHINE}}\\ngpu.0.memory_used={{used}}\\ngpu.0.compute={{listed}}\\n")
    os.replace(beside, os.environ["NVML_STANDIN"])
    while gpuwidget.sample().readings[0].memory_used != used:
        time.sleep(0.01)
    time.sleep(0.3)

def until(happened):
    for _ in range(1000):
        if happened():
            return True
        time.sleep(0.01)
    return False

MACHINE = {MACHINE!r}
GIB = {GIB}
open("t.py", "w").write("{WAITING}")
# Not in the watched cell: the report quotes the lines of its own cell in which most of the time passed.
command = [sys.executable, "-u", "t.py", "--key", "SECRET123"]
others = [int(pid) for pid in os.environ["OTHERS"].split()]
"""

CELLS = (
    "%load_ext gpuwidget",
    SETUP,
    """%%gpuwatch --interval 0.05
child = subprocess.Popen(command, stdin=-1, stdout=-1)
child.stdout.readline()
listed = f"self:{GIB} {child.pid}:{2 * GIB} " + " ".join(f"{pid}:{4 * GIB}" for pid in others)
driver(20 * GIB, listed)""",
    "%gpu watch on",
    "x = 1",
    "%gpu watch off",
    "%gpu device",
    "gpuwidget.devices()",
    "d = gpuwidget.dashboard(); d",
    "until(lambda: any('GiB free' in label for label, _ in d._view._device.options))",
    "d._view._device.options",
    "%gpu memory",
    "gpuwidget.holders()",
    "gpuwidget.sample()",
    "gpuwidget.reports()",
    "gpuwidget.reports()[0]",
    "gpuwidget.reports()[0].to_dict()",
    "%gpu compare 3 3",
    "%%gpuwatch --need 130GiB\n1",
    "%gpu free",
    "gpu.empty(100 * 2**18)",
    "%gpu",
    "print('kept'); gpuwidget.reports()[0]",
    "%gpu doctor",
    "gpuwidget.doctor()",
    "%gpu switches",
    "import torch\ntorch.ones(1) + torch.ones(1, device='meta')",
    "child.communicate(b'\\n')",
)
EXPRESSIONS = (
    "gpuwidget.devices()",
    "d._view._device.options",
    "gpuwidget.sample()",
    "gpuwidget.reports()[0].to_dict()",
    "until(lambda: any('GiB free' in label for label, _ in d._view._device.options))",
    "child.communicate(b'\\n')",
)
"""Cells whose only output is the text of the user's own expression, which `gpuwidget clean` leaves."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the notebook runs."""
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def others(folder: Path) -> Iterator[list[int]]:
    """Start processes with secrets in their command lines: a script, a notebook's kernel and,
    if the tests run as root, two processes of another user. Yield the process ids."""
    script = folder / "other.py"
    script.write_text(WAITING)
    os.chmod(folder, 0o755)
    command = [sys.executable, str(script), "--hf-token", "hf_SECRET", ESCAPES, "--url", "https://a:SECRET@b"]
    environment = {**os.environ, "JPY_SESSION_NAME": f"/home/ada/{ESCAPES}PRIVATE.ipynb"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = [
        subprocess.Popen(command, **pipes),
        subprocess.Popen(command, env=environment, **pipes),
    ]
    if os.getuid() == 0:
        shell = ["/bin/sh", "-c", "echo; read line", "sh", *command[2:]]
        started += [subprocess.Popen(shell, user=OTHER_USER, cwd="/", **pipes) for _ in range(2)]
    for one in started:
        assert one.stdout is not None
        one.stdout.readline()
    yield [one.pid for one in started]
    for one in started:
        one.communicate(b"\n")


@pytest.fixture(scope="module")
def notebook(folder: Path, others: list[int]) -> Any:
    """Run a notebook with :data:`CELLS` while the other processes run,
    and return it with its outputs and widget states."""
    skip_without_torch()
    home = folder / "home" / "PRIVATE"
    (home / "lib").mkdir(parents=True)
    standin = Standin(build(folder / "library"), folder / "driver")
    standin.scenario(MACHINE)
    environment = {
        **os.environ,
        **standin.variables,
        "LD_LIBRARY_PATH": f"{standin.environment()['LD_LIBRARY_PATH']}:{home}/lib:/srv/SECRETUSER/lib",
        "HOME": str(home),
        "USER": "SECRETUSER",
        "CUDA_HOME": f"{home}/cuda --token SECRET123",
        "HF_TOKEN": "SECRET123",
        "OTHERS": " ".join(map(str, others)),
        "JPY_SESSION_NAME": "/home/ada/own.ipynb",
    }
    for name in ("GPUWIDGET_SOURCE", "PYTHONPATH"):
        environment.pop(name, None)
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    # The path of a Unix socket has at most 107 characters, and tmp_path may be longer than that.
    with TemporaryDirectory() as sockets:
        manager = KernelManager(transport="ipc", connection_file=f"{sockets}/connection.json")
        manager._kernel_spec = KernelSpec(
            argv=[KERNEL_PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            display_name="test",
            language="python",
        )
        client = NotebookClient(made, km=manager, timeout=120, allow_errors=True)
        # Without this option, nbclient would leave the kernel and its sockets open.
        client.execute(env=environment, cwd=str(folder), cleanup_kc=True)
    return made


def test_a_saved_notebook_has_no_secret(notebook: Any, others: list[int]) -> None:
    """In a saved notebook, gpuwidget's outputs show another process only as a program, such as
    'python other.py', as another notebook, or as a process of another user. The doctor shows neither the
    user's home folder nor other private data."""
    outputs = {
        cell.source: [output for output in cell.outputs if output.output_type != "error"]
        for cell in notebook.cells
    }
    errors = {
        cell.source: output.evalue
        for cell in notebook.cells
        for output in cell.outputs
        if output.output_type == "error"
    }
    # A traceback repeats the cell's source, which contains the searched strings.
    # Therefore, only the error's message is checked.
    saved = json.dumps([outputs[cell] for cell in CELLS], ensure_ascii=False)
    saved += json.dumps(notebook.metadata, ensure_ascii=False) + json.dumps(errors, ensure_ascii=False)
    found = [form for secret in SECRETS for form in (secret, json.dumps(secret)[1:-1]) if form in saved]
    assert [saved[max(0, saved.index(form) - 300) : saved.index(form) + 100] for form in found] == []
    assert "widgets" in notebook.metadata

    python = os.path.basename(KERNEL_PYTHON)
    texts = {
        cell: "\n".join(one.get("text") or one.get("data", {}).get("text/plain", "") for one in found)
        for cell, found in outputs.items()
    }
    card = texts[CELLS[2]]
    assert f"1 child process ({python} t.py)" in card
    (report,) = [one.data[REPORT] for one in outputs[CELLS[2]] if REPORT in one.get("data", {})]
    assert report["gpus"][0]["children"] == [f"{python} t.py"]
    own = os.path.basename(sys.executable)
    known = ["this notebook", f"another process: {own} other.py", "another notebook"]
    known += ["2 processes of other users"] if len(others) > 2 else []
    for cell in ("%gpu device", "d = gpuwidget.dashboard(); d", "d._view._device.options", "%gpu"):
        assert f" free · {', '.join(known)}" in texts[cell], cell
    for cell in ("%gpu memory", "gpuwidget.holders()"):
        assert [name for name in known[1:] if name not in texts[cell]] == []
        assert f"child process: {python} t.py" in texts[cell]
    assert all(name in texts["gpuwidget.devices()"] for name in known)
    (refused,) = [text for cell, text in errors.items() if "--need" in cell]
    assert all(name in refused for name in known)
    (failed,) = [texts[cell] for cell in errors if "gpu.empty" in cell]
    assert all(name in failed for name in known[1:])
    assert f"{own} other.py" in texts["gpuwidget.sample()"]
    doctor = "".join(one.data["text/html"] for one in outputs["%gpu doctor"])
    assert "~/lib:/srv/$USER/lib" in doctor
    assert "~/cuda --token [redacted]" in doctor


def test_gpuwidget_clean_removes_all_outputs(
    notebook: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`gpuwidget clean` removes all outputs of gpuwidget and its widgets from a saved notebook. Outputs of
    the user's own code stay."""
    path = tmp_path / "train.ipynb"
    nbformat.write(notebook, path)
    assert main(["clean", str(path)]) == 0
    said = capsys.readouterr().out
    cleaned = nbformat.read(path, as_version=4)
    nbformat.validate(cleaned)
    assert [cell.source for cell in cleaned.cells] == list(CELLS)
    left = {cell.source: cell.outputs for cell in cleaned.cells if cell.outputs}
    texts = {cell: outputs for cell, outputs in left.items() if cell not in EXPRESSIONS}
    kinds = {cell: [one.output_type for one in outputs] for cell, outputs in texts.items()}
    failed = [cell for cell in CELLS if "gpu.empty" in cell or "device='meta'" in cell or "--need" in cell]
    # What the user printed.
    kept = {CELLS[-6]: ["stream"]}
    assert kinds == {**kept, **{cell: ["error"] for cell in failed}}
    # nbclient ignores messages that arrive between two cells. Of a chart that is created then, parts without
    # content may be left.
    assert "gpuwidget" not in json.dumps(cleaned.metadata)
    assert "application/vnd.gpuwidget" not in json.dumps(cleaned)
    assert re.fullmatch(
        rf"{re.escape(str(path))}: removed \d+ outputs of gpuwidget in \d+ cells and the saved state of \d+ "
        r"widgets\n",
        said,
    )
    assert main(["clean", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: nothing to remove\n"
