"""The table of GPU metrics. Metrics are declared only here.

From this table, ``python -m tools.metrics`` generates the dataclasses in ``readings.py``, the labextension's
``metricTable.ts`` and the tables in docs/reference/metrics.md and docs/admin/prometheus.md. The sampler,
recordings, the server's history, Prometheus, the command line's table and the reports use the table at run
time.

To add a metric, add an entry to ``METRICS`` and the NVML call to ``sources/nvml_device.py``, then run
``make generate``. A hardware counter needs no call: its ``gpm`` is the id that requests it. With
``reported``, reports contain the metric, and it may have a column in the card and a row in comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from gpuwidget.model.translation import translatable

Group = Literal[
    "memory",
    "fast",
    "processes",
    "status",
    "power_samples",
    "slow",
    "activity",
    "windows",
    "working_processes",
]
"""What a source reads of a GPU in one call, and so how often. ``GROUPS`` has the values of each group."""
Kind = Literal["percent", "memory", "power", "temperature", "clock", "rate", "energy", "seconds", "count"]
"""The kind of quantity. The units of the kinds are, in this order: percent, bytes, watts, degrees Celsius,
MHz, bytes per second, joules, seconds, and none for a count."""
Section = Literal["use", "memory", "power", "traffic", "rest"]
"""A section of the dashboard, in display order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """How a recording stores a metric."""

    key: str
    """Key of the metric in every line of the recording that contains readings. For a hardware counter, the
    key is in that line's object ``gpm``."""
    scale: float = 1
    """Factor by which a value in the model's unit is multiplied to get the recorded value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """How a metric is exported to Prometheus."""

    name: str
    help: str
    unit_size: float = 1
    """Number of the model's units in one exported unit."""
    counter: bool = False
    """Whether the metric is a Prometheus counter: its value does not fall before the driver is reloaded."""
    dcgm: str | None = None
    """Name of the same metric in dcgm-exporter."""
    dcgm_unit_size: float = 1
    """Number of the model's units in one of dcgm-exporter's units."""
    nvidia_gpu: str | None = None
    """Name of the same metric in nvidia_gpu_exporter, which has the units of gpuwidget's exported metric."""
    unit: str = ""
    """Unit or meaning of the metric, for the table in the docs. If dcgm-exporter's unit differs, it is in
    parentheses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """How the report of a run contains a metric, and where views of the report show it.

    The metric must be read several times per second: the value of another group may be from before the run.
    """

    name: str
    """Key of the metric in :attr:`~gpuwidget.model.report.GpuReport.levels`, and its name in the JSON."""
    label: str | None = None
    """Name of the metric in sentences, or None if no sentence explains why it is unknown."""
    title: str | None = None
    """Title of the metric in the card's tables, or None if they omit it."""
    column: Literal["always", "few GPUs"] | None = None
    """When the card's table of GPUs has a column for the metric."""
    headline: bool = False
    """Whether the card of one GPU shows the metric's mean below the GPU's utilization."""
    compared: bool = False
    """Whether the comparison of two runs has a row for the metric's mean over the whole run."""
    secondary: bool = False
    """Whether ``Report.metrics()`` and the JSON of a small card omit the metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of a GPU."""

    key: str
    """Name of the field of :class:`~gpuwidget.model.readings.Reading` or of its ``activity``. It is also the
    JSON key."""
    kind: Kind
    group: Group
    doc: str
    """Description of the metric, with its unit."""
    nvml: str
    """The NVML call, field or hardware counter that returns the metric."""
    gpm: int | None = None
    """For a hardware counter: NVML's id of it (``nvmlGpmMetricId_t``)."""
    nvidia_smi: str | None = None
    """Name of the metric in ``nvidia-smi --query-gpu``."""
    note: str = ""
    """Further facts that are needed to interpret the metric."""
    whole: bool = False
    """Whether the metric is an int."""
    limit: str | None = None
    """Name of the field with the metric's upper limit. It is a field of the reading or of the GPU."""
    label: str | None = None
    """The metric's label in the dashboard, in sentence case. None for a metric that has neither chart nor
    history."""
    description: str = ""
    """The sentence that describes the metric in the dashboard."""
    section: Section = "rest"
    """The section of the dashboard that has the metric's chart."""
    panel: bool = False
    """Whether the GPU cards in the panel list the metric."""
    table_title: str | None = None
    """Title of the metric's column in the command line's table, or None if it has no column there."""
    reported: Reported | None = None
    recorded: Recorded | None = None
    exported: Exported | None = None


