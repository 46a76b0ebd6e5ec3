"""The memory of a cell's child processes counts as the cell's, and the card names the child processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_kernel import Kernel
from helpers_pair import check_card
from nvml_standin import Standin, build

from gpuwidget.system.processes import in_host_pid_namespace

GIB = 1024**3
MACHINE = ("driver=580.95.05", "cuda=13000", "gpus=3", "gpu.*.util=0", "gpu.*.power=80")

pytestmark = pytest.mark.skipif(
    not in_host_pid_namespace(), reason="in a container the driver's process ids are not the children's"
)

HELPERS = f'''
import multiprocessing, os, subprocess, sys, time
import gpuwidget

MACHINE = {MACHINE!r}

def driver(*lines):
    """Set what the driver reports from now on."""
    beside = os.environ["NVML_STANDIN"] + ".new"
    with open(beside, "w") as file:
        file.write("\\n".join([*MACHINE, *lines]) + "\\n")
    os.replace(beside, os.environ["NVML_STANDIN"])

def seen(index, memory):
    """Wait until a watch has read this memory on a GPU."""
    while gpuwidget.sample().readings[index].memory_used != memory:
        time.sleep(0.01)
    time.sleep(0.3)
'''


@pytest.fixture
def kernel(start_kernel: Callable[..., Kernel], tmp_path: Path) -> Iterator[Kernel]:
    """Return a kernel on a machine with three GPUs. Cells set what the driver reports."""
    standin = Standin(build(tmp_path / "library"), tmp_path / "driver")
    standin.scenario(*MACHINE)
    path = {"LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"]}
    made = start_kernel(GPUWIDGET_SOURCE=None, **standin.variables, **path)
    made.ok("%load_ext gpuwidget")
    made.setup(HELPERS)
    yield made
    made.shutdown()


def watched(kernel: Kernel, body: str) -> tuple[dict[str, Any], str]:
    """Run a watched cell, and return its report and the text of its card."""
    ran = kernel.ok(f"%%gpuwatch --interval 0.05\n{body}")
    return check_card(ran), ran.cards[0]["text/plain"]


def test_children_and_grandchildren(kernel: Kernel) -> None:
    """A cell's peak memory includes that of its child process and of the grandchild process,
    even after both have ended."""
    report, text = watched(
        kernel,
        f"""
code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1); "
code += "print(p.pid, flush=True); input(); p.communicate(b'')"
child = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
grandchild = int(child.stdout.readline())
holders = f"self:{GIB} {{child.pid}}:{2 * GIB} {{grandchild}}:{4 * GIB}"
driver("gpu.0.memory_used={7 * GIB}", f"gpu.0.compute={{holders}}")
seen(0, {7 * GIB})
child.communicate("")
driver("gpu.0.memory_used={GIB}", "gpu.0.compute=self:{GIB}")
seen(0, {GIB})
""",
    )
    first, second, _ = report["gpus"]
    assert first["process_memory"] == {"start": 0, "end": GIB, "peak": 7 * GIB}
    assert (first["shown"], second["shown"]) == (True, False)
    (program,) = first["children"]
    assert re.fullmatch(r"2 x python[\d.]* -c", program)
    (note,) = [one["params"] for one in report["note_ids"] if one["id"] == "children-included"]
    assert note == {"gpus": "GPU 0", "children": 2, "programs": [program]}
    assert "2 child processes (2 x python" in text.replace("\n", " ")


def test_gpus_that_only_children_used(kernel: Kernel) -> None:
    """If only child processes used a GPU,
    the card shows this GPU with a note that its memory is that of the child processes alone."""
    report, _ = watched(
        kernel,
        f"""
workers = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2)]
driver(
    *(f"gpu.{{n + 1}}.memory_used={3 * GIB}" for n in range(2)),
    *(f"gpu.{{n + 1}}.compute={{worker.pid}}:{3 * GIB}" for n, worker in enumerate(workers)),
)
seen(2, {3 * GIB})
for worker in workers:
    worker.kill()
    worker.wait()
""",
    )
    assert [gpu["shown"] for gpu in report["gpus"]] == [False, True, True]
    assert [gpu["process_memory"]["peak"] for gpu in report["gpus"]] == [0, 3 * GIB, 3 * GIB]
    notes = [one["params"] for one in report["note_ids"] if one["id"] == "children-only"]
    assert notes == [{"gpus": "GPU 1, GPU 2", "children": 2, "programs": ["2 x sleep"]}]


def test_a_worker_whose_parent_died(kernel: Kernel) -> None:
    """The memory of a worker process counts as the cell's, even if the process that launched it has ended."""
    report, _ = watched(
        kernel,
        f"""
subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $! >pid"])
orphan = int(open("pid").read())
# The forked shell has not executed it yet.
while not open(f"/proc/{{orphan}}/cmdline").read().startswith("sleep"):
    time.sleep(0.001)
driver("gpu.0.memory_used={5 * GIB}", f"gpu.0.compute={{orphan}}:{5 * GIB}")
seen(0, {5 * GIB})
os.kill(orphan, 9)
""",
    )
    assert report["gpus"][0]["process_memory"]["peak"] == 5 * GIB
    assert report["gpus"][0]["children"] == ["sleep"]


def test_forked_workers(kernel: Kernel) -> None:
    """The memory of multiprocessing's forked workers, which a DataLoader uses, counts as the cell's.
    The memory of an unrelated process does not."""
    report, _ = watched(
        kernel,
        f"""
pool = multiprocessing.get_context("fork").Pool(1)
pid = pool._pool[0].pid
driver("gpu.0.memory_used={9 * GIB}", f"gpu.0.compute={{pid}}:{2 * GIB} 1:{7 * GIB}")
seen(0, {9 * GIB})
pool.terminate()
pool.join()
""",
    )
    assert report["gpus"][0]["process_memory"]["peak"] == 2 * GIB
    assert report["gpus"][0]["device_memory"]["peak"] == 9 * GIB


def test_a_program_that_the_cell_waits_for(kernel: Kernel) -> None:
    """If a cell runs '!python child.py',
    its card attributes the peak memory to that program, not to the notebook."""
    (kernel.folder / "child.py").write_text(
        "import os, time\n"
        + HELPERS.partition("def seen")[0].partition("import gpuwidget")[2]
        + f"driver('gpu.0.memory_used={4 * GIB}', f'gpu.0.compute={{os.getpid()}}:{4 * GIB}')\n"
        + "while not os.path.exists('seen'): time.sleep(0.01)\n"
        + "driver()\n"
    )
    kernel.setup(
        f"def watch():\n    seen(0, {4 * GIB})\n    open('seen', 'w').close()\n"
        "import threading\nwatcher = threading.Thread(target=watch)\nkey = 'SECRET123'"
    )
    report, text = watched(kernel, "watcher.start()\n!{sys.executable} child.py --key {key}\nwatcher.join()")
    first = report["gpus"][0]
    assert first["process_memory"] == first["children_memory"] == {"start": 0, "end": 0, "peak": 4 * GIB}
    (program,) = first["children"]
    assert re.fullmatch(r"python[\d.]* child\.py", program)
    assert "peak memory 4.0 GiB (sampled, of 140.4 GiB, in child processes) · memory kept ±0 · " in text
    assert f"this notebook 0 → 0 of 140.4 GiB, in child processes up to 4.0 GiB ({program})" in text
    assert "SECRET123" not in str(report) + text
