"""Read the health and configuration of the GPUs from NVML once, for ``%gpu doctor``.

With a broken driver, any call may hang. Call this module only in a subprocess that may be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

from gpuwidget.sources import nvml_messages, throttle_reasons
from gpuwidget.sources.nvml import cuda_version, text
from gpuwidget.sources.nvml_errors import uncorrected_errors

NO_BINDING, FOREIGN_BINDING = -1, -2
"""Used in place of an NVML error number: the module pynvml is missing, or is not NVIDIA's."""
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_P2P_READ, _P2P_NVLINK = 0, 2  # These are numbers, because pynvml defines P2P_READ as a tuple by mistake.
_P2P_OK = 0


@dataclass(frozen=True, slots=True)
class GpuDiagnostics:
    """Health and configuration of one GPU. An unknown value is None, and ``missing`` has the reason."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str | None
    compute_capability: str | None
    """CUDA compute capability, such as "9.0"."""
    mig: bool | None
    """Whether MIG is on."""
    mig_pending: bool | None
    """Whether MIG will be on after the GPU's next reset."""
    slices: tuple[str, ...]
    """UUIDs of the GPU's MIG slices."""
    compute_mode: str | None
    """``default``, ``exclusive process`` or ``prohibited`` (nvidia-smi: compute_mode)."""
    persistence: bool | None
    """Whether the driver keeps the GPU initialized while no program uses it."""
    ecc: bool | None
    ecc_uncorrected: int | None
    """Uncorrected memory errors since the driver was loaded."""
    retired_pending: bool | None
    """Whether memory pages will be retired at the GPU's next reset (GPUs before Ampere)."""
    remapped: int | None
    """Number of memory rows that were replaced after an uncorrected error (Ampere and later)."""
    remap_pending: bool | None
    remap_failed: bool | None
    """Whether remapping failed because no spare row was left. The memory stays faulty in that case."""
    pcie_generation: int | None
    """Current PCIe generation. An idle GPU lowers it to save power."""
    pcie_generation_max: int | None
    """Highest PCIe generation that both the GPU and its slot support."""
    pcie_width: int | None
    pcie_width_max: int | None
    throttle: tuple[str, ...] | None
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """How one GPU can access the memory of another."""

    gpu: int
    """NVML's index of the GPU that accesses the memory."""
    other: int
    nvlink: bool | None
    """Whether NVLink connects the two GPUs; None if unknown."""
    reads: bool | None
    """Whether the GPU ``gpu`` can read the memory of the GPU ``other`` directly."""


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that is present but can't be opened."""

    index: int
    error: int
    """Number of the NVML error with which opening the GPU failed."""
    error_text: str
    """NVML's text for that error."""


@dataclass(frozen=True, slots=True)
class NvmlDiagnostics:
    """What NVML reports about this machine."""

    error: int | None
    """Number of the error with which NVML failed to start, or None if NVML started."""
    error_text: str | None
    """NVML's text for ``error``. None if NVML started, or if pynvml is missing."""
    driver: str | None
    cuda_driver: str | None
    """Newest CUDA version that the driver supports, such as "13.0"."""
    gpus: tuple[GpuDiagnostics, ...]
    lost: tuple[LostGpu, ...]
    peers: tuple[PeerAccess, ...]
    """One entry per ordered pair of GPUs."""


def query_diagnostics(on_step: Callable[[str], object] = lambda step: None) -> NvmlDiagnostics:
    """Open NVML, read everything once, and close NVML. Before each step, call ``on_step`` with its name."""
    on_step("import pynvml")
    try:
        import pynvml
    except ImportError:
        return _failed(NO_BINDING, None)
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        return _failed(FOREIGN_BINDING, None)
    on_step("nvmlInit")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _failed(int(error.value), str(error))
    try:
        return _query_diagnostics(pynvml, on_step)
    except pynvml.NVMLError as error:
        return _failed(int(error.value), str(error))
    finally:
        on_step("nvmlShutdown")
        pynvml.nvmlShutdown()


def _failed(error: int, error_text: str | None) -> NvmlDiagnostics:
    return NvmlDiagnostics(error, error_text, None, None, (), (), ())


