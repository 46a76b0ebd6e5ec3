"""The doctor on simulated machines, with real probe processes and stub libraries.

``FAULTS`` has one row per fault: the problems that the doctor must find, and no others. ``HEALTHY`` has
set-ups that differ from the usual one but work, so the doctor must find no problem.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from helpers_faults import CUDART, CUDNN, GIB, LIBRARIES, NCCL, OPS, FaultMachine, Package

from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.system.host_limits import SharedMemory

INTEL, NVIDIA = "0x8086", "0x10de"
UUID = "GPU-00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Fault:
    """A fault and the problems that the doctor must find, each as the ids of its cause and its fix."""

    name: str
    cause: Callable[[FaultMachine], object]
    problems: tuple[tuple[str, str | None], ...]


def problems(machine: FaultMachine) -> tuple[tuple[str, str | None], ...]:
    """Run the doctor, and return the ids of cause and fix of each problem."""
    return tuple(
        (problem.issues[0], None if problem.fix is None else problem.fix.id)
        for problem in machine.run_doctor().problems
    )


# -- faults of the environment ---------------------------------------------------------------------------


def _in_pythonpath(machine: FaultMachine) -> None:
    machine.install_cpu_torch(machine.folder / "cluster")
    machine.variables["PYTHONPATH"] = str(machine.folder / "cluster")


def _cpu_build_first(machine: FaultMachine) -> None:
    machine.uninstall("torch")
    machine.install_cpu_torch()
    machine.install_torch(machine.folder / "later")
    (machine.site / "later.pth").write_text(f"{machine.folder / 'later'}\n")


def _in_pth_file(machine: FaultMachine) -> None:
    machine.install_cpu_torch(machine.folder / "other")
    (machine.site / "a.pth").write_text(f"{machine.folder / 'other'}\n")
    machine.first = [str(machine.folder / "other")]


def _added_by_code(machine: FaultMachine) -> None:
    machine.install_cpu_torch(machine.folder / "other")
    machine.first = [str(machine.folder / "other")]


def _other_version_of_the_user(machine: FaultMachine) -> None:
    machine.install_torch(machine.user_site, version="2.10.0+cu130")
    machine.install_libraries(site=machine.user_site)


def _leftovers(machine: FaultMachine) -> None:
    machine.uninstall("torch")
    (machine.site / "torch/test").mkdir(parents=True)


def _several_versions(imports: str = "") -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.install_torch(version="2.12.0+cu130")
        machine.install_torch(version="2.9.0+cu130", imports=f"# has another size\n{imports}")

    return cause


def _torch_py(machine: FaultMachine) -> None:
    folder = machine.folder / "scripts"
    folder.mkdir()
    (folder / "torch.py").write_text("x = 1\n")
    machine.first = [str(folder)]


def _hidden_module(machine: FaultMachine) -> None:
    folder = machine.folder / "scripts"
    folder.mkdir()
    (folder / "calendar.py").write_text("x = 1\n")
    machine.first = [str(folder)]


def _hidden_module_that_breaks_the_import(machine: FaultMachine) -> None:
    _hidden_module(machine)
    machine.uninstall("torch")
    machine.install_torch(imports="from calendar import monthrange")


def _only_cpu(machine: FaultMachine) -> None:
    machine.uninstall("torch")
    machine.install_cpu_torch()


def _reinstalled(**values: str) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.uninstall("torch")
        machine.install_torch(**values)  # type: ignore[arg-type]

    return cause


def _rejected_setting(name: str, value: str, error: str) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.variables[name] = value
        _reinstalled(imports=f"raise ValueError({error!r})")(machine)

    return cause


def _import_hook(machine: FaultMachine) -> None:
    (machine.site / "hook.py").write_text("raise RuntimeError('no network')\n")
    _reinstalled(imports="import hook")(machine)


def _package_that_raises(machine: FaultMachine) -> None:
    Package("odd", "1.0", {"odd/__init__.py": b"raise RuntimeError('no license')\n"}).install(machine.site)
    _reinstalled(imports="import odd")(machine)


def _library_file(name: str, content: bytes | None) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        (folder,) = (known[1] for known in LIBRARIES.values() if name in known[2])
        file = machine.site / folder / name
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)

    return cause


def _uninstalled(name: str) -> Callable[[FaultMachine], None]:
    return lambda machine: machine.uninstall(name)


def _other_cudnn_version(machine: FaultMachine) -> None:
    machine.uninstall("nvidia-cudnn-cu13")
    files = {f"nvidia/cudnn/lib/{name}": machine.stubs.library(name, other=True) for name in (CUDNN, OPS)}
    Package("nvidia-cudnn-cu13", "9.8.0.87", files).install(machine.site)


def _two_cudnn_packages(machine: FaultMachine) -> None:
    files = {f"nvidia/cudnn/lib/{name}": machine.stubs.library(name) for name in (CUDNN, OPS)}
    Package("nvidia-cudnn-cu12", "9.10.2.21", files).install(machine.site)


def _library_path(*names: str) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.library_path(machine.put_libraries(machine.folder / "cuda", *names, other=True))

    return cause


def _incomplete_library_path(machine: FaultMachine) -> None:
    machine.library_path(machine.put_libraries(machine.folder / "cuda", CUDNN))


def _broken_numpy(machine: FaultMachine) -> None:
    source = b"raise ImportError('multiarray failed to import')\n"
    Package("numpy", "2.1.0", {"numpy/__init__.py": source}).install(machine.site)


def _variables(**variables: str) -> Callable[[FaultMachine], None]:
    return lambda machine: machine.variables.update(variables)


def _one_thread(machine: FaultMachine) -> None:
    machine.variables["OMP_NUM_THREADS"] = "1"
    machine.notebook = NotebookState("2.13.0+cu130", cpu_threads=1, loaders=("loader",))


def _notebook(**values: object) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.notebook = replace(machine.notebook, **values)  # type: ignore[arg-type]

    return cause


# -- faults of the machine -------------------------------------------------------------------------------


def _scenario(*lines: str) -> Callable[[FaultMachine], None]:
    return lambda machine: machine.standin.scenario("gpus=1", "driver=580.95.05", *lines)


def _two_gpus(*lines: str) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.root_file("dev/nvidia1")
        machine.variables["FAKE_CUDA_COUNT"] = "2"
        machine.standin.scenario("gpus=2", "driver=580.95.05", *lines)

    return cause


def _cu_init(code: str) -> Callable[[FaultMachine], object]:
    return _variables(FAKE_CUINIT=code)


def _no_driver(machine: FaultMachine) -> None:
    machine.remove_driver()


def _on_pci(machine: FaultMachine, vendor: str, kind: str) -> None:
    """Put a device with these ids of vendor and class on the machine's PCI bus."""
    folder = "sys/bus/pci/devices"
    bus = machine.root / folder
    address = f"0000:{len(list(bus.iterdir())) if bus.exists() else 0:02x}:00.0"
    machine.root_file(f"{folder}/{address}/vendor", f"{vendor}\n")
    machine.root_file(f"{folder}/{address}/class", f"{kind}\n")