_COUNTERS = "by the hardware's own counters, while a viewer has them read."
_MIB = 1024**2


def _link(key: str, nvml: str, gpm: int, label: str, description: str, doc: str) -> Metric:
    return Metric(
        key=key,
        kind="rate",
        group="activity",
        doc=doc,
        nvml=f"NVML_GPM_METRIC_{nvml}_PER_SEC",
        gpm=gpm,
        label=label,
        description=description,
        section="traffic",
        recorded=Recorded(key=f"{key}_mib_s", scale=1 / _MIB),
    )


def _pipe(
    key: str, gpm: int, label: str, description: str, precision: str, reported: Reported | None = None
) -> Metric:
    return Metric(
        key=key,
        kind="percent",
        group="activity",
        doc=f"{precision} pipes in use, in percent",
        nvml=f"NVML_GPM_METRIC_{key.upper()}_UTIL",
        gpm=gpm,
        label=label,
        description=description,
        section="use",
        reported=reported,
        recorded=Recorded(key=key),
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        key="utilization",
        kind="percent",
        group="fast",
        doc="Percent of time during which any kernel ran, over the driver's last window",
        nvml="nvmlDeviceGetUtilizationRates gpu",
        nvidia_smi="utilization.gpu",
        note="It does not measure how much of the GPU worked: see ``activity``.",
        label="GPU utilization",
        description="Time in which kernels ran, as the driver reports it",
        section="use",
        table_title="Util %",
        recorded=Recorded(key="util"),
        exported=Exported(
            name="gpuwidget_gpu_utilization_ratio",
            help="Share of the driver's last window (1/6 to 1 s) in which anything ran, as nvidia-smi's "
            "utilization.gpu: not how much of the GPU worked.",
            unit_size=100,
            dcgm="DCGM_FI_DEV_GPU_UTIL",
            nvidia_gpu="nvidia_smi_utilization_gpu_ratio",
            unit="0 to 1 (percent)",
        ),
    ),
    Metric(
        key="memory_utilization",
        kind="percent",
        group="fast",
        doc="Percent of time during which device memory was read or written, over the driver's last window",
        nvml="nvmlDeviceGetUtilizationRates memory",
        nvidia_smi="utilization.memory",
        label="Memory utilization",
        description="Time in which device memory was read or written",
        section="traffic",
        reported=Reported(name="memory_utilization", secondary=True),
        recorded=Recorded(key="mem_util"),
        exported=Exported(
            name="gpuwidget_gpu_memory_copy_utilization_ratio",
            help="Share of that window in which device memory was read or written, as nvidia-smi's "
            "utilization.memory.",
            unit_size=100,
            dcgm="DCGM_FI_DEV_MEM_COPY_UTIL",
            nvidia_gpu="nvidia_smi_utilization_memory_ratio",
            unit="0 to 1 (percent)",
        ),
    ),
    Metric(
        key="memory_used",
        kind="memory",
        group="fast",
        whole=True,
        doc="Bytes in use, without those that the driver reserves",
        nvml="nvmlDeviceGetMemoryInfo_v2 used",
        nvidia_smi="memory.used",
        limit="memory_total",
        label="Memory",
        description="Memory in use, without the part that the driver reserves",
        section="memory",
        table_title="Memory GiB",
        recorded=Recorded(key="mem_used"),
        exported=Exported(
            name="gpuwidget_gpu_memory_used_bytes",
            help="Memory in use, without what the driver reserves.",
            dcgm="DCGM_FI_DEV_FB_USED",
            dcgm_unit_size=_MIB,
            nvidia_gpu="nvidia_smi_memory_used_bytes",
            unit="bytes (MiB), without what the driver reserves",
        ),
    ),
    Metric(
        key="power_w",
        kind="power",
        group="fast",
        doc="Power draw in watts",
        nvml="NVML_FI_DEV_POWER_INSTANT",
        nvidia_smi="power.draw.instant",
        limit="power_limit_w",
        label="Power",
        description="Current power draw",
        section="power",
        panel=True,
        table_title="Power W",
        recorded=Recorded(key="power_mw", scale=1000),
        exported=Exported(
            name="gpuwidget_gpu_power_watts",
            help="Power drawn now.",
            dcgm="DCGM_FI_DEV_POWER_USAGE",
            nvidia_gpu="nvidia_smi_power_draw_instant_watts",
            unit="watts (watts; on most GPUs a mean of 1 s)",
        ),
    ),
    Metric(
        key="power_limit_w",
        kind="power",
        group="status",
        doc="Power limit in watts",
        nvml="nvmlDeviceGetEnforcedPowerLimit",
        nvidia_smi="enforced.power.limit",
        exported=Exported(
            name="gpuwidget_gpu_power_limit_watts",
            help="Power that the GPU may draw.",
            dcgm="DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
            nvidia_gpu="nvidia_smi_enforced_power_limit_watts",
            unit="watts",
        ),
    ),
    Metric(
        key="temperature_c",
        kind="temperature",
        group="status",
        doc="Temperature of the core in degrees Celsius",
        nvml="nvmlDeviceGetTemperature",
        nvidia_smi="temperature.gpu",
        label="Temperature",
        description="Temperature of the core",
        section="power",
        panel=True,
        table_title="°C",
        recorded=Recorded(key="temp_c"),
        exported=Exported(
            name="gpuwidget_gpu_temperature_celsius",
            help="Temperature of the core.",
            dcgm="DCGM_FI_DEV_GPU_TEMP",
            nvidia_gpu="nvidia_smi_temperature_gpu",
            unit="degrees Celsius",
        ),
    ),
    Metric(
        key="memory_temperature_c",
        kind="temperature",
        group="status",
        doc="Temperature of the memory in degrees Celsius",
        nvml="NVML_FI_DEV_MEMORY_TEMP",
        nvidia_smi="temperature.memory",
        label="Memory temperature",
        description="Temperature of the memory",
        section="power",
        recorded=Recorded(key="mem_temp_c"),
        exported=Exported(
            name="gpuwidget_gpu_memory_temperature_celsius",
            help="Temperature of the memory.",
            dcgm="DCGM_FI_DEV_MEMORY_TEMP",
            nvidia_gpu="nvidia_smi_temperature_memory",
            unit="degrees Celsius",
        ),
    ),
    Metric(
        key="sm_clock_mhz",
        kind="clock",
        group="status",
        doc="Clock of the multiprocessors in MHz",
        nvml="nvmlDeviceGetClockInfo SM",
        nvidia_smi="clocks.sm",
        label="SM clock",
        description="Clock of the streaming multiprocessors (SMs)",
        section="power",
        panel=True,
        table_title="MHz",
        recorded=Recorded(key="sm_mhz"),
        exported=Exported(
            name="gpuwidget_gpu_sm_clock_hertz",
            help="Clock of the multiprocessors.",
            unit_size=1e-6,
            dcgm="DCGM_FI_DEV_SM_CLOCK",
            nvidia_gpu="nvidia_smi_clocks_current_sm_clock_hz",
            unit="hertz (MHz)",
        ),
    ),
    Metric(
        key="memory_clock_mhz",
        kind="clock",
        group="status",
        doc="Clock of the memory in MHz",
        nvml="nvmlDeviceGetClockInfo MEM",
        nvidia_smi="clocks.mem",
        label="Memory clock",
        description="Clock of the memory",
        recorded=Recorded(key="mem_mhz"),
        exported=Exported(
            name="gpuwidget_gpu_memory_clock_hertz",
            help="Clock of the memory.",
            unit_size=1e-6,
            dcgm="DCGM_FI_DEV_MEM_CLOCK",
            nvidia_gpu="nvidia_smi_clocks_current_memory_clock_hz",
            unit="hertz (MHz)",
        ),
    ),
    Metric(
        key="pstate",
        kind="count",
        group="status",
        whole=True,
        doc="Performance state, from 0 (fastest) to 15",
        nvml="nvmlDeviceGetPerformanceState",
        nvidia_smi="pstate",
        exported=Exported(
            name="gpuwidget_gpu_performance_state",
            help="0, the fastest, to 15.",
            dcgm="DCGM_FI_DEV_PSTATE",
            nvidia_gpu="nvidia_smi_pstate",
            unit="0, the fastest, to 15",
        ),
    ),
    Metric(
        key="fan_speed",
        kind="percent",
        group="status",
        doc="Intended fan speed in percent of the fan's maximum; may exceed 100",
        nvml="nvmlDeviceGetFanSpeed",
        nvidia_smi="fan.speed",
        label="Fan speed",
        description="Fan speed that the driver requests, not measured",
        recorded=Recorded(key="fan"),
        exported=Exported(
            name="gpuwidget_gpu_fan_speed_ratio",
            help="Intended fan speed, of the fan's maximum.",
            unit_size=100,
            dcgm="DCGM_FI_DEV_FAN_SPEED",
            nvidia_gpu="nvidia_smi_fan_speed_ratio",
            unit="0 to 1 (percent)",
        ),
    ),
    Metric(
        key="encoder_utilization",
        kind="percent",
        group="status",
        doc="Percent of time during which the video encoder worked, over the driver's last window",
        nvml="nvmlDeviceGetEncoderUtilization",
        nvidia_smi="utilization.encoder",
        label="Video encoder",
        description="Time in which the video encoder was working",
        recorded=Recorded(key="enc_util"),
        exported=Exported(
            name="gpuwidget_gpu_encoder_utilization_ratio",
            help="Share of the driver's last window in which the video encoder worked.",
            unit_size=100,
            dcgm="DCGM_FI_DEV_ENC_UTIL",
            nvidia_gpu="nvidia_smi_utilization_encoder_ratio",
            unit="0 to 1 (percent)",
        ),
    ),
    Metric(
        key="decoder_utilization",
        kind="percent",
        group="status",
        doc="Percent of time during which the video decoder worked, over the driver's last window",
        nvml="nvmlDeviceGetDecoderUtilization",
        nvidia_smi="utilization.decoder",
        label="Video decoder",
        description="Time in which the video decoder was working",
        recorded=Recorded(key="dec_util"),
        exported=Exported(
            name="gpuwidget_gpu_decoder_utilization_ratio",
            help="Share of the driver's last window in which the video decoder worked.",
            unit_size=100,
            dcgm="DCGM_FI_DEV_DEC_UTIL",
            nvidia_gpu="nvidia_smi_utilization_decoder_ratio",
            unit="0 to 1 (percent)",
        ),
    ),
    Metric(
        key="energy_j",
        kind="energy",
        group="slow",
        doc="Energy in joules that the GPU has used since the driver was loaded",
        nvml="nvmlDeviceGetTotalEnergyConsumption",
        exported=Exported(
            name="gpuwidget_gpu_energy_joules_total",
            help="Energy drawn since the driver was loaded, by its own counter, which is read once a minute.",
            counter=True,
            dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            dcgm_unit_size=1e-3,
            nvidia_gpu="nvidia_smi_energy_joules_total",
            unit="counter, joules (mJ), since the driver was loaded",
        ),
    ),
    Metric(
        key="utilization_window",
        kind="seconds",
        group="slow",
        doc="Seconds over which the driver averages ``utilization`` (0.2 on an H200)",
        nvml="nvmlDeviceGetSamples NVML_GPU_UTILIZATION_SAMPLES",
    ),
    Metric(
        key="ecc_uncorrected",
        kind="count",
        group="slow",
        whole=True,
        doc="Number of uncorrected memory errors since the driver was loaded",
        nvml="nvmlDeviceGetTotalEccErrors uncorrected volatile",
        nvidia_smi="ecc.errors.uncorrected.volatile.total",
        exported=Exported(
            name="gpuwidget_gpu_ecc_uncorrected_errors_total",
            help="Uncorrected memory errors since the driver was loaded, read once a minute.",
            counter=True,
            dcgm="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
            nvidia_gpu="nvidia_smi_ecc_errors_uncorrected_volatile_total",
            unit="counter, since the driver was loaded",
        ),
    ),
    Metric(
        key="graphics",
        kind="percent",
        group="activity",
        doc="Percent of time during which any graphics or compute engine was active",
        nvml="NVML_GPM_METRIC_GRAPHICS_UTIL",
        gpm=1,
        label="Graphics/compute engine active",
        description="Time in which any engine was active",
        section="use",
        recorded=Recorded(key="graphics"),
        exported=Exported(
            name="gpuwidget_gpu_engine_active_ratio",
            help=f"Time with any engine active, {_COUNTERS}",
            unit_size=100,
            dcgm="DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            dcgm_unit_size=100,
            unit="0 to 1",
        ),
    ),
    Metric(
        key="sm",
        kind="percent",
        group="activity",
        doc="Multiprocessors that had work, in percent",
        nvml="NVML_GPM_METRIC_SM_UTIL",
        gpm=2,
        label="SM active",
        description="Share of the multiprocessors (SMs) that had work",
        section="use",
        reported=Reported(
            name="sm_activity",
            label=translatable("SM activity"),
            title="SM",
            column="always",
            headline=True,
        ),
        recorded=Recorded(key="sm"),
        exported=Exported(
            name="gpuwidget_gpu_sm_active_ratio",
            help=f"Multiprocessors with work in them, {_COUNTERS}",
            unit_size=100,
            dcgm="DCGM_FI_PROF_SM_ACTIVE",
            dcgm_unit_size=100,
            unit="0 to 1",
        ),
    ),
    Metric(
        key="sm_occupancy",
        kind="percent",
        group="activity",
        doc="Resident warps, in percent of the maximum",
        nvml="NVML_GPM_METRIC_SM_OCCUPANCY",
        gpm=3,
        label="SM occupancy",
        description="Resident warps, as a share of the maximum",
        section="use",
        reported=Reported(
            name="sm_occupancy", label=translatable("SM occupancy"), title=translatable("SM occupancy")
        ),
        recorded=Recorded(key="sm_occupancy"),
        exported=Exported(
            name="gpuwidget_gpu_sm_occupancy_ratio",
            help=f"Warps resident over warps possible, {_COUNTERS}",
            unit_size=100,
            dcgm="DCGM_FI_PROF_SM_OCCUPANCY",
            dcgm_unit_size=100,
            unit="0 to 1",
        ),
    ),
    Metric(
        key="tensor",
        kind="percent",
        group="activity",
        doc="Tensor-core pipes in use, in percent",
        nvml="NVML_GPM_METRIC_ANY_TENSOR_UTIL",
        gpm=5,
        label="Tensor cores",
        description="Use of the tensor-core pipes",
        section="use",
        reported=Reported(
            name="tensor_activity",
            label=translatable("tensor activity"),
            title=translatable("tensor"),
            column="few GPUs",
            headline=True,
            compared=True,
        ),
        recorded=Recorded(key="tensor"),
        exported=Exported(
            name="gpuwidget_gpu_tensor_active_ratio",
            help=f"Tensor-core pipes in use, {_COUNTERS}",
            unit_size=100,
            dcgm="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            dcgm_unit_size=100,
            unit="0 to 1",
        ),
    ),
    Metric(
        key="dram",
        kind="percent",
        group="activity",
        doc="Memory bandwidth in use, in percent",
        nvml="NVML_GPM_METRIC_DRAM_BW_UTIL",
        gpm=10,
        label="Memory bandwidth",
        description="Use of the memory bandwidth",
        section="traffic",
        reported=Reported(
            name="dram_activity",
            label=translatable("DRAM activity"),
            title="DRAM",
            column="few GPUs",
            compared=True,
        ),
        recorded=Recorded(key="dram"),
        exported=Exported(
            name="gpuwidget_gpu_dram_active_ratio",
            help=f"Memory bandwidth in use, {_COUNTERS}",
            unit_size=100,
            dcgm="DCGM_FI_PROF_DRAM_ACTIVE",
            dcgm_unit_size=100,
            unit="0 to 1",
        ),
    ),
    _pipe("fp64", 11, "FP64", "Use of the double-precision pipes", "Double-precision"),
    _pipe(
        "fp32",
        12,
        "FP32",
        "Use of the single-precision pipes",
        "Single-precision",
        Reported(
            name="fp32_activity",
            label=translatable("float32 activity"),
            title=translatable("float32 pipes"),
            secondary=True,
        ),
    ),
    _pipe("fp16", 13, "FP16", "Use of the half-precision pipes", "Half-precision"),
    _link(
        "pcie_tx",
        "PCIE_TX",
        20,
        "PCIe sent",
        "Sent by the GPU over PCIe",
        "Bytes per second sent by the GPU over PCIe",
    ),
    _link(
        "pcie_rx",
        "PCIE_RX",
        21,
        "PCIe received",
        "Received by the GPU over PCIe",
        "Bytes per second received by the GPU over PCIe",
    ),
    _link(
        "nvlink_tx",
        "NVLINK_TOTAL_TX",
        61,
        "NVLink sent",
        "Sent by the GPU over all NVLinks",
        "Bytes per second sent over all NVLinks",
    ),
    _link(
        "nvlink_rx",
        "NVLINK_TOTAL_RX",
        60,
        "NVLink received",
        "Received by the GPU over all NVLinks",
        "Bytes per second received over all NVLinks",
    ),
)

