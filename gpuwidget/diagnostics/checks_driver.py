"""The links below CUDA: the driver and its device files."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics.fixes import build, last, nvml_binding
from gpuwidget.diagnostics.issues import Finding, counted, link, skipped
from gpuwidget.diagnostics.probe_process import Said
from gpuwidget.diagnostics.probe_results import Facts
from gpuwidget.diagnostics.versions import cuda_number, numbers
from gpuwidget.model.diagnosis import Link
from gpuwidget.sources import nvml_diagnostics, nvml_messages

DRIVER = ("driver", "Driver")
FILES = ("device_files", "Device files")

_START_WITH_GPUS = "Start the container with the machine's GPUs: docker run --gpus all …"
_LOAD = "sudo modprobe nvidia"
_START_FABRIC = "sudo systemctl start nvidia-fabricmanager"
_MAKE_FILES = "sudo nvidia-modprobe -c 0 -u"
_JOIN_GROUP = "sudo usermod -aG video $USER"
_STUB, _NOT_READY, _MISMATCH, _NO_COMPAT = 34, 802, 803, 804
"""Of CUresult, cuda.h."""


def driver_link(facts: Facts) -> Link:
    """NVIDIA's driver: loaded, in order, and new enough for torch's CUDA."""
    nvml, machine, driver = facts.nvml, facts.machine, facts.driver
    newest = nvml.cuda_driver if nvml is not None else None
    if newest is None and isinstance(facts.libcuda.get("cuda_driver"), int):
        newest = cuda_number(facts.libcuda["cuda_driver"])
    evidence = {
        "driver": driver,
        "newest CUDA it runs": newest,
        "kernel module": machine.module,
        "libcuda": ", ".join(facts.mapped("libcuda")) or facts.libcuda.get("libcuda_error"),
        "container": machine.container,
        "Python binding": ", ".join(f"{one.name} {one.version}" for one in facts.packages.binding),
    }
    if machine.system == "darwin":
        reason = "macOS has no NVIDIA driver."
        return link(
            DRIVER, "none", [Finding("broken", reason, "Use a machine with an NVIDIA GPU.")], evidence
        )
    findings = [*_unless_cuda_works(facts, _start(facts)), *_age(facts), *_libcuda(facts)]
    found = driver or "not found"
    if driver and newest:
        found = f"{driver}, for CUDA up to {newest}"
    return link(DRIVER, found, findings, evidence)


def _unless_cuda_works(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """What CUDA gets along with is no break of the chain: readings may be missing for it."""
    if not facts.cuda_works:
        return findings
    return [replace(one, status="warning") if one.status == "broken" else one for one in findings]


def _start(facts: Facts) -> list[Finding]:
    """What NVML says of the driver."""
    nvml, said = facts.nvml, facts.nvml_said
    if facts.missing_gpus_in_container and (nvml is None or nvml.error is not None):
        return [
            Finding("broken", "This container was started without the machine's GPUs.", _gpus_remedy(facts))
        ]
    if nvml is None and said.ending == "hung":
        return [
            Finding(
                "broken",
                f"The driver did not answer within {facts.patience_s:.0f} s: {_step(said)} did not return.",
                "See whether nvidia-smi hangs too; the kernel log (dmesg) names the GPU that "
                "is stuck. A restart "
                "of the machine usually helps.",
            )
        ]
    if nvml is None:
        what = f"{_step(said)}: {said.how or 'no answer'}"
        return [Finding("unknown", f"The driver could not be asked ({what}).", "See what nvidia-smi says.")]
    if nvml.error == nvml_diagnostics.NO_BINDING:
        reason = str(nvml.reason).partition(". ")[0]
        return [Finding("unknown", f"{reason}.", *nvml_binding(facts))]
    if nvml.error is None:
        return []
    if nvml.error == nvml_messages.LIB_RM_VERSION_MISMATCH:
        module = facts.machine.module
        loaded = f" ({module} is still loaded)" if module else ""
        return [
            Finding(
                "broken",
                f"The driver's libraries were updated while the old kernel module runs{loaded}.",
                "Restart the machine, or reload the driver's modules; a container must be "
                "started anew after that.",
            )
        ]
    reason, _, remedy = str(nvml.reason).partition(". ")
    command = _LOAD if _LOAD in remedy else None
    return [Finding("broken", f"{reason}.", remedy or "See what nvidia-smi says.", command)]


def _step(said: Said) -> str:
    return said.unfinished or "starting Python"


def _gpus_remedy(facts: Facts) -> str:
    wanted = facts.variables.get("NVIDIA_VISIBLE_DEVICES")
    if wanted in ("void", "none", ""):
        return f"NVIDIA_VISIBLE_DEVICES is {wanted!r} here: set it to all, or docker run --gpus all …"
    if facts.variables.get("KUBERNETES_SERVICE_HOST") or facts.machine.container == "Kubernetes":
        return "Ask for a GPU in the pod's resources: limits: nvidia.com/gpu: 1."
    return _START_WITH_GPUS


def _age(facts: Facts) -> list[Finding]:
    """Whether the driver is new enough for the CUDA that torch was built with."""
    cuda, driver = facts.cuda, facts.driver
    if cuda is None or driver is None or not cuda_versions.too_old(driver, cuda):
        return []
    if facts.torch.get("available") and not facts.variables.get("PYTORCH_NVML_BASED_CUDA_CHECK"):
        # As with NVIDIA's forward-compatibility package, which brings a newer libcuda than the driver's own.
        return []
    least = cuda_versions.minimum(cuda)
    wheel = cuda_versions.torch_wheel(driver, facts.capabilities, arm=facts.arm)
    reason = f"Driver {driver} is too old for a PyTorch built with CUDA {cuda}, which needs {least} or newer."
    remedy = f"Update the driver to {least} or newer"
    command = None if wheel is None else build(facts, wheel)
    if wheel is None or command is None:
        return [Finding("broken", reason, f"{remedy}.")]
    other = f"a PyTorch built with CUDA {cuda_versions.wheel_cuda(wheel)}: {command}.{last(wheel)}"
    newest = cuda_versions.torch_wheel(None, facts.capabilities, arm=facts.arm)
    if newest is not None and numbers(cuda_versions.wheel_cuda(newest))[0] < numbers(cuda)[0]:
        # No driver helps GPUs that this CUDA has no code for any more.
        return [Finding("broken", reason, f"Install {other}", command)]
    return [Finding("broken", reason, f"{remedy}, or install {other}", command)]


def _libcuda(facts: Facts) -> list[Finding]:
    """What CUDA's own driver library says when it starts."""
    answers = facts.nvml is not None and facts.nvml.error is None
    error = facts.libcuda.get("libcuda_error")
    if error and answers:
        capabilities = facts.variables.get("NVIDIA_DRIVER_CAPABILITIES")
        if (
            facts.machine.container
            and capabilities is not None
            and not re.search("all|compute", capabilities)
        ):
            reason = f"CUDA's driver library is not in this container: its capabilities are {capabilities!r}."
            remedy = "Start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
            return [Finding("broken", reason, remedy)]
        reason = f"The driver runs, but its library for CUDA can't be loaded: {str(error).splitlines()[0]}."
        return [Finding("broken", reason, "Install the driver's compute part (Debian, Ubuntu: libcuda1).")]
    return _cu_init(facts, facts.libcuda.get("cu_init"))


