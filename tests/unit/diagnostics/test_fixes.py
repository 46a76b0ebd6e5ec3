"""Tests that run each command that the doctor offers. They check that the command removes the issue and
leaves every installed package complete."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers_doctor import build_libcuda, fix, issue, outcome
from helpers_wheels import (
    CUDNN_FILE,
    NCCL_FILE,
    SPARSE_FILE,
    Installation,
    content,
    make_wheel,
    torch_wheel,
)
from nvml_standin import Standin

import gpuwidget.diagnostics
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.diagnostics.run_checks import run_checks
from gpuwidget.diagnostics.target import Target
from gpuwidget.model.diagnosis import Check, Diagnosis

CU13 = "nvidia-cudnn-cu13==9.10.2.21"
CU12 = "nvidia-cudnn-cu12==9.8.0.87"
NCCL13 = "nvidia-nccl-cu13==2.27.5"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return a virtual environment that all tests of this module share, because creating one takes
    seconds."""
    return Installation(tmp_path_factory.mktemp("installation"))


@dataclass
class FakeMachine:
    """A simulated machine: a virtual environment, a stand-in for NVML, and a root directory with device
    files."""

    environment: Installation
    standin: Standin
    root: Path
    variables: dict[str, str]
    extra: list[str]

    def run_doctor(self) -> Diagnosis:
        path = self.environment.path
        variables = {**self.standin.environment(), "PATH": "/usr/bin:/bin", **self.variables}
        seen = ProbeEnvironment(self.environment.python, [*path[:-1], *self.extra, path[-1]], variables)
        return run_checks(Target("shell", "0.1.0", seen, root=self.root, timeout_s=60.0))

    def check(self, which: str) -> Check:
        return next(one for one in self.run_doctor().links if one.id == which)

    def follow(self, which: str, expected: str) -> None:
        """Assert that the check offers the command ``expected``, and run the command. Then assert that the
        check is "ok" and that every installed package is complete."""
        before = self.check(which)
        assert before.command is not None, before
        assert before.remedy is not None
        assert before.command in before.remedy
        shortened = before.command.replace(f"{self.environment.python} -m ", "")
        assert shortened == expected
        self.environment.shell(before.command)
        after = self.check(which)
        assert (after.status, after.reason) == ("ok", None)
        assert self.environment.damaged() == []


