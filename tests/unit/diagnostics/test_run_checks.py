"""Tests of diagnoses with real probe processes, an NVML stand-in, and a fake torch that raises, crashes,
hangs or works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_doctor import WORKING, build_libcuda, fake_torch, issue, outcome
from helpers_wheels import borrow_packages, standard_library
from nvml_standin import Standin

from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.private_data import UserPaths
from gpuwidget.diagnostics.probe_process import ProbeEnvironment, ProbeProcess
from gpuwidget.diagnostics.run_checks import run_checks
from gpuwidget.diagnostics.target import NotebookState, Target
from gpuwidget.model.diagnosis import Check, Diagnosis
from gpuwidget.model.errors import DoctorError

PROBE_TIMEOUT_S = 60.0
LIBCUDNN = "libcudnn.so.9: cannot open shared object file: No such file or directory"


class FakeEnvironment:
    """An environment with a fake torch on a simulated machine, which has an NVML stand-in and a root
    directory with device files."""

    def __init__(self, folder: Path, standin: Standin) -> None:
        self.folder = folder
        self.standin = standin
        self.root = folder / "root"
        (self.root / "dev/shm").mkdir(parents=True)
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (self.root / "dev" / name).touch()
        self.variables = {**standin.environment(), "PATH": "/usr/bin:/bin"}
        # The path contains no torch of the test's environment, which the fake one would hide.
        self.path = [str(folder / "site"), *standard_library(), str(borrow_packages(folder / "borrowed"))]

    def torch(self, body: str, **results: str | None) -> None:
        """Create a package torch whose import runs ``body``."""
        fake_torch(self.folder / "site", body, **results)  # type: ignore[arg-type]

    @property
    def environment(self) -> ProbeEnvironment:
        return ProbeEnvironment(sys.executable, self.path, self.variables)

    def run_doctor(self, timeout_s: float = PROBE_TIMEOUT_S) -> Diagnosis:
        return run_checks(Target("shell", "0.1.0", self.environment, root=self.root, timeout_s=timeout_s))


@pytest.fixture
def fake(tmp_path: Path, library: Path) -> Iterator[FakeEnvironment]:
    """Return a simulated machine with two H200s and a working driver."""
    standin = Standin(library, tmp_path / "driver", "gpus=2\ndriver=580.95.05")
    yield FakeEnvironment(tmp_path, standin)
    standin.scenario()


def links(doctor: Diagnosis) -> dict[str, Check]:
    """Return a diagnosis's checks by id."""
    return {check.id: check for check in doctor.links}


def test_a_torch_that_works_is_found_from_top_to_bottom(fake: FakeEnvironment) -> None:
    """On a working machine, every check shows the value that torch, CUDA or NVML returned, and no check
    is "broken"."""
    build_libcuda(fake.standin.folder)
    fake.torch(WORKING)
    found = links(fake.run_doctor())
    assert {which: check.found for which, check in found.items() if which != "shm"} == {
        "torch": "2.10.0, built for CUDA 12.8",
        "cuda": "12.8",
        "cudnn": "9.10.2",
        "nccl": "2.27.5",
        "driver": "580.95.05, for CUDA up to 13.0",
        "device_files": "2 GPUs under /dev",
        "gpu": "2 \N{MULTIPLICATION SIGN} NVIDIA H200",
        "visible": "all: CUDA_VISIBLE_DEVICES is not set",
        "sharing": "whole GPUs",
        "health": "No memory errors, not throttled",
        "pcie": "full width (x16)",
        "peers": "NVLink",
        "package": "0.1.0",
    }
    assert found["driver"].evidence["libcuda"] == str(fake.standin.folder / "libcuda.so.1")
    assert found["visible"].evidence["GPUs visible to CUDA"] == "1"
    assert "broken" not in {check.status for check in found.values()}


def test_a_torch_without_cudnn(fake: FakeEnvironment) -> None:
    """If `import torch` fails because cuDNN is missing, the cuDNN check names the missing library, and the
    later checks still run."""
    fake.torch(f"raise ImportError({LIBCUDNN!r})")
    found = links(fake.run_doctor())
    assert found["torch"].found == "2.10.0, which can't be imported"
    assert outcome(found["torch"])[1] == issue("torch-import-error", type="ImportError", error=LIBCUDNN)
    assert outcome(found["cudnn"])[1] == issue("library-missing", library="libcudnn.so.9")
    assert [found[which].status for which in ("driver", "device_files")] == ["broken", "ok"]
    (libcuda,) = found["driver"].issues
    assert libcuda.id == "libcuda-missing"
    assert libcuda.params["error"].startswith("libcuda.so.1")