def _cu_init(facts: Facts, code: object) -> list[Finding]:
    library = ", ".join(facts.mapped("libcuda")) or "libcuda.so.1"
    if code == _STUB:
        reason = f"{library} is a stub to link with, not the driver."
        return [Finding("broken", reason, "Take CUDA's folder 'stubs' out of LD_LIBRARY_PATH.")]
    if code == _NOT_READY:
        return [
            Finding(
                "broken",
                "The driver is not ready: GPUs that are joined by NVSwitch wait for the fabric "
                "manager (error 802).",
                f"Start it: {_START_FABRIC}, of the driver's very version.",
                _START_FABRIC,
            )
        ]
    if code in (_MISMATCH, _NO_COMPAT):
        reason = f"{library} does not fit the driver that is loaded (error {code})."
        remedy = "Take CUDA's folder 'compat' out of LD_LIBRARY_PATH, or update the driver."
        return [Finding("broken", reason, remedy)]
    return []


# -- device files ----------------------------------------------------------------------------------------


def device_files_link(facts: Facts) -> Link:
    """The files under /dev through which a program reaches the driver."""
    machine = facts.machine
    files = machine.devices
    evidence = {one.path: one.mode for one in files}
    if machine.system not in ("linux", "wsl"):
        return skipped(
            FILES, "this system has others" if machine.system == "jetson" else "this system has none"
        )
    if machine.system == "wsl":
        if any(one.path == "/dev/dxg" for one in files):
            return link(FILES, "/dev/dxg (WSL)", [], evidence)
        reason = "WSL has no /dev/dxg: its Windows gives it no GPU."
        remedy = "Install NVIDIA's driver in Windows, then 'wsl --update' and 'wsl --shutdown' there."
        return link(FILES, "none", [Finding("broken", reason, remedy)], evidence)
    gpus = [one.path for one in files if re.fullmatch(r"/dev/nvidia\d+", one.path)]
    if not gpus and not files:
        return link(FILES, "none", _unless_cuda_works(facts, [_none(facts)]), evidence)
    findings = []
    closed = [one for one in files if not one.usable and not one.path.startswith("/dev/nvidia-caps/")]
    if closed:
        reason = f"This user may not use {', '.join(one.path for one in closed)} ({closed[0].mode})."
        remedy = (
            f"Let this user read and write them: {_JOIN_GROUP} and log in again, or 'sudo chmod a+rw "
            "/dev/nvidia*' where no group is used."
        )
        findings.append(Finding("broken", reason, remedy, _JOIN_GROUP))
    if not gpus:
        reason = "There are the driver's files, but none of a GPU (/dev/nvidia0)."
        findings.append(Finding("broken", reason, *_make_files(facts)))
    if machine.expected:
        reason = f"{' and '.join(machine.expected)} missing: CUDA does not start without."
        findings.append(Finding("broken", reason, *_make_files(facts)))
    if not closed:
        findings += _caps(facts)
    return link(
        FILES, f"{counted(len(gpus), 'GPU')} under /dev", _unless_cuda_works(facts, findings), evidence
    )