_SECTIONS = get_args(Section)
REPORTED: tuple[tuple[Metric, Reported], ...] = tuple(
    (metric, metric.reported)
    for metric in sorted(
        METRICS, key=lambda metric: (metric.group == "activity", _SECTIONS.index(metric.section))
    )
    if metric.reported is not None
)
"""The metrics of which a report has the mean and the highest value, in the report's order: hardware counters
come last, in the order of the dashboard's sections."""


def keys(group: Group) -> tuple[str, ...]:
    """Return the keys of the metrics that a source reads with ``group``, in the table's order."""
    return tuple(metric.key for metric in METRICS if metric.group == group)


GROUPS: Mapping[Group, tuple[str, ...]] = {
    # Several times per second:
    "fast": keys("fast"),
    # Between two reads of "fast", while a cell runs:
    "memory": ("memory_used",),
    # Once per second, or if the memory in use has changed:
    "processes": ("processes",),
    # Every two seconds:
    "status": (*keys("status"), "throttle"),
    # Once per second while a cell runs:
    "power_samples": ("power_samples",),
    # Once per minute:
    "slow": (*keys("slow"), "xid"),
    # Once or twice per second while a run, a recording or a page needs the hardware counters:
    "activity": ("activity",),
    # While a profiler or the server's records of work need them:
    "windows": ("windows",),
    "working_processes": ("working_processes",),
}
"""The keys of the values that a source reads with each group."""
