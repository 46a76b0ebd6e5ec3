"""Tests on a real GPU of the memory of child processes, of cells that wait for free memory, and of comparing
two runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers_gpu import HOST_PIDS, nvidia_smi, run_program
from helpers_kernel import Kernel

pytestmark = pytest.mark.gpu

GIB = 1024**3
CHILD = "import torch; x = torch.empty(2 * 1024**3, dtype=torch.uint8, device='{device}'); print(); input()"
"""A program that allocates 2 GiB on a device, prints an empty line, and exits after it has read a line from
stdin."""


def start_holder(gib: int) -> subprocess.Popen[str]:
    """Start a process that allocates this many GiB on GPU 0, wait until it has done so, and return it."""
    code = CHILD.format(device="cuda:0").replace("2 * 1024", f"{gib} * 1024")
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "\n"
    return process


def free_now() -> int:
    """Return the number of bytes that are free on GPU 0 according to nvidia-smi."""
    return int(nvidia_smi("memory.free")[0][0]) * 1024**2


@HOST_PIDS
def test_memory_of_a_child_counts_for_the_run() -> None:
    """The CUDA memory and context of a child process are part of the run's peak, and the report lists the
    child process."""
    result = run_program(
        f"""
        import subprocess, sys, time, gpuwidget
        child = [sys.executable, "-c", {CHILD.format(device="cuda:0")!r}]
        with gpuwidget.watch() as w:
            process = subprocess.Popen(child, stdin=-1, stdout=-1, text=True)
            process.stdout.readline()
            time.sleep(1)
            process.communicate("\\n")
        result = w.report.to_dict()
        """
    )
    gpu = result["gpus"][0]
    assert 2 * GIB < gpu["process_memory"]["peak"] < 4 * GIB
    assert (gpu["shown"], len(gpu["children"])) == (True, 1)
    assert not [note for note in result["notes"] if "CUDA started" in note]


@HOST_PIDS
def test_memory_under_torchrun(tmp_path: Path) -> None:
    """The memory of torchrun's worker is part of the run's memory, although torchrun starts the worker in
    another session."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import time, torch\n"
        "x = torch.empty(2 * 1024**3, dtype=torch.uint8, device='cuda:0')\n"
        "time.sleep(2)\n"
    )
    result = run_program(
        f"""
        import subprocess, sys, gpuwidget
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
        with gpuwidget.watch() as w:
            subprocess.run([*torchrun, {str(script)!r}], check=True)
        result = w.report.to_dict()["gpus"][0]
        """
    )
    assert 2 * GIB < result["process_memory"]["peak"] < 4 * GIB
    assert any("worker.py" in command for command in result["children"])


@HOST_PIDS
@pytest.mark.two_gpus
def test_a_gpu_that_only_a_child_used() -> None:
    """A GPU that only a child process used is shown, in addition to the GPU that this process used."""
    result = run_program(
        f"""
        import subprocess, sys, time, torch, gpuwidget
        x = torch.ones(1, device="cuda:0")
        child = [sys.executable, "-c", {CHILD.format(device="cuda:1")!r}]
        with gpuwidget.watch() as w:
            process = subprocess.Popen(child, stdin=-1, stdout=-1, text=True)
            process.stdout.readline()
            time.sleep(1)
            process.communicate("\\n")
        result = w.report.to_dict()
        """
    )
    first, second = result["gpus"][:2]
    assert (first["shown"], second["shown"]) == (True, True)
    assert second["process_memory"]["peak"] > 2 * GIB
    assert [note["params"]["gpus"] for note in result["note_ids"] if note["id"] == "children-only"] == [
        "GPU 1"
    ]


def test_a_cell_waits_for_free_memory(kernel: Kernel) -> None:
    """With --wait, a cell that needs more memory than is free waits. It starts when another process has freed
    its memory."""
    other = start_holder(4)
    try:
        need = free_now() // GIB + 2
        refused = kernel.run(f"%%gpuwatch --need {need}GiB --gpu 0\nran = True")
        assert refused.reply["ename"] == "UsageError"
        assert "free (holders: " in refused.text or "GiB free." in refused.text
        request = kernel.send(f"%%gpuwatch --need {need}GiB --gpu 0 --wait 2m\n6 * 7")
        message_found = kernel.wait_for_message(
            request, lambda message: message.is_live and "Waiting for" in str(message.content)
        )
        assert message_found is not None
        other.communicate("\n")
        ran = kernel.wait(request)
        assert ran.result == "42"
        assert "Waited " in ran.cards[0]["text/plain"]
    finally:
        other.kill()
        other.communicate()


def test_the_notebooks_cache_counts_as_free(kernel: Kernel) -> None:
    """--need counts the unused part of torch's cache in this notebook as free, and torch can then allocate
    the requested amount."""
    kernel.ok("import torch\nx = torch.empty(8 * 2**30, dtype=torch.uint8, device='cuda:0')\ndel x")
    need = free_now() // GIB + 4
    refused = kernel.run(f"%%gpuwatch --need {need + 6}GiB --gpu 0\n1")
    assert (
        "(and 8.0 GiB in this notebook's torch cache, not in tensors)" in refused.text
        or "has a total of" in refused.text
    )
    ran = kernel.ok(
        f"%%gpuwatch --need {need}GiB --gpu 0\n"
        f"x = torch.empty({need} * 2**30, dtype=torch.uint8, device='cuda:0')\nlen(x) // 2**30"
    )
    assert ran.result == str(need)
    assert (
        "--need also counted 8.0 GiB in this notebook's torch cache, which no tensor uses"
        in ran.cards[0]["text/plain"]
    )


def test_memory_that_the_driver_reserves(kernel: Kernel) -> None:
    """If a cell needs memory that the driver reserves for itself, it fails without waiting, and the error
    contains the reserved amount."""
    total, kept = (int(nvidia_smi(name)[0][0]) for name in ("memory.total", "memory.reserved"))
    ran = kernel.run(f"%%gpuwatch --need {total - kept // 2}MiB --gpu 0 --wait 1h\n1")
    assert ran.reply["ename"] == "UsageError"
    assert ", of which the driver reserves " in ran.text


def test_two_runs_compared() -> None:
    """If the second run used twice the memory and took twice as long, the comparison of the two runs shows
    both."""
    result = run_program(
        """
        import time, torch, gpuwidget
        a = torch.randn(8192, 8192, device="cuda")
        (a @ a).sum().item()
        runs = []
        for seconds, gib in ((2, 1), (4, 2)):
            with gpuwidget.watch(f"{seconds} s") as w:
                x = torch.empty(gib * 1024**3, dtype=torch.uint8, device="cuda")
                del x
                end = time.perf_counter() + seconds
                while time.perf_counter() < end:
                    (a @ a)[0, 0].item()
            runs.append(w.report)
        made = gpuwidget.compare(*runs)
        result = {row.name: [*row.values, row.change] for row in made.rows}
        result["differences"] = len(made.differences)
        """
    )
    assert result["peak above the start"] == ["1.0 GiB", "2.0 GiB", "+100 %"]
    assert 90 < float(result["time"][2].removeprefix("+").removesuffix(" %")) < 110
    assert 60 < float(result["energy"][2].removeprefix("+").removesuffix(" %")) < 140
    assert result["differences"] == 0