def test_libcuda_in_the_library_path_is_no_issue(fake: FakeEnvironment) -> None:
    """The doctor does not recommend removing libcuda's folder from LD_LIBRARY_PATH, because some containers
    provide the driver that way."""
    build_libcuda(fake.standin.folder)
    fake.torch(f"raise ImportError({LIBCUDNN!r})")
    remedy = outcome(links(fake.run_doctor())["torch"])[2]
    assert remedy is not None
    assert remedy[0] != "remove-from-ld-library-path"


def test_a_torch_that_crashes_python_is_survived(fake: FakeEnvironment) -> None:
    """A segmentation fault in `import torch` ends only the probe process, and the diagnosis reports it."""
    fake.torch("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    found = links(fake.run_doctor())
    assert outcome(found["torch"])[1] == issue("torch-import-crashed", signal="SIGSEGV")
    assert found["gpu"].found == "2 \N{MULTIPLICATION SIGN} NVIDIA H200"


def test_a_torch_that_hangs(fake: FakeEnvironment) -> None:
    """If `import torch` hangs, the diagnosis still contains the driver's version after the timeout."""
    fake.torch("import time; time.sleep(600)")
    found = links(fake.run_doctor(timeout_s=10.0))
    assert outcome(found["torch"])[1] == issue("torch-import-timeout", timeout_s=10.0)
    assert found["driver"].found == "580.95.05, for CUDA up to 13.0"


def test_a_driver_that_hangs(fake: FakeEnvironment) -> None:
    """If NVML hangs, the driver check reports that nvmlInit did not return, and torch is still checked."""
    fake.torch(WORKING)
    fake.standin.scenario("nvmlInitWithFlags=hang")
    found = links(fake.run_doctor(timeout_s=10.0))
    assert outcome(found["driver"])[1] == issue("driver-timeout", timeout_s=10.0, step="nvmlInit")
    assert found["torch"].status == "ok"


def test_libraries_and_kernel_module_that_do_not_fit(fake: FakeEnvironment) -> None:
    """If NVML returns error 18, because the driver was updated without a restart, the driver check shows the
    version of the kernel module that is still loaded."""
    fake.torch(WORKING)
    fake.standin.scenario("nvmlInitWithFlags=error 18")
    version = fake.root / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Fri Jan 17\nGCC version: 12\n"
    )
    found = links(fake.run_doctor())
    assert outcome(found["driver"])[1] == issue("driver-version-mismatch", module="570.86.15")


def test_cuda_that_does_not_start(fake: FakeEnvironment) -> None:
    """If cuInit fails, the GPU check shows the text and code of CUDA's error."""
    build_libcuda(fake.standin.folder)
    fake.torch(WORKING)
    fake.variables["FAKE_CUINIT"] = "719"
    assert outcome(links(fake.run_doctor())["gpu"])[1] == issue(
        "cuda-start-failed", code=719, error="CUDA_ERROR_OF_A_TEST: what a test says"
    )


NAMES = {"json", "queue", "random", "select", "signal", "subprocess", "token", "types", "ast", "inspect"}
"""Names of standard modules that a user's file can hide, unless they are built into the interpreter."""


@pytest.mark.parametrize("name", sorted(NAMES - {*sys.builtin_module_names}))
def test_users_files_named_like_standard_modules_do_no_harm(fake: FakeEnvironment, name: str) -> None:
    """If a user's file has the name of a standard module, such as json.py, and comes first on
    ``sys.path``, the probe still works, and the PyTorch check is a warning."""
    user = fake.folder / "user"
    user.mkdir()
    (user / f"{name}.py").write_text("raise RuntimeError('the user has a file of that name')\n")
    fake.torch(WORKING)
    fake.path.insert(0, str(user))
    doctor = isolated_run.run_in_subprocess("kernel", "0.1.0", fake.environment)
    found = links(doctor)["torch"]
    assert (found.status, found.found) == ("warning", "2.10.0, built for CUDA 12.8")
    assert found.reason == f"{name}.py in {user} hides Python's own module {name}."


def test_a_users_file_that_breaks_the_import(fake: FakeEnvironment) -> None:
    """If a user's file hides a standard module that torch imports, the PyTorch check is "broken", and the
    fix is to rename the file."""
    user = fake.folder / "user"
    user.mkdir()
    (user / "calendar.py").write_text("mine = True\n")
    fake.torch("from calendar import monthrange")
    fake.path.insert(0, str(user))
    found = links(fake.run_doctor())["torch"]
    assert found.status == "broken"
    assert found.reason is not None
    assert found.reason.endswith(f" calendar.py in {user} hides Python's own module calendar.")
    assert found.remedy == f"Rename {user}/calendar.py, and restart the kernel."


