"""Ranks of distributed training that a watched cell starts: each has a row on the cell's card."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import Kernel, skip_without_torch
from helpers_pair import check_card
from nvml_standin import Standin, build

from gpuwidget.system.processes import in_host_pid_namespace

MACHINE = ("driver=580.95.05", "cuda=13000", "gpus=2", "gpu.*.util=90", "gpu.*.power=80")
TORCHRUN = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"

pytestmark = pytest.mark.skipif(
    not in_host_pid_namespace(), reason="in a container the driver's process ids are not the children's"
)

REPORTING = """
import gpuwidget, os, time, torch.distributed as dist
rank = gpuwidget.rank()
dist.init_process_group("gloo")
for _ in range(15):
    time.sleep(0.1)
    dist.barrier()
    rank.step()
dist.destroy_process_group()
"""
SILENT = """
import time, torch.distributed as dist
dist.init_process_group("gloo")
time.sleep(2.5)
dist.destroy_process_group()
"""


@pytest.fixture
def environment() -> dict[str, str]:
    """Return further environment variables of the kernel."""
    return {}


@pytest.fixture
def kernel(
    start_kernel: Callable[..., Kernel], tmp_path: Path, environment: dict[str, str]
) -> Iterator[Kernel]:
    """Return a kernel on a machine with two GPUs."""
    standin = Standin(build(tmp_path / "library"), tmp_path / "driver")
    standin.scenario(*MACHINE)
    path = {"LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"]}
    made = start_kernel(GPUWIDGET_SOURCE=None, **standin.variables, **path, **environment)
    made.ok("%load_ext gpuwidget")
    yield made
    made.shutdown()


def workers(kernel: Kernel, body: str) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Run a watched cell. Return the rows of its workers, its report and its card as text."""
    ran = kernel.ok(f"%%gpuwatch\n{body}")
    report = check_card(ran)
    return report["workers"], report, ran.cards[0]["text/plain"]


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.py"
    path.write_text(text)
    return path


def test_ranks_of_torchrun_without_a_change(kernel: Kernel, tmp_path: Path) -> None:
    """Each rank that ``!torchrun`` starts has a row, from its environment alone. Torch's peaks are unknown,
    with the reason."""
    found, _, text = workers(kernel, f"!{TORCHRUN} {script(tmp_path, SILENT)}")
    rows = [(row["kind"], row["rank"], row["local_rank"], row["world_size"]) for row in found]
    assert rows == [("rank", 0, 0, 2), ("rank", 1, 1, 2)]
    assert [row["torch_allocated"] for row in found] == [None, None]
    assert found[0]["missing_ids"]["torch_allocated"] == {"id": "worker-not-reported", "params": {}}
    assert {row["status"] for row in found} == {"ended"}
    assert "rank 0" in text


def test_ranks_that_report(kernel: Kernel, tmp_path: Path) -> None:
    """With ``gpuwidget.rank()`` in the script, the card shows each rank's steps and their duration, and the
    timeline has marks for the steps."""
    found, report, _ = workers(kernel, f"!{TORCHRUN} {script(tmp_path, REPORTING)}")
    assert [(row["rank"], row["steps"], row["status"]) for row in found] == [
        (0, 15, "ended"),
        (1, 15, "ended"),
    ]
    assert all(0.09 < row["step_s"] < 1.0 for row in found)
    labels = {mark["label"] for mark in report["timeline"]["marks"] if mark["kind"] == "step"}
    assert {"rank 0: step 15", "rank 1: step 15"} <= labels


def test_scripts_that_are_run_by_gpuwidget(kernel: Kernel, tmp_path: Path) -> None:
    """Under ``python -m gpuwidget run``, the exit code of each rank is known, and the script runs as before:
    its arguments, its folder on ``sys.path`` and its exit code are the same."""
    (tmp_path / "beside.py").write_text("CODE = 3\n")
    body = "import os, sys, beside\nassert __name__ == '__main__'\nprint(sys.argv[1:])\n"
    body += "sys.exit(beside.CODE if os.environ['RANK'] == '1' else 0)\n"
    path = script(tmp_path, body)
    ran = kernel.ok(
        "%%gpuwatch\nimport os, subprocess, sys\n"
        "children = [subprocess.Popen([sys.executable, '-m', 'gpuwidget', 'run', "
        f"{str(path)!r}, '--lr', '3'], env=os.environ | {{'RANK': str(n), 'WORLD_SIZE': '2'}})\n"
        "    for n in (0, 1)]\n"
        "print([child.wait() for child in children])"
    )
    assert "[0, 3]" in ran.text
    found = check_card(ran)["workers"]
    assert [(row["rank"], row["status"], row["exit_code"]) for row in found] == [
        (0, "ended", 0),
        (1, "failed", 3),
    ]


def test_processes_of_multiprocessing(kernel: Kernel, tmp_path: Path) -> None:
    """A process that multiprocessing started, as ``mp.spawn`` does, reports its rank, and that it failed
    if an exception ended it."""
    (tmp_path / "work.py").write_text(
        "import os, gpuwidget\n"
        "def work(n):\n"
        "    os.environ['RANK'] = str(n)\n"
        "    gpuwidget.rank().step()\n"
        "    if n: raise SystemExit(5)\n"
    )
    found, _, _ = workers(
        kernel,
        f"import multiprocessing, sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport work\n"
        "context = multiprocessing.get_context('spawn')\n"
        "children = [context.Process(target=work.work, args=(n,)) for n in range(2)]\n"
        "for child in children: child.start()\n"
        "for child in children: child.join()\n",
    )
    rows = [(row["rank"], row["steps"], row["status"], row["exit_code"]) for row in found]
    assert rows == [(0, 1, "ended", None), (1, 1, "failed", 5)]


