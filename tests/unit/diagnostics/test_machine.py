"""Tests of reading the machine's state from files: device files, signs of a container, the kernel log and
package metadata."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers_doctor import fake_torch

from gpuwidget.diagnostics import machine, packages
from gpuwidget.diagnostics.packages import InstalledPackage
from gpuwidget.diagnostics.torch_copies import TorchCopy, TorchFiles
from gpuwidget.diagnostics.torch_probe import LIBRARIES
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.system import kernel_log


def files(root: Path, **texts: str) -> Path:
    """Create files with these texts in a root directory; ``__`` in a file's name stands for a slash."""
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def inspect_machine(root: Path, **variables: str) -> machine.MachineState:
    """Return the state of the machine with this root directory and these environment variables."""
    return machine.inspect(variables, root, LIBRARIES)


def test_device_files_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Device files are listed in this order: GPUs by number, control files, MIG slices. If there is a GPU's
    file but no /dev/nvidia-uvm, then /dev/nvidia-uvm is reported as missing."""
    names = ("nvidia10", "nvidia2", "nvidiactl", "nvidia-caps/nvidia-cap1", "nvidia-modeset", "sda")
    for name in names:
        files(tmp_path, **{f"dev/{name}": ""})
    found = inspect_machine(tmp_path)
    assert [one.path for one in found.devices] == [
        "/dev/nvidia2",
        "/dev/nvidia10",
        "/dev/nvidiactl",
        "/dev/nvidia-caps/nvidia-cap1",
    ]
    assert found.expected == ("/dev/nvidia-uvm",)
    assert {one.usable for one in found.devices} == {True}
    assert inspect_machine(files(tmp_path / "other", dev__sda="")).expected == ()


@pytest.mark.parametrize(
    ("texts", "variables", "container"),
    [
        ({}, {}, None),
        ({"proc__1__cgroup": "0::/init.scope\n"}, {}, None),
        ({".dockerenv": ""}, {}, "/.dockerenv"),
        ({"run__.containerenv": ""}, {}, "/run/.containerenv"),
        ({"proc__1__cgroup": "0::/kubepods/pod1\n"}, {}, "/proc/1/cgroup (kubepods)"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
        ({}, {"container": "podman"}, "the variable 'container'"),
    ],
)
def test_signs_of_a_container(
    tmp_path: Path, texts: dict[str, str], variables: dict[str, str], container: str | None
) -> None:
    """Docker, Podman and Kubernetes containers are detected by typical files or environment variables."""
    assert inspect_machine(files(tmp_path, **texts), **variables).container == container


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:00:00 UTC 2025\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)\n",
    ],
)
def test_the_kernel_module_of_either_flavour(tmp_path: Path, text: str) -> None:
    """The driver's version is read for both the proprietary and the open kernel module."""
    assert inspect_machine(files(tmp_path, proc__driver__nvidia__version=text)).module == "580.95.05"
    assert inspect_machine(files(tmp_path / "none")).module is None


@pytest.mark.parametrize(
    ("found", "has_gpu"),
    [
        ((), None),
        ((("0x8086", "0x030000"), ("0x10de", "0x030200")), True),
        ((("0x10de", "0x030000"),), True),
        ((("0x8086", "0x060000"), ("0x1002", "0x030000")), False),
        # A device of NVIDIA's that is no GPU, such as a bridge of a Jetson, or audio beside a GPU.
        ((("0x8086", "0x060000"), ("0x10de", "0x040300")), None),
        ((("0x8086", "0x060000"), ("", "")), None),
        ((("", ""), ("0x10de", "0x030200")), True),
    ],
)
def test_nvidia_gpus_on_the_pci_bus(
    tmp_path: Path, found: tuple[tuple[str, str], ...], has_gpu: bool | None
) -> None:
    """A machine has no NVIDIA GPU if its PCI devices are listed, and none of them is NVIDIA's. Without a list
    of devices, or if a device's vendor can't be read, this is unknown."""
    for number, (vendor, kind) in enumerate(found):
        device = tmp_path / f"sys/bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        if vendor:
            (device / "vendor").write_text(f"{vendor}\n")
            (device / "class").write_text(f"{kind}\n")
    assert inspect_machine(tmp_path).nvidia_gpu_on_pci is has_gpu