def test_permissions_of_device_files(fake: FakeEnvironment) -> None:
    """A device file that the user has no permission to use is reported with its mode and owner. Nothing is
    reported for root, which can use every device file."""
    (fake.root / "dev/nvidia1").chmod(0)
    found = links(fake.run_doctor(timeout_s=20.0))["device_files"]
    expected = (
        None
        if os.geteuid() == 0
        else f"This user has no permission to use /dev/nvidia1 (---------- {os.getuid()}:{os.getgid()})."
    )
    assert found.reason in (None, expected) if os.geteuid() == 0 else found.reason == expected


def test_a_missing_interpreter(fake: FakeEnvironment) -> None:
    """If the environment's interpreter is missing, the driver check is "unknown"."""
    nowhere = ProbeEnvironment("/nowhere/python", fake.path, fake.variables)
    found = links(run_checks(Target("shell", "0.1.0", nowhere, root=fake.root)))
    assert found["driver"].status == "unknown"


# -- in a subprocess -------------------------------------------------------------------------------------


def test_a_run_in_a_subprocess_returns_the_diagnosis(fake: FakeEnvironment) -> None:
    """The diagnosis of `run_in_subprocess()` takes into account which torch version the notebook has loaded
    and whether the notebook has disabled cuDNN."""
    fake.torch(WORKING)
    doctor = isolated_run.run_in_subprocess(
        "kernel", "0.1.0", fake.environment, notebook=NotebookState("2.9.0", cudnn_off=True)
    )
    python = UserPaths.find(fake.variables).shorten(sys.executable)
    assert (doctor.place, doctor.python) == ("kernel", python)
    assert links(doctor)["torch"].found == "2.10.0, built for CUDA 12.8"
    assert links(doctor)["torch"].remedy == "Restart the kernel."
    assert links(doctor)["cudnn"].status == "warning"


def test_a_run_that_fails_raises(fake: FakeEnvironment) -> None:
    """If the interpreter or one of gpuwidget's required packages is missing, `run_in_subprocess()` raises
    DoctorError and does not hang."""
    nowhere = ProbeEnvironment("/nowhere/python", fake.path, fake.variables)
    with pytest.raises(DoctorError, match="No such file or directory"):
        isolated_run.run_in_subprocess("kernel", "0.1.0", nowhere)
    empty = ProbeEnvironment(sys.executable, [], fake.variables)
    with pytest.raises(DoctorError, match="exit status 1: ModuleNotFoundError: No module named 'packaging'"):
        isolated_run.run_in_subprocess("kernel", "0.1.0", empty)


@pytest.mark.parametrize(
    "values", [None, [], {}, {"schema": 1}, {"schema": 1, "links": [{}]}, {"schema": 2, "links": []}]
)
def test_invalid_diagnoses_are_rejected(values: object) -> None:
    """`parse_diagnosis()` raises DoctorError for values that are not a diagnosis or have another schema
    version."""
    with pytest.raises(DoctorError):
        isolated_run.parse_diagnosis(values)


def test_killing_a_probe_kills_its_children(tmp_path: Path) -> None:
    """When a probe times out, its child processes are killed too."""
    (tmp_path / "parent_of_one.py").write_text(
        "import subprocess, sys\n"
        "from gpuwidget.diagnostics.probe_process import send\n"
        "def main(path):\n"
        "    send(child=subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)\n"
        "    import time; time.sleep(600)\n"
    )
    environment = ProbeEnvironment(sys.executable, [str(tmp_path), *sys.path], dict(os.environ))
    child = ProbeProcess("parent_of_one", environment, own_session=True)
    heard = threading.Event()
    while "child" not in child._parse_values():
        assert not heard.wait(0.01)
    result = child.wait(time.monotonic())
    assert result.ending == "hung"
    status = Path(f"/proc/{result.values['child']}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert not heard.wait(0.01)


def test_a_probe_ends_with_its_parent(tmp_path: Path) -> None:
    """When the process that started a probe is killed, the probe and its child processes end too."""
    gate = tmp_path / "gate"
    (tmp_path / "looks_long.py").write_text(
        "import os, subprocess, sys, time\n"
        "def main(path):\n"
        "    code = 'import time; time.sleep(600)'\n"
        "    both = f'{os.getpid()} {subprocess.Popen([sys.executable, \"-c\", code]).pid}'\n"
        f"    open({str(gate)!r}, 'w').write(both + '\\n')\n"
        "    time.sleep(600)\n"
    )
    code = (
        "import os, sys, time\n"
        "from gpuwidget.diagnostics.probe_process import ProbeProcess, ProbeEnvironment\n"
        f"environment = ProbeEnvironment(sys.executable, [{str(tmp_path)!r}, *sys.path], dict(os.environ))\n"
        "ProbeProcess('looks_long', environment, own_session=True).wait(time.monotonic() + 600)\n"
    )
    root = str(Path(isolated_run.__file__).parents[2])
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root})
    heard = threading.Event()
    while not (gate.exists() and gate.read_text().endswith("\n")):
        assert not heard.wait(0.01)
    parent.kill()
    parent.wait()
    for pid in gate.read_text().split():
        status = Path(f"/proc/{pid}/stat")
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
            assert not heard.wait(0.01)