@pytest.mark.parametrize(
    "environment", [{"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}], ids=["srun"]
)
def test_a_notebook_that_was_started_by_srun(kernel: Kernel, tmp_path: Path) -> None:
    """In a notebook that was started by ``srun``, a script that reports is no rank. The ranks that a launcher
    in the notebook starts keep their ranks."""
    path = script(tmp_path, "import gpuwidget\ngpuwidget.rank().step()\n")
    found, _, text = workers(kernel, f"!{sys.executable} {path}")
    assert [(row["kind"], row["rank"], row["world_size"], row["steps"]) for row in found] == [
        ("child", None, None, 1)
    ]
    assert "rank 0" not in text
    found, _, text = workers(
        kernel,
        "import os, subprocess, sys\nfor n in (0, 1):\n"
        f"    subprocess.check_call([sys.executable, {str(path)!r}], env=os.environ | "
        "{'SLURM_PROCID': str(n), 'SLURM_LOCALID': str(n), 'SLURM_NTASKS': '2'})",
    )
    assert [(row["kind"], row["rank"], row["local_rank"], row["world_size"]) for row in found] == [
        ("rank", 0, 0, 2),
        ("rank", 1, 1, 2),
    ]
    assert "rank 0" in text


TRAINING = """
import os, time

def driver(*lines):
    path = os.environ["NVML_STANDIN"]
    with open(path + ".new", "w") as file:
        file.write("\\n".join(lines) + "\\n")
    os.replace(path + ".new", path)

def train(rank, machine, folder, seconds):
    # Rank 0 also sets what the driver reports.
    with open(os.path.join(folder, f"new-{rank}"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, os.path.join(folder, f"pid-{rank}"))  # The other rank must not read half a number.
    while len([name for name in os.listdir(folder) if name.startswith("pid-")]) < 2:
        time.sleep(0.01)
    if rank == 0:
        pids = [open(os.path.join(folder, f"pid-{n}")).read() for n in (0, 1)]
        memory = [line for n in (0, 1) for line in (f"gpu.{n}.memory_used={2**30}",
                                                    f"gpu.{n}.compute={pids[n]}:{2**30}")]
        rates = {"util": (100, 30), "power": (360, 350), "gpm.2": (41, 25), "gpm.5": (20, 20),
                 "gpm.10": (12, 12), "gpm.60": (4000, 4000), "gpm.61": (4000, 4000)}
        lines = [f"gpu.{n}.{key}={values[n]}" for key, values in rates.items() for n in (0, 1)]
        driver(*machine, *memory, *lines)
    time.sleep(seconds)
    if rank == 0:
        driver(*machine)
"""


def test_a_late_rank_of_mp_spawn(kernel: Kernel, tmp_path: Path) -> None:
    """Each process that ``mp.spawn`` starts has a row with its rank, without any change to its code. If one
    rank is late, the advice names it and its GPU, although the GPUs were idle during the start-up."""
    skip_without_torch()
    (tmp_path / "work.py").write_text(TRAINING)
    machine = (*MACHINE[:3], "gpu.*.power=80", "gpu.*.util=0")
    kernel.setup(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport torch.multiprocessing as mp, work\n"
        f"work.driver(*{machine!r})"
    )
    found, report, _ = workers(
        kernel, f"mp.spawn(work.train, args=({machine!r}, {str(tmp_path)!r}, 6.5), nprocs=2)"
    )
    uuids = [gpu["uuid"] for gpu in report["gpus"]]
    rows = [(row["kind"], row["rank"], row["world_size"], row["gpu"], row["status"]) for row in found]
    assert rows == [("rank", 0, 2, uuids[0], "ended"), ("rank", 1, 2, uuids[1], "ended")]
    (advice,) = report["advice"]
    assert (advice["rule"], advice["sure"]) == ("straggler", True)
    assert (advice["evidence"]["late"], advice["evidence"]["late_ranks"]) == (1, [1])
    assert "GPU 1 (rank 1)" in advice["text"]
    assert "about 70 % of the time" in advice["text"]


def test_the_socket_is_private(kernel: Kernel) -> None:
    """The socket at which ranks report is named after the kernel's process, and only the kernel's user can
    connect to it."""
    ran = kernel.ok(
        "%%gpuwatch\nimport os\nfrom jupyter_core.paths import jupyter_runtime_dir\n"
        "print('SOCKET', os.path.join(jupyter_runtime_dir(), f'gpuwidget-{os.getpid()}.sock'))"
    )
    match = re.search(r"SOCKET (\S+)", ran.text)
    assert match is not None
    assert stat.S_IMODE(os.stat(match[1]).st_mode) == 0o600


def test_nothing_is_put_into_the_users_environment(kernel: Kernel) -> None:
    """The environment of a cell's child processes is the same in a watched and in a plain cell."""
    code = "import os, subprocess\nprint(sorted(subprocess.check_output(['env'], text=True).splitlines()))"
    assert kernel.ok(f"%%gpuwatch\n{code}").text == kernel.ok(code).text