def _query_diagnostics(nvml: Any, on_step: Callable[[str], object]) -> NvmlDiagnostics:
    on_step("NVML's list of GPUs")
    driver = text(nvml.nvmlSystemGetDriverVersion())
    gpus, lost, handles = [], [], {}
    for index in range(nvml.nvmlDeviceGetCount()):
        on_step(f"NVML's query of GPU {index}")
        try:
            handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(_gpu(nvml, handles[index], index))
        except nvml.NVMLError as error:
            handles.pop(index, None)
            lost.append(LostGpu(index, int(error.value), str(error)))
    on_step("NVML's query of peer access")
    peers = tuple(
        PeerAccess(
            first,
            other,
            *(_p2p(nvml, handles[first], handles[other], what) for what in (_P2P_NVLINK, _P2P_READ)),
        )
        for first, other in permutations(handles, 2)
    )
    return NvmlDiagnostics(None, None, driver, cuda_version(nvml), tuple(gpus), tuple(lost), peers)


def _p2p(nvml: Any, first: Any, other: Any, what: int) -> bool | None:
    try:
        return bool(nvml.nvmlDeviceGetP2PStatus(first, other, what) == _P2P_OK)
    except nvml.NVMLError:
        return None


def _gpu(nvml: Any, handle: Any, index: int) -> GpuDiagnostics:
    query = _Query(nvml, handle)
    uuid, name = text(nvml.nvmlDeviceGetUUID(handle)), text(nvml.nvmlDeviceGetName(handle))
    pci = query("pci_bus_id", "nvmlDeviceGetPciInfo_v3")
    capability = query("compute_capability", "nvmlDeviceGetCudaComputeCapability")
    mig = query("mig", "nvmlDeviceGetMigMode")
    mode = query("compute_mode", "nvmlDeviceGetComputeMode")
    ecc = query("ecc", "nvmlDeviceGetEccMode")
    rows = query("remapped", "nvmlDeviceGetRemappedRows")
    reasons = query(
        "throttle", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    )
    return GpuDiagnostics(
        index=index,
        uuid=uuid,
        name=name,
        pci_bus_id=None if pci is None else text(pci.busId),
        compute_capability=None if capability is None else "{}.{}".format(*capability),
        mig=None if mig is None else bool(mig[0]),
        mig_pending=None if mig is None else bool(mig[1]),
        slices=_slices(nvml, handle) if mig is not None and mig[0] else (),
        compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode {mode}"),
        persistence=_flag(query("persistence", "nvmlDeviceGetPersistenceMode")),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_uncorrected=query("ecc_uncorrected", partial(uncorrected_errors, nvml)),
        retired_pending=_flag(query("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus")),
        remapped=None if rows is None else int(rows[1]),
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failed=None if rows is None else bool(rows[3]),
        pcie_generation=query("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_generation_max=query("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width=query("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_max=query("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
        throttle=None if reasons is None else throttle_reasons.reason_names(reasons),
        missing=query.missing,
    )


class _Query:
    """Reads values of one GPU. For each value that is unknown, ``missing`` has the reason."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.missing: dict[str, str] = {}

    def __call__(self, name: str, *functions: str | Callable[[Any], Any]) -> Any:
        """Return the value that is read by the first of ``functions`` that is available.

        A function is available if both the binding and the driver have it. On failure, return None and store
        the reason.
        """
        reason = nvml_messages.PERMANENT[nvml_messages.FUNCTION_NOT_FOUND]
        for candidate in functions:
            # Older versions of pynvml lack the newer functions, and newer versions drop the older ones.
            function = getattr(self._nvml, candidate, None) if isinstance(candidate, str) else candidate
            if function is None:
                continue
            try:
                return function(self._handle)
            except self._nvml.NVMLError as error:
                if error.value in nvml_messages.GPU_LOST:
                    raise
                reason = nvml_messages.value_error(error.value, str(error))
                if error.value != nvml_messages.FUNCTION_NOT_FOUND:
                    break
        self.missing[name] = reason
        return None


def _slices(nvml: Any, handle: Any) -> tuple[str, ...]:
    found = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(
                text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
            )
        except nvml.NVMLError:
            continue  # The indices of slices may have gaps.
    return tuple(found)


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)