def _gpu_without_driver(machine: FaultMachine) -> None:
    machine.remove_driver()
    _on_pci(machine, INTEL, "0x030000")
    _on_pci(machine, NVIDIA, "0x030200")


def _container_without_gpus(machine: FaultMachine) -> None:
    machine.root_file(".dockerenv")
    machine.standin.library.unlink()
    machine.libcuda.unlink()
    machine.remove_devices()


def _container_without_compute(machine: FaultMachine) -> None:
    machine.root_file(".dockerenv")
    machine.libcuda.unlink()
    machine.variables["NVIDIA_DRIVER_CAPABILITIES"] = "utility"


def _no_libcuda(machine: FaultMachine) -> None:
    machine.libcuda.unlink()


def _driver_not_loaded(machine: FaultMachine) -> None:
    machine.standin.scenario("nvmlInitWithFlags=error 9")
    machine.kernel_module(None)
    machine.remove_devices()
    machine.variables["FAKE_CUINIT"] = "100"


def _driver_updated(machine: FaultMachine) -> None:
    machine.standin.scenario("nvmlInitWithFlags=error 18")
    machine.kernel_module("570.86.15")
    machine.variables["FAKE_CUINIT"] = "804"


def _old_driver(machine: FaultMachine) -> None:
    machine.standin.scenario("gpus=1", "driver=570.86.15", "cuda=12080")
    machine.kernel_module("570.86.15")
    machine.variables["FAKE_CUDA_DRIVER"] = "12080"


def _no_device_files(machine: FaultMachine) -> None:
    machine.remove_devices()
    machine.standin.scenario("nvmlInitWithFlags=error 9")
    machine.variables["FAKE_CUINIT"] = "100"