def _make_files(facts: Facts) -> tuple[str, str | None]:
    """Remedy and command."""
    return (
        (_START_WITH_GPUS, None) if facts.machine.container else (f"Make them: {_MAKE_FILES}.", _MAKE_FILES)
    )


def _none(facts: Facts) -> Finding:
    if facts.gpus:
        # A driver that answers has files somewhere: only this look does not see them.
        return Finding("unknown", "No /dev/nvidia* is to be seen, though the driver answers.", None)
    if facts.machine.container is not None:
        host = f" (the host's driver is {facts.machine.module})" if facts.machine.module else ""
        return Finding("broken", f"This container has no /dev/nvidia*{host}.", _gpus_remedy(facts))
    if facts.machine.module is not None:
        reason = "The driver is loaded, but there is no /dev/nvidia*."
        return Finding("broken", reason, f"Make them: {_MAKE_FILES}.", _MAKE_FILES)
    reason = "There is no /dev/nvidia*: no NVIDIA driver is loaded, or there is no NVIDIA GPU."
    return Finding("broken", reason, "See whether lspci lists an NVIDIA GPU, and install its driver.")


def _caps(facts: Facts) -> list[Finding]:
    """With MIG, each slice has a file of its own."""
    closed = [
        one.path
        for one in facts.machine.devices
        if one.path.startswith("/dev/nvidia-caps/") and not one.usable
    ]
    # One of them is for the administration of slices, which is the administrator's alone.
    if not any(gpu.mig for gpu in facts.gpus) or facts.libcuda.get("cu_init") in (0, None):
        return []
    if closed:
        reason = f"A MIG slice is used through files that this user may not use: {', '.join(closed)}."
        return [Finding("broken", reason, "Let this user read those of its slices.")]
    if not any(one.path.startswith("/dev/nvidia-caps/") for one in facts.machine.devices):
        reason = "MIG is on, but there is no /dev/nvidia-caps: a slice can't be used."
        return [
            Finding("broken", reason, "Make them: sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/…")
        ]
    return []