@pytest.fixture
def machine(environment: Installation, tmp_path: Path, library: Path) -> Iterator[FakeMachine]:
    """Return a machine with one H200, a driver for CUDA 13 and an empty virtual environment."""
    environment.clear()
    standin = Standin(library, tmp_path / "driver", "gpus=1\ndriver=580.95.05")
    build_libcuda(standin.folder)
    root = tmp_path / "root"
    for name in ("dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    yield FakeMachine(environment, standin, root, {}, [])
    standin.scenario()


def on_the_index(wheels: Path) -> None:
    """Create wheels of cuDNN and NCCL for CUDA 12 and 13, and a wheel of a torch version that requires the
    wheels for CUDA 13. The two wheels of a library contain files with the same names."""
    for requirement, file in ((CU13, CUDNN_FILE), (CU12, CUDNN_FILE), (NCCL13, NCCL_FILE)):
        name, version = requirement.split("==")
        make_wheel(wheels, name, version, {file: content(name)})
    make_wheel(wheels, "nvidia-nccl-cu12", "2.25.1", {NCCL_FILE: content("nvidia-nccl-cu12")})
    torch_wheel(
        wheels,
        "2.13.0+cu130",
        "13.0",
        (CU13, f'{NCCL13}; python_version > "3"'),
        files=(CUDNN_FILE, NCCL_FILE),
    )


def reinstall_command(requirement: str) -> str:
    return f"pip install --force-reinstall --no-deps {requirement}"


def replace_command(wrong: str, right: str) -> str:
    return f"{reinstall_command(right)} --dry-run && pip uninstall -y {wrong} && {reinstall_command(right)}"


@pytest.mark.parametrize("order", [("cu12", "cu13"), ("cu13", "cu12")])
@pytest.mark.parametrize(
    ("which", "wrong", "right"),
    [("cudnn", "nvidia-cudnn-cu12", CU13), ("nccl", "nvidia-nccl-cu12", NCCL13)],
)
def test_two_packages_with_the_same_files(
    machine: FakeMachine, which: str, wrong: str, right: str, order: tuple[str, str]
) -> None:
    """If two packages contain the same files, the doctor's command uninstalls the wrong package and then
    reinstalls the one that torch requires, because the uninstallation deletes the shared files."""
    pip = machine.environment.pip
    on_the_index(machine.environment.wheels)
    pip("install", "torch")
    pip("install", wrong)
    if order == ("cu12", "cu13"):
        pip(*reinstall_command(right).split()[1:])
    machine.follow(which, replace_command(wrong, right))


def test_packages_that_require_different_libraries(machine: FakeMachine) -> None:
    """If torch and another package require cuDNN packages that conflict, the doctor offers no command and
    recommends separate environments."""
    on_the_index(machine.environment.wheels)
    make_wheel(machine.environment.wheels, "jax-cuda12", "0.5", {"jax.py": b"\n"}, ["nvidia-cudnn-cu12"])
    machine.environment.pip("install", "torch", "jax-cuda12")
    one = machine.check("cudnn")
    assert outcome(one)[2] == (
        fix(
            "separate-environments",
            wrong="nvidia-cudnn-cu12",
            right="nvidia-cudnn-cu13",
            dependents=("jax-cuda12",),
        )
    )


def test_other_libraries_with_the_same_files(machine: FakeMachine) -> None:
    """A cuSPARSELt package for the wrong CUDA version is replaced in the same way as a wrong cuDNN or NCCL
    package."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    right = "nvidia-cusparselt-cu13==0.8.0"
    for name, version in (("nvidia-cusparselt-cu13", "0.8.0"), ("nvidia-cusparselt-cu12", "0.7.1")):
        make_wheel(wheels, name, version, {SPARSE_FILE: content(name)})
    torch_wheel(wheels, "2.13.0+cu130", "13.0", (CU13, right))
    machine.environment.pip("install", "torch", "nvidia-cusparselt-cu12")
    machine.follow("cuda", replace_command("nvidia-cusparselt-cu12", right))


@pytest.mark.parametrize("left", [None, b"", b"half"])
def test_a_library_that_is_missing_empty_or_cut_off(machine: FakeMachine, left: bytes | None) -> None:
    """If a library file is missing, empty or truncated, the doctor names the file and its package, and its
    command reinstalls only that package."""
    on_the_index(machine.environment.wheels)
    machine.environment.pip("install", "torch")
    file = machine.environment.site / CUDNN_FILE
    file.unlink() if left is None else file.write_bytes(left)
    problem = {None: "missing", b"": "empty", b"half": "too-short"}[left]
    one = machine.check("cudnn")
    assert ("package-damaged", CUDNN_FILE, problem) in [
        (each.id, each.params.get("file"), each.params.get("problem")) for each in one.issues
    ]
    assert machine.check("torch").command == one.command
    machine.follow("cudnn", reinstall_command(CU13))


def test_a_library_that_no_import_needs(machine: FakeMachine) -> None:
    """If a library that torch loads only after its import is damaged, the doctor reports it, although `import
    torch` succeeds."""
    on_the_index(machine.environment.wheels)
    torch_wheel(machine.environment.wheels, "2.13.0+cu130", "13.0", (CU13, NCCL13), files=())
    machine.environment.pip("install", "torch")
    (machine.environment.site / NCCL_FILE).write_bytes(b"half")
    assert machine.check("torch").status == "ok"
    assert machine.check("nccl").status == "broken"
    machine.follow("nccl", reinstall_command(NCCL13))


def test_a_damaged_torch(machine: FakeMachine) -> None:
    """If one of torch's files is damaged, the doctor's command reinstalls the same version and build of torch
    from PyTorch's index and leaves torch's libraries unchanged."""
    on_the_index(machine.environment.wheels)
    torch_wheel(machine.environment.wheels, "2.15.0+cu130", "13.0", (CU13, NCCL13))
    machine.environment.pip("install", "torch==2.13.0+cu130")
    (machine.environment.site / "torch/_tensor.py").write_bytes(b"# as")
    one = machine.check("torch")
    assert outcome(one)[:2] == (
        "warning",
        issue(
            "package-damaged",
            package="torch",
            version="2.13.0+cu130",
            file="torch/_tensor.py",
            problem="too-short",
            count=1,
        ),
    )
    index = "--index-url https://download.pytorch.org/whl/cu130"
    machine.follow("torch", f"{reinstall_command('torch==2.13.0+cu130')} {index}")


@pytest.mark.parametrize("installed", [None, "9.8.0.87"])
def test_a_library_of_another_version(machine: FakeMachine, installed: str | None) -> None:
    """If a library is missing or has the wrong version, the doctor's command installs the version that
    torch's metadata requires."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    make_wheel(wheels, "nvidia-cudnn-cu13", "9.8.0.87", {CUDNN_FILE: content("nvidia-cudnn-cu13")})
    machine.environment.pip("install", "torch")
    if installed is None:
        machine.environment.pip("uninstall", "-y", "nvidia-cudnn-cu13")
    else:
        machine.environment.pip("install", "--no-deps", f"nvidia-cudnn-cu13=={installed}")
    machine.follow("cudnn", reinstall_command(CU13))


NUMPY = b"import os\n__version__ = '%s'\nfrom numpy import core\ndef zeros(n):\n    return [0.0] * n\n"


def numpy_wheel(wheels: Path, version: str) -> None:
    texts = {"numpy/__init__.py": NUMPY % version.encode(), "numpy/core.py": b"multiarray = True\n"}
    make_wheel(wheels, "numpy", version, texts)


@pytest.mark.parametrize("imports", ["", "import numpy"])
def test_a_broken_numpy(machine: FakeMachine, imports: str) -> None:
    """If numpy is broken, the doctor's command reinstalls only numpy, whether `import torch` fails or only
    the conversion of arrays fails."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    numpy_wheel(wheels, "2.1.0")
    numpy_wheel(wheels, "2.4.0")
    torch_wheel(wheels, "2.13.0+cu130", "13.0", (CU13, NCCL13), imports=imports)
    machine.environment.pip("install", "torch", "numpy==2.1.0")
    (machine.environment.site / "numpy/core.py").write_text(
        "raise ImportError('multiarray failed to import')\n"
    )
    one = machine.check("torch")
    assert "numpy" in (one.reason or "")
    assert any(
        "multiarray failed to import" in result for result in (one.reason or "", *one.evidence.values())
    )
    assert (one.status == "broken") == (imports != "")
    machine.follow("torch", reinstall_command("numpy==2.1.0"))


def test_a_numpy_that_is_too_new(machine: FakeMachine) -> None:
    """If torch was built for numpy 1 and numpy 2 is installed, the doctor's command installs numpy 1."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    numpy_wheel(wheels, "2.1.0")
    numpy_wheel(wheels, "1.26.4")
    check = "import numpy; raise_ = numpy.__version__[0] == '2'; assert not raise_, '_ARRAY_API not found'"
    torch_wheel(wheels, "2.13.0+cu130", "13.0", (CU13, NCCL13), from_numpy=f"{check}\n    return list(array)")
    machine.environment.pip("install", "torch", "numpy==2.1.0")
    machine.follow("torch", "pip install --no-deps 'numpy<2'")


@pytest.mark.parametrize("left", ["nothing", "metadata"])
def test_a_package_that_torch_requires_is_missing(machine: FakeMachine, left: str) -> None:
    """If a package that torch requires is missing, the doctor's command installs a version that torch
    accepts. If only the files of the package are missing, the command reinstalls the installed version."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    for version in ("1.12", "1.14"):
        make_wheel(wheels, "sympy", version, {"sympy/__init__.py": b"zoo = 1\n"}, ["mpmath"])
    make_wheel(wheels, "mpmath", "1.3", {"mpmath/__init__.py": b"inf = 1\n"})
    torch_wheel(
        wheels, "2.13.0+cu130", "13.0", (CU13, NCCL13, "sympy>=1.13.3"), imports="import sympy, mpmath"
    )
    machine.environment.pip("install", "torch")
    if left == "nothing":
        machine.environment.pip("uninstall", "-y", "sympy", "mpmath")
        machine.follow("torch", "pip install 'sympy>=1.13.3'")
    else:
        shutil.rmtree(machine.environment.site / "sympy")
        machine.follow("torch", reinstall_command("sympy==1.14"))


def test_a_cpu_build_that_hides_another_torch(machine: FakeMachine, tmp_path: Path) -> None:
    """If the environment's CPU build hides a torch with CUDA in a later folder, the doctor's command
    uninstalls the CPU build and leaves the other copy intact."""
    on_the_index(machine.environment.wheels)
    torch_wheel(machine.environment.wheels, "2.13.0+cpu", None, files=())
    machine.extra.append(str(tmp_path / "other"))
    machine.environment.pip("install", "--target", machine.extra[0], "torch==2.13.0+cu130")
    machine.environment.pip("install", "torch==2.13.0+cpu")
    machine.follow("torch", "pip uninstall -y torch")
    assert (tmp_path / "other/torch/__init__.py").is_file()


def test_leftovers_of_torch(machine: FakeMachine) -> None:
    """If an uninstallation has left a folder without an __init__.py, the doctor's fix deletes that folder and
    installs torch."""
    on_the_index(machine.environment.wheels)
    rest = machine.environment.site / "torch/lib"
    rest.mkdir(parents=True)
    fix = machine.check("torch").issues[0].fix
    assert fix is not None
    assert fix.before == f"Delete {rest.parent}. Then install PyTorch:"
    shutil.rmtree(rest.parent)
    machine.environment.shell(fix.command or "")
    assert machine.check("torch").status == "ok"


@pytest.mark.parametrize("older", [["2.12.0"], ["2.12.0", "2.11.0"], ["2.12.0", "2.11.0", "2.10.0"]])
def test_several_torches_in_one_folder(machine: FakeMachine, older: list[str]) -> None:
    """If one folder contains the metadata of several torch versions, the doctor's command leaves one complete
    torch, although uninstalling any version deletes files of all."""
    site = machine.environment.site
    on_the_index(machine.environment.wheels)
    for version in older:
        torch_wheel(machine.environment.wheels, f"{version}+cu130", "13.0", (CU13, NCCL13))
        machine.environment.pip("install", f"torch=={version}+cu130")
        (site / f"torch-{version}+cu130.dist-info").rename(site / f"kept-{version}")
    machine.environment.pip("install", "--ignore-installed", "torch==2.13.0+cu130")
    for version in older:
        (site / f"kept-{version}").rename(site / f"torch-{version}+cu130.dist-info")
    one = machine.check("torch")
    assert one.command is not None
    assert one.command.count("uninstall -y torch") == len(older)
    machine.environment.shell(one.command)
    assert machine.check("torch").status == "ok"
    assert machine.environment.damaged() == []
    assert len(list(site.glob("torch-*.dist-info"))) == 1


INDEX = "--index-url https://download.pytorch.org/whl"


def test_a_build_for_the_cpu_gets_cuda_in_its_own_version(machine: FakeMachine) -> None:
    """For a CPU build, the doctor's command installs the CUDA build of the same torch version, with its
    libraries."""
    on_the_index(machine.environment.wheels)
    torch_wheel(machine.environment.wheels, "2.13.0+cpu", None, files=())
    torch_wheel(machine.environment.wheels, "2.15.0+cu130", "13.0", (CU13, NCCL13))
    machine.environment.pip("install", "torch==2.13.0+cpu")
    machine.follow("torch", f"pip install torch==2.13.0+cu130 {INDEX}/cu130")


def test_a_driver_that_is_too_old_for_the_build(machine: FakeMachine) -> None:
    """If the driver is too old, the doctor's command installs the build of the same torch version for an
    older CUDA. The next diagnosis then offers a command that replaces the cuDNN of the previous build."""
    on_the_index(machine.environment.wheels)
    make_wheel(
        machine.environment.wheels,
        "nvidia-nccl-cu12",
        "2.27.5",
        {NCCL_FILE: content("nccl-cu12")},
    )
    torch_wheel(machine.environment.wheels, "2.13.0+cu126", "12.6", (CU12,))
    machine.standin.scenario("gpus=1\ndriver=570.86.15")
    machine.environment.pip("install", "torch==2.13.0+cu130")
    torch = machine.environment.site / "torch/__init__.py"
    # Make this fake torch report no CUDA, as a real torch does if the driver is too old for it.
    torch.write_text(
        torch.read_text().replace("is_available=lambda: True, d", "is_available=lambda: not 1, d")
    )
    before = machine.check("driver")
    assert before.status == "broken"
    assert before.command == f"{machine.environment.python} -m pip install torch==2.13.0+cu126 {INDEX}/cu126"
    machine.environment.shell(before.command)
    assert machine.check("driver").status == "ok"
    machine.follow("cudnn", replace_command("nvidia-cudnn-cu13", CU12))


def test_an_environment_without_torch(machine: FakeMachine) -> None:
    """In an environment without torch, the doctor's command installs a build that the driver supports."""
    on_the_index(machine.environment.wheels)
    machine.follow("torch", "pip install torch")


def test_reinstalling_after_another_package_overwrote_files(machine: FakeMachine) -> None:
    """If PyPI's unrelated package gpuwidget overwrote files of this project, the doctor's command uninstalls
    that package and installs the requirement in GPUWIDGET_INSTALL_REQUIREMENT."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    ours = make_wheel(wheels, "jupyterlab-gpuwidget", "0.1.0", {"gpuwidget/__init__.py": b"ours = 1\n"})
    make_wheel(wheels, "gpuwidget", "0.0.3", {"gpuwidget/__init__.py": b"theirs = 1\n"})
    machine.variables["GPUWIDGET_INSTALL_REQUIREMENT"] = str(ours)
    machine.environment.pip("install", "torch", "jupyterlab-gpuwidget")
    machine.environment.pip("install", "gpuwidget")
    machine.follow("package", replace_command("gpuwidget", str(ours)))


def test_a_module_pynvml_that_is_not_nvidias(machine: FakeMachine) -> None:
    """If a fork of pynvml has replaced NVIDIA's module, the doctor's command uninstalls the fork and
    reinstalls nvidia-ml-py."""
    wheels = machine.environment.wheels
    on_the_index(wheels)
    real = (machine.environment.borrowed / "pynvml.py").read_bytes()
    make_wheel(wheels, "nvidia-ml-py", "13.580.65", {"pynvml.py": real})
    make_wheel(wheels, "pynvml", "11.4.1", {"pynvml.py": b"fork = 1\n"})
    machine.environment.pip("install", "torch", "nvidia-ml-py")
    machine.environment.pip("install", "pynvml")
    machine.follow("driver", replace_command("pynvml", "nvidia-ml-py==13.580.65"))


# -- every command is run by a test, or there is a reason why not ----------------------------------------

EXECUTED: dict[str, Callable[..., None]] = {
    "build_command": test_a_driver_that_is_too_old_for_the_build,
    "install_torch": test_a_build_for_the_cpu_gets_cuda_in_its_own_version,
    "remove_torch_copy": test_a_cpu_build_that_hides_another_torch,
    "reinstall_torch_copies": test_several_torches_in_one_folder,
    "replace_torch_leftovers": test_leftovers_of_torch,
    "install_nvml_binding": test_a_module_pynvml_that_is_not_nvidias,
    "install_older_numpy": test_a_numpy_that_is_too_new,
    "reinstall_gpuwidget": test_reinstalling_after_another_package_overwrote_files,
    "reinstall": test_a_library_that_is_missing_empty_or_cut_off,
    "replace_package": test_two_packages_with_the_same_files,
    "install_required": test_a_package_that_torch_requires_is_missing,
}
"""Maps each function of fixes.py that builds a command to the test that runs the command."""
NOT_EXECUTED = {
    "conda_cuda_build": "needs conda and its channels",
    "reinstall_libraries": "offers what reinstall() does",
    "missing_library_fix": "offers what reinstall_libraries() does",
}
CHANGES_THE_MACHINE = {
    "sudo usermod -aG video $USER": "changes the machine's users",
    "sudo nvidia-smi -pm 1": "changes the machine's services",
    "ls -la /dev/shm": "changes nothing",
    "sudo modprobe nvidia": "loads the driver",
    "sudo nvidia-modprobe -c 0 -u": "needs the driver",
    "sudo mount -o remount,size=50% /dev/shm": "changes the machine's mounts",
    "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm": "needs the driver",
    "sudo nvidia-smi --gpu-reset": "needs a GPU",
    "sudo nvidia-smi --gpu-reset -i {indices}": "needs a GPU",
    "sudo systemctl start nvidia-fabricmanager": "needs NVSwitch",
    "nvidia-smi topo -p2p r": "changes nothing, needs the driver",
    "sudo nvidia-smi mig -cgi 0 -C": "needs a GPU with MIG",
    "sudo nvidia-smi -i {gpu} -c DEFAULT": "needs a GPU",
}
"""Maps each command in a message module to the reason why no test runs the command."""
DIAGNOSTICS = Path(gpuwidget.diagnostics.__file__ or "").parent


def test_every_command_is_executed_or_has_a_reason() -> None:
    """Every function in fixes.py that offers a command is listed either in EXECUTED, with the test that runs
    the command, or in NOT_EXECUTED, with the reason why no test does."""
    tree = ast.parse((DIAGNOSTICS / "fixes.py").read_text(encoding="utf-8"))
    offering = {
        one.name
        for one in tree.body
        if isinstance(one, ast.FunctionDef)
        and not one.name.startswith("_")
        and one.returns is not None
        and (ast.unparse(one.returns) == "Fix" or one.name == "build_command")
    }
    assert offering == {*EXECUTED, *NOT_EXECUTED}


def test_every_other_command_has_its_reason() -> None:
    """Every command that a message module contains is listed in CHANGES_THE_MACHINE. The message modules
    receive all other commands as the argument ``command``; these are built in fixes.py."""
    found = {
        ast.literal_eval(node.args[2])
        for file in DIAGNOSTICS.glob("messages_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "FixTemplate" and node.args[2:]
    }
    assert found == {*CHANGES_THE_MACHINE, "{command}"}