def _no_uvm(machine: FaultMachine) -> None:
    (machine.root / "dev/nvidia-uvm").unlink()
    machine.variables["FAKE_CUINIT"] = "999"


def _wsl_without_gpu(machine: FaultMachine) -> None:
    machine.remove_driver()
    machine.root_file("proc/sys/kernel/osrelease", "6.6-microsoft-standard-WSL2\n")


def _hanging_driver(machine: FaultMachine) -> None:
    machine.standin.scenario("nvmlInitWithFlags=hang")
    machine.variables["FAKE_CUINIT"] = "hang"
    machine.timeout_s = 12.0


def _mig_without_slice(machine: FaultMachine) -> None:
    machine.standin.scenario("gpus=1", "driver=580.95.05", "gpu.0.mig_mode=1", "gpu.0.mig_mode_pending=1")
    machine.variables["FAKE_CUINIT"] = "100"


def _prohibited(machine: FaultMachine) -> None:
    machine.standin.scenario("gpus=1", "driver=580.95.05", "gpu.0.compute_mode=2")
    machine.variables["FAKE_CUINIT"] = "100"


def _invisible(value: str) -> Callable[[FaultMachine], None]:
    return _variables(CUDA_VISIBLE_DEVICES=value, FAKE_CUINIT="100")


def _shm(total: int, free: int) -> Callable[[FaultMachine], None]:
    def cause(machine: FaultMachine) -> None:
        machine.shm = SharedMemory(total, free)

    return cause


def _xids(machine: FaultMachine) -> None:
    machine.root_file("dev/kmsg", "4,9,300,-;NVRM: Xid (PCI:0000:01:00): 48, DBE.\n")