def test_libraries_of_the_loader_are_those_of_the_process_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe does not receive an LD_LIBRARY_PATH that was set in a cell, since the dynamic loader of the
    kernel process ignores such a value too. Other environment variables are passed to the probe."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/set/in/a/cell")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    variables = ProbeEnvironment.current().variables
    assert variables.get("LD_LIBRARY_PATH") != "/set/in/a/cell"
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_probe_has_low_priority(fake: FakeEnvironment) -> None:
    """If memory runs out, Linux kills a probe before other processes. A probe's nice value is the doctor's
    plus 10, and it writes no core file."""
    nice = min(19, os.nice(0) + 10)
    fake.torch(
        "import os, resource\n"
        "text = open('/proc/self/oom_score_adj').read().strip()\n"
        "raise ImportError(f'{text} {os.nice(0)} {resource.getrlimit(resource.RLIMIT_CORE)}')"
    )
    assert (
        links(fake.run_doctor())["torch"].reason == f"'import torch' raises ImportError: 1000 {nice} (0, 0)."
    )


def test_how_a_probe_ended(tmp_path: Path) -> None:
    """A probe's result contains the probe's exit status or signal. For each name, it also contains the last
    value that the probe sent before it ended."""
    (tmp_path / "ends.py").write_text(
        "import os, sys\n"
        "from gpuwidget.diagnostics.probe_process import send\n"
        "def main(path):\n"
        "    send(step='one')\n"
        "    print('noise', end='')\n"
        "    send(step='two', more=[1, None])\n"
        "    print('123', end='', flush=True)\n"
        "    how = int(sys.argv[1])\n"
        "    os.kill(os.getpid(), how) if how > 1 else sys.exit(how)\n"
    )
    environment = ProbeEnvironment(sys.executable, [str(tmp_path), *sys.path], dict(os.environ))
    for argument, ending, detail in (
        (0, "ended", ""),
        (1, "crashed", "exit status 1"),
        (int(signal.SIGABRT), "crashed", "SIGABRT"),
    ):
        result = ProbeProcess("ends", environment, [str(argument)]).wait(time.monotonic() + PROBE_TIMEOUT_S)
        assert (result.ending, result.detail) == (ending, detail)
        assert result.values == {"step": "two", "more": [1, None]}


def test_a_probe_that_prints_endlessly_uses_no_memory(tmp_path: Path) -> None:
    """Text that a user's file prints in a probe is discarded and uses no memory, and the probe's own messages
    are still received."""
    (tmp_path / "prints.py").write_text(
        "import os\n"
        "from gpuwidget.diagnostics.probe_process import send\n"
        "def main(path):\n"
        "    send(step='one')\n"
        "    for end in (b'\\n', b''):\n"
        "        for _ in range(256):\n"
        "            os.write(1, b'x' * 65535 + (end or b'x'))\n"
        "    send(step='two', more='m' * 1_000_000)\n"
    )
    environment = ProbeEnvironment(sys.executable, [str(tmp_path), *sys.path], dict(os.environ))
    tracemalloc.start()
    try:
        result = ProbeProcess("prints", environment).wait(time.monotonic() + PROBE_TIMEOUT_S)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.ending, result.values) == ("ended", {"step": "two", "more": "m" * 1_000_000})
    assert peak < 16 * 2**20


def test_the_last_stderr_line_of_a_failed_probe(tmp_path: Path) -> None:
    """The result of a failed probe contains the last line of its stderr, such as the exception."""
    (tmp_path / "fails.py").write_text(
        "import os, sys\n"
        "def main(path):\n"
        "    if sys.argv[1] == 'raise':\n"
        "        raise RuntimeError('no room')\n"
        "    os.write(2, b'a warning\\nfree(): invalid pointer\\n')\n"
        "    os.kill(os.getpid(), int(sys.argv[1]))\n"
    )
    environment = ProbeEnvironment(sys.executable, [str(tmp_path), *sys.path], dict(os.environ))
    for argument, detail in (
        ("raise", "exit status 1: RuntimeError: no room"),
        (str(int(signal.SIGABRT)), "SIGABRT: free(): invalid pointer"),
        (str(int(signal.SIGKILL)), "SIGKILL"),
    ):
        result = ProbeProcess("fails", environment, [argument]).wait(time.monotonic() + PROBE_TIMEOUT_S)
        assert (result.ending, result.detail) == ("crashed", detail)
