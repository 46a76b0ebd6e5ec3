"""Make the NVML calls for one GPU or MIG slice. Skip calls that the GPU is known not to support."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar

from gpuwidget.model.clock import Clock
from gpuwidget.model.errors import GpuLostError, SliceRemovedError, SourceLostError
from gpuwidget.model.gpu_process import Process, ProcessKind
from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import GROUPS, Group
from gpuwidget.sources import GroupReading, UtilizationWindow, Xid, nvml_messages, throttle_reasons, unknown
from gpuwidget.sources.nvml_errors import XidEvents, uncorrected_errors
from gpuwidget.sources.nvml_gpm import CountedActivity, GpmCounters, TakeSample
from gpuwidget.sources.nvml_processes import list_processes, memory_by_pid
from gpuwidget.sources.plausible import drop_impossible, is_plausible
from gpuwidget.system import processes

NvmlCall = Callable[[Any], Any]
"""A function that takes a device handle and returns a value. It may raise pynvml's NVMLError."""

_UNAVAILABLE = frozenset({nvml_messages.FUNCTION_NOT_FOUND, nvml_messages.NOT_SUPPORTED})
_NO_FUNCTION = frozenset({nvml_messages.FUNCTION_NOT_FOUND})
_NOT_SUPPORTED = nvml_messages.PERMANENT[nvml_messages.NOT_SUPPORTED]
_WITHOUT_OWN_MEMORY = ("GB10", "Orin", "Thor", "Xavier")
"""Parts of the names of GPUs that use the host's memory. Their drivers may report that memory's clock."""
_SAME_TOTAL = 1024**2
"""If a GPU's total memory differs from the host's by fewer bytes, it is the host's memory."""
_FIRST_WITH_COUNTERS = (9, 0)
"""Compute capability of Hopper, the first architecture with the hardware counters that NVML reads (GPM)."""
_MAX_SAMPLE_AGE_S = 1.0
_NOT_WITH_MIG = frozenset(
    {
        "utilization",
        "windows",
        "utilization_window",
        "working_processes",
        "encoder_utilization",
        "decoder_utilization",
        "activity",
    }
)
"""Values that the driver does not report for a GPU while MIG is on, according to NVML's documentation. Of
these, it reports only the activity of slices."""
_PER_SLICE = frozenset({"memory_used", "processes", "activity"})
"""Values that the driver reports for a MIG slice. All others belong to the whole GPU."""
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The members of NVML's value union. NVML_VALUE_TYPE is the index of the member that holds the value."""


@dataclass(frozen=True)
class NvmlSession:
    """Objects that are shared by all GPUs that one call of ``NvmlSource.open`` has found."""

    nvml: Any
    """The module pynvml."""
    clock: Clock
    process_directory: processes.ProcessDirectory | None
    """Looks up users and programs. None if the driver's process ids are from another PID namespace."""
    scrambled: bool
    """Whether this driver's process lists are in a format that can't be parsed."""
    xids: XidEvents
    """Keeps the newest XIDs, even if NVML is closed and reopened."""