REINSTALL, UNSET_PATH = "reinstall-package", "remove-from-ld-library-path"
SEE_TRACEBACK = "see-import-traceback"
FAULTS = (
    Fault("torch in PYTHONPATH", _in_pythonpath, (("torch-shadowed", "remove-from-pythonpath"),)),
    Fault(
        "torch in the user's site-packages",
        lambda machine: machine.install_cpu_torch(machine.user_site),
        (("torch-shadowed", "remove-torch-copy"),),
    ),
    Fault(
        "another version in the user's site-packages",
        _other_version_of_the_user,
        (("torch-shadowed", "remove-torch-copy"),),
    ),
    Fault("CPU build before a build for CUDA", _cpu_build_first, (("torch-shadowed", "remove-torch-copy"),)),
    Fault("torch in a .pth file", _in_pth_file, (("torch-shadowed", "remove-from-pth-file"),)),
    Fault("torch that code has added", _added_by_code, (("torch-shadowed", "remove-from-code"),)),
    Fault("leftovers of torch", _leftovers, (("torch-leftovers", "replace-torch-leftovers"),)),
    Fault(
        "three versions of torch in one folder",
        _several_versions(),
        (("torch-copies", "reinstall-torch-copies"),),
    ),
    Fault(
        "three versions of torch in one folder, whose import fails",
        _several_versions("raise ImportError('undefined symbol')"),
        (("torch-copies", "reinstall-torch-copies"),),
    ),
    Fault("torch.py", _torch_py, (("torch-hidden", "rename-file"),)),
    Fault("file that hides a module", _hidden_module, (("module-hidden", "rename-file"),)),
    Fault(
        "file that breaks the import",
        _hidden_module_that_breaks_the_import,
        (("torch-import-error-hidden-module", "rename-file"),),
    ),
    Fault("no torch", _uninstalled("torch"), (("torch-not-installed", "install-torch"),)),
    Fault("CPU build", _only_cpu, (("torch-without-cuda", "install-torch"),)),
    Fault(
        "torch without code for the GPU",
        _reinstalled(archs="sm_75 sm_80"),
        (("gpu-without-code", "install-torch"),),
    ),
    Fault(
        "import that raises",
        _reinstalled(imports="raise RuntimeError('odd')"),
        (("torch-import-error", SEE_TRACEBACK),),
    ),
    Fault(
        "typo in TORCH_LOGS",
        _rejected_setting("TORCH_LOGS", "dynmo", "\\nInvalid log settings: dynmo, must be a list"),
        (("torch-import-error", "correct-variable"),),
    ),
    Fault(
        "invalid TORCH_DISTRIBUTED_DEBUG",
        _rejected_setting("TORCH_DISTRIBUTED_DEBUG", "x", "The value of TORCH_DISTRIBUTED_DEBUG must be OFF"),
        (("torch-import-error", "correct-variable"),),
    ),
    Fault(
        "number that is also in a setting",
        _rejected_setting("TORCH_NCCL_TRACE_BUFFER_SIZE", "12", "error 12 of the license server"),
        (("torch-import-error", SEE_TRACEBACK),),
    ),
    Fault(
        "folder that is also in a setting",
        _rejected_setting("PYTORCH_HOME", "/opt/pytorch", "no license in /opt/pytorch"),
        (("torch-import-error", SEE_TRACEBACK),),
    ),
    Fault(
        "import hook that raises",
        _import_hook,
        (("torch-import-error-in-package", SEE_TRACEBACK),),
    ),
    Fault(
        "package that raises",
        _package_that_raises,
        (("torch-import-error-in-package", SEE_TRACEBACK),),
    ),
    Fault(
        "import that crashes",
        _reinstalled(imports="os.abort()"),
        (("torch-import-crashed", SEE_TRACEBACK),),
    ),
    Fault(
        "import that is killed",
        _reinstalled(imports="os.kill(os.getpid(), 9)"),
        (("torch-import-killed", "more-memory"),),
    ),
    Fault(
        "missing Python package",
        _reinstalled(imports="import sympy"),
        (("torch-import-error", SEE_TRACEBACK),),
    ),
    Fault("broken numpy", _broken_numpy, (("numpy-fails", REINSTALL),)),
    Fault("cuDNN missing", _uninstalled("nvidia-cudnn-cu13"), (("library-missing", REINSTALL),)),
    Fault("cuDNN's file missing", _library_file(CUDNN, None), (("library-missing", REINSTALL),)),
    Fault("part of cuDNN missing", _library_file(OPS, None), (("library-missing", REINSTALL),)),
    Fault("cuDNN's file empty", _library_file(CUDNN, b""), (("library-missing", REINSTALL),)),
    Fault("NCCL's file cut off", _library_file(NCCL, b"\x7fELF"), (("library-missing", REINSTALL),)),
    Fault("CUDA runtime missing", _uninstalled("nvidia-cuda-runtime"), (("library-missing", REINSTALL),)),
    Fault("cuDNN too old", _other_cudnn_version, (("required-package-version", REINSTALL),)),
    Fault("cuDNN for two CUDA versions", _two_cudnn_packages, (("library-copies", "replace-package"),)),
    Fault("other cuDNN in LD_LIBRARY_PATH", _library_path(CUDNN, OPS), (("library-overridden", UNSET_PATH),)),
    Fault(
        "other CUDA and NCCL in LD_LIBRARY_PATH",
        _library_path(CUDART, NCCL),
        (("library-overridden", UNSET_PATH),),
    ),
    Fault("part of another cuDNN in LD_LIBRARY_PATH", _library_path(OPS), (("library-mixed", UNSET_PATH),)),
    Fault(
        "incomplete copy of cuDNN in LD_LIBRARY_PATH",
        _incomplete_library_path,
        (("library-missing", UNSET_PATH),),
    ),
    Fault(
        "CUDA_LAUNCH_BLOCKING",
        _variables(CUDA_LAUNCH_BLOCKING="1"),
        (("cuda-launch-blocking", "unset-launch-blocking"),),
    ),
    Fault(
        "NVIDIA_TF32_OVERRIDE",
        _variables(NVIDIA_TF32_OVERRIDE="0"),
        (("tensor-float-override", "unset-tensor-float-override"),),
    ),
    Fault("OMP_NUM_THREADS", _one_thread, (("omp-one-thread", "add-workers-or-threads"),)),
    Fault("NCCL_P2P_DISABLE", _variables(NCCL_P2P_DISABLE="1"), (("nccl-switch", "unset-nccl-switch"),)),
    Fault("cuDNN switched off", _notebook(cudnn_off=True), (("cudnn-off", "switch-cudnn-on"),)),
    Fault(
        "torch updated since its import",
        _notebook(torch="2.10.0"),
        (("torch-changed-since-import", "restart-kernel"),),
    ),
    Fault("no driver", _no_driver, (("driver-start-failed", "fix-driver-start"),)),
    Fault("GPU in PCI but no driver", _gpu_without_driver, (("driver-not-installed", "install-gpu-driver"),)),
    Fault("driver not loaded", _driver_not_loaded, (("driver-not-loaded", "load-driver"),)),
    Fault(
        "driver updated without a restart", _driver_updated, (("driver-version-mismatch", "restart-machine"),)
    ),
    Fault("driver too old", _old_driver, (("driver-too-old", "update-driver-or-install-torch"),)),
    Fault(
        "container without GPUs",
        _container_without_gpus,
        (("container-without-gpus", "start-container-with-gpus"),),
    ),
    Fault(
        "container without compute",
        _container_without_compute,
        (("container-without-compute", "add-compute-capability"),),
    ),
    Fault("no libcuda", _no_libcuda, (("libcuda-missing", "install-libcuda"),)),
    Fault("stub of libcuda", _cu_init("34"), (("libcuda-stub", "remove-stubs"),)),
    Fault("libcuda of another driver", _cu_init("804"), (("libcuda-mismatch", "remove-compat"),)),
    Fault("no fabric manager", _cu_init("802"), (("fabric-manager-missing", "start-fabric-manager"),)),
    Fault("cuInit aborts", _cu_init("abort"), (("step-unfinished", "repair-driver"),)),
    Fault("cuInit crashes", _cu_init("segfault"), (("step-unfinished", "repair-driver"),)),
    Fault("driver hangs", _hanging_driver, (("driver-timeout", "see-whether-driver-hangs"),)),
    Fault("CUDA does not start", _cu_init("719"), (("cuda-start-failed", "see-kernel-log-and-nvidia-smi"),)),
    Fault("GPU used by another process", _cu_init("46"), (("gpu-in-exclusive-use", "see-processes"),)),
    Fault("no device files", _no_device_files, (("device-files-missing", "create-device-files"),)),
    Fault("no nvidia-uvm", _no_uvm, (("control-files-missing", "create-device-files"),)),
    Fault("WSL without a GPU", _wsl_without_gpu, (("wsl-without-gpu", "install-windows-driver"),)),
    Fault("no GPU", _scenario("gpus=0"), (("no-gpu", "see-kernel-log-and-restart"),)),
    Fault("lost GPU", _two_gpus("gpu.1.*=error 15"), (("gpu-lost", "see-kernel-log"),)),
    Fault("MIG without a slice", _mig_without_slice, (("mig-without-slice", "create-mig-slice"),)),
    Fault("compute mode prohibited", _prohibited, (("compute-mode-prohibited", "allow-cuda"),)),
    Fault(
        "compute mode exclusive",
        _scenario("gpu.0.compute_mode=3"),
        (("compute-mode-exclusive", "allow-sharing"),),
    ),
    Fault("no visible GPU", _invisible(""), (("visible-devices-empty", "set-visible-devices"),)),
    Fault(
        "a visible GPU that does not exist",
        _invisible("7"),
        (("visible-devices-entry-rejected", "set-visible-devices"),),
    ),
    Fault("memory errors", _scenario("gpu.0.ecc=2"), (("memory-errors-uncorrected", "check-gpu-memory"),)),
    Fault(
        "memory that waits for a reset",
        _scenario("gpu.0.remap_pending=1"),
        (("memory-reset-pending", "reset-or-reboot"),),
    ),
    Fault("narrow PCIe link", _scenario("gpu.0.pcie_width=4"), (("pcie-narrow", "check-slot"),)),
    Fault("errors in the kernel's log", _xids, (("xids-logged", "reset-gpus"),)),
    Fault("small shared memory", _shm(GIB // 16, GIB // 16), (("shm-small", "enlarge-shm"),)),
    Fault("full shared memory", _shm(64 * GIB, 0), (("shm-full", "list-shm"),)),
    Fault(
        "a recording instead of the GPUs",
        _variables(GPUWIDGET_SOURCE="replay"),
        (("gpuwidget-source", "unset-gpuwidget-source"),),
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_one_problem(fault: Fault, fault_machine: FaultMachine) -> None:
    """The doctor finds the fault, offers its fix, and reports nothing else."""
    fault_machine.install_all()
    fault.cause(fault_machine)
    assert problems(fault_machine) == fault.problems


# -- set-ups without a fault -----------------------------------------------------------------------------


def _conda(machine: FaultMachine) -> None:
    machine.install_torch(version="2.13.0", requires=(), by="conda")
    machine.put_libraries(machine.env / "lib", CUDART, CUDNN, OPS, NCCL)
    (machine.env / "conda-meta").mkdir()
    for name in ("pytorch-2.13.0-cuda130_0", "cudnn-9.10.2-0", "libcudnn-9.10.2-0", "nccl-2.27.5-0"):
        (machine.env / f"conda-meta/{name}.json").write_text("{}")
    machine.variables["CONDA_PREFIX"] = str(machine.env)


def _virtual(machine: FaultMachine) -> None:
    machine.virtual()
    machine.install_all()
    machine.install_cpu_torch(machine.user_site)


def _user_site(machine: FaultMachine) -> None:
    machine.install_torch(machine.user_site)
    machine.install_libraries(site=machine.user_site)


def _user_site_before_a_cpu_build(machine: FaultMachine) -> None:
    _user_site(machine)
    machine.install_cpu_torch()


def _cluster_module(machine: FaultMachine) -> None:
    folder = machine.folder / "modules/pytorch"
    machine.install_torch(folder)
    machine.install_libraries(site=folder)
    machine.variables["PYTHONPATH"] = str(folder)


def _editable(machine: FaultMachine) -> None:
    checkout = machine.folder / "src"
    machine.install_torch(checkout)
    machine.install_libraries(site=checkout)
    (machine.site / "editable.pth").write_text(f"{checkout}\n")


def _nvidias_container(machine: FaultMachine) -> None:
    machine.root_file(".dockerenv")
    machine.install_torch(version="2.13.0a0+nv25.10", requires=())
    machine.library_path(machine.put_libraries(machine.folder / "cuda/lib64", CUDART, CUDNN, OPS, NCCL))
    machine.variables |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def _container_with_compat(machine: FaultMachine) -> None:
    machine.root_file(".dockerenv")
    machine.install_all()
    machine.standin.scenario("gpus=1", "driver=535.183.01", "cuda=13000")
    machine.kernel_module("535.183.01")
    compat = machine.folder / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    shutil.copy(machine.libcuda, compat / "libcuda.so.1")
    machine.library_path(compat)


def _wsl(machine: FaultMachine) -> None:
    machine.install_all()
    machine.remove_devices()
    machine.kernel_module(None)
    machine.root_file("dev/dxg")
    machine.root_file("proc/sys/kernel/osrelease", "6.6-microsoft-standard-WSL2\n")


def _mig(machine: FaultMachine) -> None:
    machine.install_all()
    machine.root_file("dev/nvidia-caps/nvidia-cap21")
    lines = ("gpu.0.mig_mode=1", "gpu.0.mig_mode_pending=1", "gpu.0.mig=0 1")
    machine.standin.scenario("gpus=1", "driver=580.95.05", *lines)


def _server_without_torch(machine: FaultMachine) -> None:
    machine.place = "server"


def _same_library_path(machine: FaultMachine) -> None:
    machine.install_all()
    machine.library_path(machine.put_libraries(machine.folder / "cuda", CUDART, CUDNN, OPS, NCCL))


def _part_of_the_same_cudnn(machine: FaultMachine) -> None:
    machine.install_all()
    machine.library_path(machine.put_libraries(machine.folder / "cudnn", OPS))


def _own_library_path(machine: FaultMachine) -> None:
    machine.install_all()
    machine.library_path(machine.site / "nvidia/cudnn/lib")


def _linked_library_path(machine: FaultMachine) -> None:
    machine.install_all()
    (machine.folder / "link").symlink_to(machine.site / "nvidia/cudnn/lib")
    machine.library_path(machine.folder / "link")


def _toolkit_in_library_path(machine: FaultMachine) -> None:
    machine.install_all()
    folder = machine.folder / "usr/local/cuda/lib64"
    folder.mkdir(parents=True)
    shutil.copy(machine.stubs.library(CUDART, other=True), folder / "libcudart.so.12")
    machine.library_path(folder)


def _bundled_libraries(machine: FaultMachine) -> None:
    machine.install_torch(version="2.13.0", requires=())
    machine.put_libraries(machine.site / "torch/lib", CUDART, CUDNN, OPS, NCCL)


def _lib64(machine: FaultMachine) -> None:
    machine.install_all()
    (machine.env / "lib64").symlink_to("lib")
    machine.first = [str(machine.env / "lib64" / machine.site.relative_to(machine.env / "lib"))]


def _old_leftovers(machine: FaultMachine) -> None:
    machine.install_all()
    (machine.user_site / "torch/test").mkdir(parents=True)
    (machine.site / "~orch").mkdir()


def _threads(machine: FaultMachine) -> None:
    machine.install_all()
    machine.variables["OMP_NUM_THREADS"] = "1"
    machine.notebook = NotebookState("2.13.0+cu130", cpu_threads=1, loaders=())


def _several_gpus(machine: FaultMachine) -> None:
    machine.install_all()
    _two_gpus()(machine)
    machine.variables["CUDA_VISIBLE_DEVICES"] = f"1,{UUID}"


def _older_minor_driver(machine: FaultMachine) -> None:
    machine.install_all()
    machine.standin.scenario("gpus=1", "driver=580.65.06", "cuda=13000")
    machine.kernel_module("580.65.06")
    machine.variables["CUDA_LAUNCH_BLOCKING"] = "0"


def _users_modules(machine: FaultMachine) -> None:
    machine.install_all()
    folder = machine.folder / "scripts"
    folder.mkdir()
    for name in ("train", "models", "utils"):
        (folder / f"{name}.py").write_text("x = 1\n")
    machine.first = [str(folder)]


def _old_gpu_with_tf32_override(machine: FaultMachine) -> None:
    machine.install_all()
    machine.standin.scenario("gpus=1", "driver=580.95.05", "gpu.0.compute_capability=7.5")
    machine.variables["NVIDIA_TF32_OVERRIDE"] = "0"


def _without_gpu(machine: FaultMachine) -> None:
    machine.remove_driver()
    _on_pci(machine, INTEL, "0x060000")
    _on_pci(machine, INTEL, "0x030000")


def _cpu_only(machine: FaultMachine) -> None:
    _without_gpu(machine)
    machine.install_cpu_torch()


def _cpu_only_with_cuda_build(machine: FaultMachine) -> None:
    _without_gpu(machine)
    machine.install_all()
    machine.install_cpu_torch(machine.user_site)
    machine.variables["CUDA_VISIBLE_DEVICES"] = ""


def _container_on_cpu_only_host(machine: FaultMachine) -> None:
    _cpu_only(machine)
    machine.root_file(".dockerenv")
    machine.variables["NVIDIA_VISIBLE_DEVICES"] = "all"


HEALTHY: dict[str, Callable[[FaultMachine], object]] = {
    "pip": lambda machine: machine.install_all(),
    "conda": _conda,
    "virtual environment beside a user's torch": _virtual,
    "user's site-packages": _user_site,
    "user's torch before a CPU build": _user_site_before_a_cpu_build,
    "cluster's module in PYTHONPATH": _cluster_module,
    "editable installation": _editable,
    "NVIDIA's container": _nvidias_container,
    "container with compat libraries": _container_with_compat,
    "WSL": _wsl,
    "MIG": _mig,
    "server without torch": _server_without_torch,
    "same libraries in LD_LIBRARY_PATH": _same_library_path,
    "part of the same cuDNN in LD_LIBRARY_PATH": _part_of_the_same_cudnn,
    "torch's own libraries in LD_LIBRARY_PATH": _own_library_path,
    "link to torch's own libraries in LD_LIBRARY_PATH": _linked_library_path,
    "toolkit for another CUDA in LD_LIBRARY_PATH": _toolkit_in_library_path,
    "libraries within torch": _bundled_libraries,
    "lib64": _lib64,
    "leftovers that hide nothing": _old_leftovers,
    "OMP_NUM_THREADS without a DataLoader": _threads,
    "several GPUs": _several_gpus,
    "older minor version of the driver": _older_minor_driver,
    "user's modules": _users_modules,
    "NVIDIA_TF32_OVERRIDE on a GPU without TF32": _old_gpu_with_tf32_override,
    "CPU-only machine by intent": _cpu_only,
    "CPU-only machine with a CUDA build": _cpu_only_with_cuda_build,
    "CPU-only machine without torch": _without_gpu,
    "container on a CPU-only host": _container_on_cpu_only_host,
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_machine_has_no_problem(name: str, fault_machine: FaultMachine) -> None:
    """The doctor finds no problem in a set-up that works."""
    HEALTHY[name](fault_machine)
    assert problems(fault_machine) == ()


def test_the_numbers_of_faults_and_healthy_machines() -> None:
    """The tables have at least 40 faults and 20 healthy set-ups."""
    assert len({fault.name for fault in FAULTS}) >= 40
    assert len(HEALTHY) >= 20