def test_a_machine_with_mps_in_wsl(tmp_path: Path) -> None:
    """The MPS daemon is detected by its pipe, and WSL by the release name of its kernel."""
    files(tmp_path, tmp__nvidia_mps__control="", proc__sys__kernel__osrelease="6.6-microsoft-standard-WSL2\n")
    (tmp_path / "tmp/nvidia_mps").rename(tmp_path / "tmp/nvidia-mps")
    found = inspect_machine(tmp_path)
    assert (found.mps, found.system) == ("/tmp/nvidia-mps", "wsl")
    assert inspect_machine(tmp_path, CUDA_MPS_PIPE_DIRECTORY="/elsewhere").mps is None


def test_leftovers_of_a_dead_mps_daemon(tmp_path: Path) -> None:
    """If an MPS daemon has ended, its leftover pipe is ignored. In a container the pipe counts as a running
    daemon, because the daemon's process is not visible there."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for where, number, runs in (("dead", ended.pid, False), ("alive", os.getpid(), True)):
        place = tmp_path / where / "tmp/nvidia-mps"
        files(place, **{"control": "", "nvidia-cuda-mps-control.pid": f"{number}\n"})
        assert (inspect_machine(tmp_path / where).mps is not None) is runs
    files(tmp_path / "dead", **{".dockerenv": ""})
    assert inspect_machine(tmp_path / "dead").mps == "/tmp/nvidia-mps"


def test_libraries_in_the_library_path(tmp_path: Path) -> None:
    """Of the folders in LD_LIBRARY_PATH, only those that contain CUDA libraries are listed, each with its
    CUDA libraries."""
    names = ("libcudnn_ops.so.9", "libcublasLt.so.12", "libfoo.so", "libcudnn.a")
    for name in names:
        files(tmp_path / "cuda", **{name: ""})
    files(tmp_path / "other", **{"libz.so.1": ""})
    path = f"{tmp_path}/other::{tmp_path}/cuda:/nowhere"
    assert inspect_machine(tmp_path, LD_LIBRARY_PATH=path).libraries == {
        f"{tmp_path}/cuda": ("libcublasLt.so.12", "libcudnn_ops.so.9")
    }


def test_real_paths_of_the_library_path(tmp_path: Path) -> None:
    """``real_folders`` maps the real path of each library's folder to the folder in LD_LIBRARY_PATH, as the
    variable spells it. The real path differs if the folder or the library is a link."""
    root = tmp_path.resolve()
    files(root / "cuda-13.0/lib", **{"libcudart.so.13": ""})
    files(root / "elsewhere", **{"libcudnn.so.9.10": ""})
    (root / "cuda").symlink_to("cuda-13.0")
    (root / "cuda/lib64").symlink_to("lib")
    (root / "cuda/lib/libcudnn.so.9").symlink_to(root / "elsewhere/libcudnn.so.9.10")
    spelt = f"{root}/cuda/lib64/"
    found = inspect_machine(root, LD_LIBRARY_PATH=f"{spelt}:{root}/cuda-13.0/lib")
    assert found.real_folders == {f"{root}/cuda-13.0/lib": spelt, f"{root}/elsewhere": spelt}


def test_errors_of_the_driver_in_the_kernels_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the PCI address, the number, the time and the action of an XID are read from the kernel log, not
    the name of the program that caused it. XID 154 names the action itself."""
    monkeypatch.setattr(SYSTEM_CLOCK, "_time", lambda: 1100.0)
    monkeypatch.setattr(kernel_log, "since_boot_without_suspend", lambda: 100.0)
    changed = "GPU recovery action changed from 0x0 (None) to"
    text = (
        "6,1,100,-;Linux version 6.1\n"
        "4,9,2000000,-;NVRM: Xid (PCI:0000:17:00): 31, pid=77, name=secret.py, Ch 00000008\n"
        "4,9,3000000,-;NVRM: Xid (PCI:0000:CA:00): 79, GPU has fallen off the bus.\n"
        f"4,9,3000000,-;NVRM: Xid (PCI:0000:CA:00): 154, {changed} 0x2 (Node Reboot Required)\n"
        f"4,9,4000000,-;NVRM: Xid (PCI:0000:17:00): 154, {changed} 0x1 (GPU Reset Required)\n"
        f"4,9,5000000,-;NVRM: Xid (PCI:0000:17:00): 154, {changed} 0x3 (Drain P2P)\n"
        "4,9,6000000,-;program: NVRM: Xid (PCI:0000:17:00): 48, quoted\n"
    )
    assert machine._logged_xids(files(tmp_path, dev__kmsg=text)) == (
        ("0000:17:00", 31, 1002.0, "restart"),
        ("0000:ca:00", 79, 1003.0, "drain"),
        ("0000:ca:00", 154, 1003.0, "drain"),
        ("0000:17:00", 154, 1004.0, "reset"),
        ("0000:17:00", 154, 1005.0, "recovery"),
    )
    assert machine._logged_xids(tmp_path / "nowhere") is None