class NvmlDevice:
    """Reads one GPU by its handle, and stores which values the GPU does not support.

    For a MIG slice, ``slice_of`` is the GPU that contains it. Only the values in ``_PER_SLICE`` are read
    then.
    """

    def __init__(
        self, session: NvmlSession, handle: Any, label: str, slice_of: NvmlDevice | None = None
    ) -> None:
        self.handle = handle
        self._session = session
        self._nvml = session.nvml
        self._label = label
        self._slice_of = slice_of
        self.unified = False
        self.mig_on = slice_of is not None
        """Whether MIG is on. ``NvmlSource`` sets it for a whole GPU."""
        self._total: int | None = None
        self._unsupported: dict[str, Message] = {}
        self._call_index: dict[str, int] = {}
        self._counters: GpmCounters | None = None
        self._take_sample: TakeSample | None = None
        """Takes a sample of the hardware counters. None as long as it is unknown whether the GPU supports
        them."""
        self._window: float | None = None
        self._work_seen = 0
        """Time of the newest record of a process's work, in the driver's microseconds."""
        self._uuid = ""
        nvml = session.nvml
        self._utilization: Sequence[NvmlCall] = (nvml.nvmlDeviceGetUtilizationRates,)
        self._memory: Sequence[NvmlCall] = (self._memory_v2, nvml.nvmlDeviceGetMemoryInfo)
        self._metrics: Mapping[str, tuple[Sequence[NvmlCall], Callable[[Any], Any]]] = {
            "power_w": (
                (
                    partial(self._field, nvml.NVML_FI_DEV_POWER_INSTANT),
                    # The second choice, because it returns a mean over 1 s on Ampere and later.
                    nvml.nvmlDeviceGetPowerUsage,
                ),
                _thousandth,
            ),
            "power_limit_w": ((nvml.nvmlDeviceGetEnforcedPowerLimit,), _thousandth),
            "temperature_c": (
                [
                    partial(_with, getattr(nvml, name), nvml.NVML_TEMPERATURE_GPU)
                    for name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
                    if hasattr(nvml, name)
                ],
                float,
            ),
            "memory_temperature_c": ((partial(self._field, nvml.NVML_FI_DEV_MEMORY_TEMP),), float),
            "sm_clock_mhz": ((partial(_with, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),), float),
            "pstate": ((self._pstate,), int),
            "fan_speed": ((nvml.nvmlDeviceGetFanSpeed,), float),
            "memory_clock_mhz": ((partial(_with, nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),), float),
            "encoder_utilization": ((nvml.nvmlDeviceGetEncoderUtilization,), _first),
            "decoder_utilization": ((nvml.nvmlDeviceGetDecoderUtilization,), _first),
            # The function has two names. Older versions of pynvml lack the newer name, and CUDA 14 is to drop
            # the older name.
            "throttle": (
                [
                    getattr(nvml, name)
                    for name in (
                        "nvmlDeviceGetCurrentClocksEventReasons",
                        "nvmlDeviceGetCurrentClocksThrottleReasons",
                    )
                    if hasattr(nvml, name)
                ],
                throttle_reasons.reason_names,
            ),
            "energy_j": ((nvml.nvmlDeviceGetTotalEnergyConsumption,), _thousandth),
            "utilization_window": ((self._utilization_window,), float),
            "ecc_uncorrected": ((partial(uncorrected_errors, nvml),), int),
        }
        """For each metric that has its own call: the calls that can read it, and the conversion to the
        model's unit."""
        self._processes: Mapping[ProcessKind, Sequence[NvmlCall]] = {
            kind: [partial(list_processes, nvml, kind, version) for version in (3, 2)]
            for kind in ("compute", "graphics")
        }
        if session.scrambled:
            self._unsupported["processes"] = nvml_messages.SCRAMBLED_PROCESS_LISTS
        if slice_of is not None:
            for name in set().union(*GROUPS.values()) - _PER_SLICE:
                self._unsupported[name] = _not_per_slice(name)

    def read(self, group: Group) -> GroupReading:
        """Make the NVML calls of ``group``. Raises GpuLostError and SourceLostError."""
        return self._READS[group](self)

    # -- queries -------------------------------------------------------------------------------------

    def query(
        self,
        name: str,
        calls: Sequence[NvmlCall],
        missing: dict[str, Message],
        fallback_on: Collection[int] = _UNAVAILABLE,
    ) -> Any:
        """Return the value that one of ``calls`` reads: the first one that this GPU supports.

        On failure, return None and store the reason in ``missing`` under ``name``. If a call fails with an
        error in ``fallback_on``, the next of ``calls`` replaces it permanently. Raises GpuLostError and
        SourceLostError.
        """
        reason = self._unsupported.get(name)
        if reason is not None:
            missing[name] = reason
            return None
        at = self._call_index.get(name, 0)
        while True:
            try:
                return calls[at](self.handle)
            except self._nvml.NVMLError as error:
                if error.value in fallback_on and at + 1 < len(calls):
                    at += 1
                    self._call_index[name] = at
                    continue
                missing[name] = self._reason(name, error)
                return None

    def _reason(self, name: str, error: Any) -> Message:
        code = error.value
        if code in nvml_messages.GPU_LOST:
            problem = nvml_messages.GPU_LOST[code]
            raise GpuLostError(f"{self._label} {problem}.", nvml_messages.LOST(problem=problem))
        if code in nvml_messages.SOURCE_LOST:
            raise SourceLostError(nvml_messages.start_error(code, str(error)))
        if self._slice_of is not None and name == "memory_used" and code in nvml_messages.NO_SLICE:
            raise SliceRemovedError(f"{self._label} no longer exists: MIG was reconfigured.")
        if code in nvml_messages.PERMANENT:
            no_mig = self.mig_on and code == nvml_messages.NOT_SUPPORTED and name in _NOT_WITH_MIG
            reason = nvml_messages.MIG_ON if no_mig else nvml_messages.PERMANENT[code]
            return self._unsupported.setdefault(name, reason)
        return nvml_messages.value_error(code, str(error))

    # -- fast readings and memory --------------------------------------------------------------------

    def _read_fast(self) -> GroupReading:
        """Read both utilizations with one NVML call, and each other fast metric with one."""
        missing: dict[str, Message] = {}
        rates = self.query("utilization", self._utilization, missing)
        if rates is None:
            missing["memory_utilization"] = missing["utilization"]
        values: dict[str, Any] = {
            "utilization": None if rates is None else float(rates.gpu),
            "memory_utilization": None if rates is None else float(rates.memory),
            "memory_used": self._used(missing),
        }
        self._add_metrics("fast", values, missing)
        return GroupReading(values, missing)

    def _read_memory(self) -> GroupReading:
        """Read the memory in use with one NVML call, or with none if the GPU uses the host's memory."""
        missing: dict[str, Message] = {}
        return GroupReading({"memory_used": self._used(missing)}, missing)

    def _add_metrics(self, group: Group, values: dict[str, Any], missing: dict[str, Message]) -> None:
        """Read those metrics of ``group`` that ``values`` does not contain yet, with one NVML call each."""
        for key in GROUPS[group]:
            if key not in values:
                calls, convert = self._metrics[key]
                value = self.query(key, calls, missing)
                values[key] = None if value is None else convert(value)
        drop_impossible(values, missing)

    def memory_size(self) -> tuple[int | None, int | None]:
        """Return the total and the reserved bytes of memory. Set ``unified`` if the GPU uses the host's
        memory."""
        missing: dict[str, Message] = {}
        info = self._memory_info(missing)
        if self._slice_of is None:
            self.unified = self._is_unified(info, missing)
        if self.unified:
            self._total = processes.host_memory().total
            return self._total, 0
        if info is None or not is_plausible("memory_total", info.total):
            return None, None
        self._total = int(info.total)
        # Version 1 of the structure has no field ``reserved``, because it counts reserved memory as used.
        reserved = int(getattr(info, "reserved", 0))
        return self._total, reserved if is_plausible("memory_used", reserved, self._total) else None

    def _is_unified(self, info: Any, missing: Mapping[str, Message]) -> bool:
        """Return whether the GPU uses the host's memory, given the result of the memory call.

        Some drivers then return the host's total or 0. Others do not support the call. That alone proves
        nothing, but a GPU with its own memory has a memory clock.
        """
        if info is not None:
            total = int(info.total)
            return total == 0 or abs(total - processes.host_memory().total) < _SAME_TOTAL
        reason = missing.get("memory_used")
        if reason is None or reason.id != _NOT_SUPPORTED.id:
            return False
        clock: dict[str, Message] = {}
        self._max_clock(self._nvml.NVML_CLOCK_MEM, clock)
        no_clock = [reason.id for reason in clock.values()] == [_NOT_SUPPORTED.id]
        return no_clock or any(name in self._label for name in _WITHOUT_OWN_MEMORY)

    def peak_rates(self) -> tuple[float | None, float | None]:
        """Return the peak float32 operations per second and the peak bytes per second of the memory.

        Four NVML calls read constants of the GPU. A rate is None if one of its constants is unknown.
        """
        nvml = self._nvml
        cores = self._constant("cores", self.query("cores", (nvml.nvmlDeviceGetNumGpuCores,), {}))
        width = self.query("memory bus width", (nvml.nvmlDeviceGetMemoryBusWidth,), {})
        bus_width = self._constant("memory_bus_width", width)
        sm_clock, memory_clock = (
            self._constant("max_clock_mhz", self._max_clock(kind, {}))
            for kind in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
        )
        return (
            2 * cores * sm_clock * 1e6 if cores and sm_clock else None,
            2 * bus_width / 8 * memory_clock * 1e6 if bus_width and memory_clock else None,
        )

    def _max_clock(self, kind: int, missing: dict[str, Message]) -> Any:
        call = partial(_with, self._nvml.nvmlDeviceGetMaxClockInfo, kind)
        return self.query(f"maximum clock {kind}", (call,), missing)

    @staticmethod
    def _constant(name: str, value: Any) -> float | None:
        return float(value) if value is not None and is_plausible(name, value) else None

    def _used(self, missing: dict[str, Message]) -> int | None:
        if self.unified:
            return processes.host_memory().used
        info = self._memory_info(missing)
        if info is not None and not is_plausible("memory_used", info.used, self._total):
            missing["memory_used"] = nvml_messages.IMPOSSIBLE
            return None
        return None if info is None else int(info.used)

    def _memory_info(self, missing: dict[str, Message]) -> Any:
        # If the library has no v2 call, every memory reading uses v1. Otherwise v1 is never used: it counts
        # reserved memory as used, so a switch to v1 after an error would look like a jump in memory use.
        return self.query("memory_used", self._memory, missing, _NO_FUNCTION)

    def _memory_v2(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)

    def _field(self, number: int, handle: Any) -> Any:
        value = self._nvml.nvmlDeviceGetFieldValues(handle, [number])[0]
        if value.nvmlReturn == nvml_messages.INVALID_ARGUMENT:
            # Drivers that are too old to have this field return INVALID_ARGUMENT. Treat the error as "not
            # supported".
            raise self._nvml.NVMLError(nvml_messages.NOT_SUPPORTED)
        if value.nvmlReturn:
            raise self._nvml.NVMLError(value.nvmlReturn)
        return getattr(value.value, _VALUES[value.valueType])

    # -- processes -----------------------------------------------------------------------------------

    def _read_processes(self) -> GroupReading:
        """Read compute and graphics processes with one NVML call each. A process in both lists appears
        once."""
        missing: dict[str, Message] = {}
        found: dict[int, tuple[ProcessKind, int | None]] = {}
        for kind, calls in self._processes.items():
            name = "processes" if kind == "compute" else "graphics processes"
            listed = self.query(name, calls, missing)
            if listed is None and kind == "graphics" and name in self._unsupported:
                continue
            if listed is None:
                return unknown("processes", missing[name])
            sizes = memory_by_pid(listed)
            if not all(self._is_plausible_process(pid, memory) for pid, memory in sizes.items()):
                # One impossible entry shows that the list can't be parsed, so the others may be wrong, too.
                return unknown("processes", nvml_messages.IMPOSSIBLE)
            for pid, memory in sizes.items():
                before = found.get(pid)
                if before is None:
                    found[pid] = (kind, memory)
                elif before[1] is None:
                    found[pid] = (before[0], memory)
        process_directory = self._session.process_directory
        listed_processes = tuple(
            Process(
                pid,
                kind,
                memory,
                *(process_directory.look_up(pid) if process_directory is not None else processes.UNKNOWN),
            )
            for pid, (kind, memory) in found.items()
        )
        return GroupReading({"processes": listed_processes}, {})

    def _is_plausible_process(self, pid: int, memory: int | None) -> bool:
        return is_plausible("pid", pid) and is_plausible("memory_used", memory or 0, self._total)

    # -- status and slow readings --------------------------------------------------------------------

    def _read_status(self) -> GroupReading:
        """Read each status metric and the throttle reasons with one cheap call each."""
        values: dict[str, Any] = {}
        missing: dict[str, Message] = {}
        self._add_metrics("status", values, missing)
        return GroupReading(values, missing)

    def _pstate(self, handle: Any) -> int:
        state = int(self._nvml.nvmlDeviceGetPerformanceState(handle))
        if not 0 <= state <= 15:  # NVML reports 32 for an unknown state.
            raise self._nvml.NVMLError(nvml_messages.NO_DATA)
        return state

    def _read_slow(self) -> GroupReading:
        """Read the energy counter (an NVML call of some milliseconds) and the errors (cheap calls).

        Also measure the length of the driver's utilization windows, until a measurement succeeds.
        """
        values: dict[str, Any] = {"xid": None}
        missing: dict[str, Message] = {}
        self._add_metrics("slow", values, missing)
        newest: Xid | None = self.query("xid", (self._newest_xid,), missing)
        if newest is not None and is_plausible("xid", newest.number):
            values["xid"] = newest
        elif newest is not None:
            missing["xid"] = nvml_messages.IMPOSSIBLE
        return GroupReading(values, missing)

    def register_xids(self, uuid: str) -> None:
        """Make the driver queue this GPU's XIDs, with two calls. If that fails, each slow read tries again.

        Raises GpuLostError and SourceLostError.
        """
        self._uuid = uuid
        self.query("xid", (self._register_xids,), {})

    def _register_xids(self, handle: Any) -> None:
        self._session.xids.register(self._nvml, self._uuid, handle)

    def _newest_xid(self, handle: Any) -> Xid | None:
        self._register_xids(handle)
        return self._session.xids.poll(self._uuid)

    def _read_windows(self) -> GroupReading:
        """Read the utilization windows with one NVML call, which takes some milliseconds.

        The driver keeps the windows of the last 14 s or so (measured on an H200).
        """
        return self._read_one("windows", self._windows)

    def _read_one(self, name: str, call: NvmlCall) -> GroupReading:
        missing: dict[str, Message] = {}
        return GroupReading({name: self.query(name, (call,), missing)}, missing)

    def _windows(self, handle: Any) -> tuple[UtilizationWindow, ...]:
        return tuple(
            UtilizationWindow(time / 1e6, float(value))
            for time, value in sorted(self._samples(self._nvml.NVML_GPU_UTILIZATION_SAMPLES, handle))
            if is_plausible("utilization", value)
        )

    def _read_working_processes(self) -> GroupReading:
        """Read the processes' utilization with two NVML calls, which take some milliseconds.

        The percentages are not used, because they are wrong when processes share a GPU (measured on an H200).
        """
        return self._read_one("working_processes", self._find_working)

    def _find_working(self, handle: Any) -> frozenset[int]:
        nvml = self._nvml
        read = getattr(nvml, "nvmlDeviceGetProcessUtilization", None)
        if read is None:  # Old versions of pynvml lack the function.
            raise nvml.NVMLError(nvml_messages.FUNCTION_NOT_FOUND)
        try:
            records = read(handle, self._work_seen)
        except nvml.NVMLError as error:
            if error.value == nvml_messages.NOT_FOUND:  # There are no records since then.
                return frozenset()
            raise
        # Entries that the driver has not filled in have the time 0.
        new = [record for record in records if record.timeStamp > self._work_seen]
        self._work_seen = max((record.timeStamp for record in new), default=self._work_seen)
        if not all(is_plausible("pid", record.pid) for record in new):
            raise nvml.NVMLError(nvml_messages.NO_DATA)
        return frozenset(
            int(record.pid)
            for record in new
            if record.smUtil or record.memUtil or record.encUtil or record.decUtil
        )

    def _read_power_samples(self) -> GroupReading:
        """Read the driver's samples of the power with two NVML calls, which take 0.5 ms.

        The driver keeps one sample per 20 ms, for the last 2.4 s (measured on an H200).
        """
        return self._read_one("power_samples", self._power_samples)

    def _power_samples(self, handle: Any) -> tuple[tuple[float, float], ...]:
        """Return the samples, or none if one of them is impossible, or if the newest one is not from the last
        second, because the system's clock, to which their times refer, has then been set."""
        samples = sorted(self._samples(self._nvml.NVML_TOTAL_POWER_SAMPLES, handle))
        now, clock = self._session.clock.monotonic(), self._session.clock.time()
        if not samples or abs(clock - samples[-1][0] / 1e6) > _MAX_SAMPLE_AGE_S:
            return ()
        if not all(is_plausible("power_w", milliwatts / 1000) for _, milliwatts in samples):
            return ()
        return tuple((now - (clock - time / 1e6), milliwatts / 1000) for time, milliwatts in samples)

    def _samples(self, kind_of_samples: int, handle: Any) -> list[tuple[int, int]]:
        """Return the time (in microseconds since the epoch) and the value of each sample.

        Empty slots of the driver's buffer, whose time is 0, are left out.
        """
        nvml = self._nvml
        kind, samples = nvml.nvmlDeviceGetSamples(handle, kind_of_samples, 0)
        member = _VALUES[kind] if 0 <= kind < len(_VALUES) else "uiVal"
        return [
            (sample.timeStamp, getattr(sample.sampleValue, member)) for sample in samples if sample.timeStamp
        ]

    def _utilization_window(self, handle: Any) -> float:
        if self._window is None:
            self._window = self._measure_window(handle)
        return self._window

    def _measure_window(self, handle: Any) -> float:
        nvml = self._nvml
        times = sorted(time for time, _ in self._samples(nvml.NVML_GPU_UTILIZATION_SAMPLES, handle))
        steps = [later - earlier for earlier, later in pairwise(times) if later > earlier]
        if len(steps) < 3:
            raise nvml.NVMLError(nvml_messages.NO_DATA)
        return float(round(median(steps) / 1e6, 3))

    # -- hardware counters ---------------------------------------------------------------------------

    def _read_activity(self) -> GroupReading:
        """Sample the hardware counters with two NVML calls, one of which takes 0.2 ms."""
        missing: dict[str, Message] = {}
        counted: CountedActivity | None = self.query("activity", (self._count,), missing)
        activity, missing = (None, missing) if counted is None else counted
        return GroupReading({"activity": activity}, missing)

    def _count(self, handle: Any) -> CountedActivity | None:
        counters = self._counters
        if counters is None:
            counters = self._counters = self._new_counters()
        return counters.read()

    def _new_counters(self) -> GpmCounters:
        if self._take_sample is None:
            self._take_sample = self._find_counters()
        return GpmCounters(self._nvml, self._take_sample, self._session.clock)

    def _find_counters(self) -> TakeSample:
        """Return the function that takes a sample of the hardware counters. Raises pynvml's NVMLError if the
        GPU does not support them."""
        nvml, whole, handle = self._nvml, self._slice_of, self.handle
        gpu_handle = handle if whole is None else whole.handle
        if not nvml.nvmlGpmQueryDeviceSupport(gpu_handle).isSupportedDevice:
            self._unsupported["activity"] = self._why_no_counters(gpu_handle)
            raise nvml.NVMLError(nvml_messages.NOT_SUPPORTED)
        if whole is None:
            return partial(nvml.nvmlGpmSampleGet, gpu_handle)
        return partial(nvml.nvmlGpmMigSampleGet, gpu_handle, nvml.nvmlDeviceGetGpuInstanceId(handle))

    def _why_no_counters(self, gpu_handle: Any) -> Message:
        """Return the reason why the driver reports that a GPU has no hardware counters.

        All GPUs since Hopper have them, but a driver need not provide them, for example in a virtual machine.
        """
        capability = self.query(
            "compute_capability", (lambda _: self._nvml.nvmlDeviceGetCudaComputeCapability(gpu_handle),), {}
        )
        if capability is not None and tuple(capability) < _FIRST_WITH_COUNTERS:
            return nvml_messages.NO_GPM
        return nvml_messages.GPM_NOT_PROVIDED

    def stop_activity(self) -> None:
        """Free the samples of the hardware counters. If an NVML call is using the samples, they are freed
        when the call returns."""
        counters, self._counters = self._counters, None
        if counters is not None:
            counters.discard()

    _READS: ClassVar[Mapping[Group, Callable[[NvmlDevice], GroupReading]]] = {
        "fast": _read_fast,
        "memory": _read_memory,
        "processes": _read_processes,
        "status": _read_status,
        "power_samples": _read_power_samples,
        "slow": _read_slow,
        "activity": _read_activity,
        "windows": _read_windows,
        "working_processes": _read_working_processes,
    }


def _thousandth(value: float) -> float:
    return value / 1000


def _not_per_slice(name: str) -> Message:
    """Return the reason why a value of a MIG slice is unknown."""
    return nvml_messages.MIG_ON if name in _NOT_WITH_MIG else nvml_messages.NOT_PER_MIG_SLICE


def _with(function: Callable[[Any, Any], Any], argument: Any, handle: Any) -> Any:
    return function(handle, argument)


def _first(values: Sequence[float]) -> float:
    """Return the first value of NVML's pair of utilization and sampling period."""
    return float(values[0])