# -- packages --------------------------------------------------------------------------------------------


def install(site: Path, name: str, version: str, texts: Mapping[str, str] | None = None) -> None:
    """Create the files and metadata of an installed package as pip writes them."""
    record = []
    for path, text in (texts or {}).items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{file.relative_to(site)},sha256={digest},{len(text)}")
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("pip\n")
    (folder / "RECORD").write_text("\n".join([*record, f"{folder.name}/RECORD,,"]))


def test_installed_packages(tmp_path: Path) -> None:
    """The installed packages of torch, CUDA and the NVML binding are listed. If there are two copies of
    torch, the first one on ``sys.path`` is reported as the one that `import torch` uses."""
    install(tmp_path / "a", "torch", "2.10.0")
    install(tmp_path / "b", "torch", "2.9.0")
    install(tmp_path / "b", "nvidia-cudnn-cu12", "9.10.2.21")
    install(tmp_path / "b", "nvidia-ml-py", "13.580.65")
    install(tmp_path / "b", "numpy", "2.0")
    fake_torch(tmp_path / "a", "")
    fake_torch(tmp_path / "b", "")
    found = packages.inspect([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found.cuda == (
        InstalledPackage("nvidia-cudnn-cu12", "9.10.2.21", "pip"),
        InstalledPackage("torch", "2.10.0", "pip"),
    )
    assert found.binding == (InstalledPackage("nvidia-ml-py", "13.580.65", "pip"),)
    assert found.torch_copies == (
        TorchCopy("2.10.0", str(tmp_path / "a"), "12.8", "code", None, ("2.10.0",), "pip"),
        TorchCopy("2.10.0", str(tmp_path / "b"), "12.8", "code", None, ("2.9.0",), "pip"),
    )
    folder = tmp_path / "a/torch"
    file = f"{folder}/__init__.py"
    assert found.torch == TorchFiles(file, (str(folder),), "2.10.0", "12.8", os.path.realpath(file))
    assert packages.inspect([str(tmp_path / "none")]).torch is None


def test_one_torch_is_not_counted_twice(tmp_path: Path) -> None:
    """A torch is counted only once if lib64 is a link to lib. Metadata that pip left behind and metadata of a
    deleted package are ignored."""
    install(tmp_path / "lib", "torch", "2.9.0")
    fake_torch(tmp_path / "lib", "")
    (tmp_path / "lib64").symlink_to("lib")
    install(tmp_path / "lib", "torch", "2.8.0")
    (tmp_path / "lib/torch-2.8.0.dist-info").rename(tmp_path / "lib/~orch-2.8.0.dist-info")
    install(tmp_path / "gone", "torch", "2.7.0")
    found = packages.inspect([str(tmp_path / name) for name in ("lib64", "lib", "gone")])
    assert found.torch_copies == (
        TorchCopy("2.10.0", str(tmp_path / "lib64"), "12.8", "code", None, ("2.9.0",), "pip"),
    )
    assert found.cuda == (InstalledPackage("torch", "2.9.0", "pip"),)


@pytest.mark.parametrize("text", ["", "cuda = 12", "this is no Python (", "cuda = None"])
def test_an_invalid_version_file(tmp_path: Path, text: str) -> None:
    """If torch/version.py is invalid, torch's version and CUDA version are None, and no error is raised."""
    fake_torch(tmp_path, "")
    (tmp_path / "torch/version.py").write_text(text)
    found = packages.inspect([str(tmp_path)]).torch
    assert found is not None
    assert (found.version, found.cuda) == (None, None)


def test_changed_files_of_gpuwidget(tmp_path: Path) -> None:
    """Files of gpuwidget that are missing or differ from pip's RECORD are listed as changed."""
    first, second = "gpuwidget/__init__.py", "gpuwidget/cli.py"
    install(tmp_path, "jupyterlab-gpuwidget", "0.1.0", {first: "ours", second: "ours"})
    found = packages.inspect([str(tmp_path)])
    assert (found.ours, found.other, found.changed) == ("0.1.0", None, ())
    install(tmp_path, "gpuwidget", "0.0.3", {first: "theirs"})
    (tmp_path / second).unlink()
    found = packages.inspect([str(tmp_path)])
    assert (found.ours, found.other) == ("0.1.0", "0.0.3")
    assert found.changed == (first, second)
