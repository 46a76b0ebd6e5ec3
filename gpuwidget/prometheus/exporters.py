"""The series of the three exporters that gpuwidget understands, as PromQL with one key for each GPU.

- gpuwidget's own ``/gpuwidget/metrics`` (docs/admin/prometheus.md),
- NVIDIA's dcgm-exporter (https://github.com/NVIDIA/dcgm-exporter),
- nvidia_gpu_exporter (https://github.com/utkuozdemir/nvidia_gpu_exporter).

Names and units of the metrics are in the table :mod:`gpuwidget.model.metrics`. The expressions here return
series with the label ``uuid``, whichever exporter they are from. It is NVML's UUID of a GPU or, for a MIG
slice from dcgm-exporter or nvidia_gpu_exporter, the UUID of its GPU, a slash and the id of the GPU instance.
gpuwidget's exporter has NVML's UUID of a slice.

If several exporters have a value, the first in ``EXPORTERS`` is used, which is the one with the finest
values: gpuwidget's are at most two seconds old, in bytes, and its power is instantaneous; dcgm-exporter
collects every 30 s by default, in MiB, and its power is a mean; nvidia_gpu_exporter rounds as nvidia-smi.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuwidget.model.metrics import METRICS, Exported

Exporter = Literal["gpuwidget", "dcgm", "nvidia_gpu"]
EXPORTERS: tuple[Exporter, ...] = ("gpuwidget", "dcgm", "nvidia_gpu")
"""All exporters, the one with the finest values first."""

DCGM_BLANK = 2147483632
"""The smallest of the numbers with which DCGM marks an unknown value (``DCGM_INT32_BLANK``). Old versions of
dcgm-exporter export them."""
_COUNTER_BLANK = 1e14
"""As ``DCGM_BLANK``, for counters, which exceed 2^31: less than ``DCGM_FP64_BLANK`` (2^47)."""
_SLICE_NAMES: Mapping[str, str] = {
    "nvidia_smi_memory_used_bytes": "nvidia_smi_mig_memory_used_bytes",
    "nvidia_smi_memory_total_bytes": "nvidia_smi_mig_memory_total_bytes",
}
"""nvidia_gpu_exporter's names for MIG slices, by the name for whole GPUs."""


Apply = Callable[[str], str]
"""Returns PromQL that applies a function to the selector of a series."""


@dataclass(frozen=True, slots=True)
class Over:
    """Applies a function to the samples in the ``seconds`` before each point."""

    function: Literal[
        "avg_over_time", "min_over_time", "max_over_time", "count_over_time", "last_over_time", "increase"
    ]
    seconds: float

    def __call__(self, series: str) -> str:
        """Return PromQL that applies the function to the selector of a series."""
        return f"{self.function}({series}[{max(1, round(self.seconds))}s])"


def metric_expression(
    key: str, matchers: Sequence[str], uuids: Collection[str] | None = None, apply: Apply | None = None
) -> str:
    """Return PromQL for a metric of the table, in the model's unit, whose series have the label ``uuid``
    alone.

    ``uuids`` restricts the GPUs; the result may contain further MIG slices of the same GPUs. ``apply`` is
    applied to every series, such as ``Over("avg_over_time", 60)``. Raises KeyError if the metric is not
    exported.
    """
    exported = _exported(key)
    parts = [
        _scaled(
            by_uuid("gpuwidget", selector("gpuwidget", exported.name, matchers, uuids, apply)),
            exported.unit_size,
        )
    ]
    if exported.dcgm is not None:
        parts.append(_dcgm_expression(exported.dcgm, matchers, uuids, apply, exported))
    if exported.nvidia_gpu is not None:
        series = selector("nvidia_gpu", exported.nvidia_gpu, matchers, uuids, apply)
        parts.append(_scaled(by_uuid("nvidia_gpu", series), exported.unit_size))
    return first_known(parts)


def count_expression(key: str, matchers: Sequence[str], uuids: Collection[str], seconds: float) -> str:
    """Return PromQL for the number of samples of a metric in the seconds before each point, whose series have
    the label ``uuid`` alone. Raises KeyError if the metric is not exported.

    As in the server's own history, a sample whose value is unknown counts.
    """
    exported = _exported(key)
    names: tuple[tuple[Exporter, str | None], ...] = (
        ("gpuwidget", exported.name),
        ("dcgm", exported.dcgm),
        ("nvidia_gpu", exported.nvidia_gpu),
    )
    count = Over("count_over_time", seconds)
    return first_known(
        [
            by_uuid(exporter, selector(exporter, name, matchers, uuids, count))
            for exporter, name in names
            if name is not None
        ]
    )


def memory_total_expression(matchers: Sequence[str], uuids: Collection[str] | None = None) -> str:
    """Return PromQL for the memory of each GPU in bytes, with what the driver reserves.

    dcgm-exporter exports the total only if it is configured to. By default it exports the three parts.
    """

    def dcgm(part: str) -> str:
        return _dcgm_expression(f"DCGM_FI_DEV_FB_{part}", matchers, uuids, None, _exported("memory_used"))

    parts = f"({' + on (uuid) '.join(map(dcgm, ('USED', 'FREE', 'RESERVED')))})"
    return first_known(
        [
            by_uuid("gpuwidget", selector("gpuwidget", "gpuwidget_gpu_memory_total_bytes", matchers, uuids)),
            dcgm("TOTAL"),
            parts,
            by_uuid("nvidia_gpu", selector("nvidia_gpu", "nvidia_smi_memory_total_bytes", matchers, uuids)),
        ]
    )


def selector(
    exporter: Exporter,
    name: str,
    matchers: Sequence[str],
    uuids: Collection[str] | None = None,
    apply: Apply | None = None,
) -> str:
    """Return PromQL for the series with this name, of these GPUs only if ``uuids`` is given.

    GPUs of a recording that a Jupyter server plays are excluded, because they don't exist. With
    :class:`Over`, a server that played one at any time in the window is excluded.
    """
    names = [name, *([_SLICE_NAMES[name]] if name in _SLICE_NAMES else [])]
    inside = [f'__name__=~"{"|".join(names)}"' if len(names) > 1 else f'__name__="{name}"', *matchers]
    if uuids is not None:
        label, known = _uuid_label(exporter, uuids)
        inside.append(f"{label}=~{_one_of(known)}")
    series = f"{{{','.join(inside)}}}"
    if apply is not None:
        series = apply(series)
    if exporter == "gpuwidget":
        playing = recordings(matchers)
        if isinstance(apply, Over):
            # At the end of the window, the server may have ended.
            playing = replace(apply, function="last_over_time")(playing)
        series = f"({series} unless on (job, instance) {playing})"
    return series


def recordings(matchers: Sequence[str]) -> str:
    """Return the selector of the Jupyter servers that play a recording."""
    inside = ",".join(('source!="nvml"', *matchers))
    return f"gpuwidget_build_info{{{inside}}}"


def by_uuid(exporter: Exporter, vector: str) -> str:
    """Return PromQL for the maximum of ``vector`` for each GPU, with the label ``uuid`` alone.

    A GPU has several equal series if several servers or, in dcgm-exporter, several pods or jobs use it.
    """
    return f"max by (uuid) ({with_uuid(exporter, vector)})"


def with_uuid(exporter: Exporter, vector: str) -> str:
    """Return PromQL for ``vector`` with the label ``uuid`` added to its labels."""
    if exporter == "gpuwidget":
        return f'label_replace({vector}, "uuid", "$1", "UUID", "(.+)")'
    if exporter == "dcgm":
        joined = f'label_join({vector}, "uuid", "/", "UUID", "GPU_I_ID")'
        return f'label_replace({joined}, "uuid", "$1", "uuid", "(.+?)/?")'
    # nvidia_gpu_exporter removes the prefix of UUIDs.
    joined = f'label_join({vector}, "uuid", "/", "uuid", "gpu_instance_id")'
    return f'label_replace({joined}, "uuid", "GPU-$1", "uuid", "(.+?)/?")'


def first_known(vectors: Sequence[str]) -> str:
    """Return PromQL for the first of ``vectors`` that has a value for each ``uuid``."""
    return " or on (uuid) ".join(vectors)


def _exported(key: str) -> Exported:
    for metric in METRICS:
        if metric.key == key and metric.exported is not None:
            return metric.exported
    raise KeyError(key)


def _dcgm_expression(
    name: str, matchers: Sequence[str], uuids: Collection[str] | None, apply: Apply | None, exported: Exported
) -> str:
    """Return PromQL for a series of dcgm-exporter without DCGM's blank values.

    If one sample in the window of an :class:`Over` is blank, the value of the window is unknown. No function
    can leave a sample out. Only a subquery could, which would make every query much slower, because it
    evaluates the series once for each scrape. Newer versions of dcgm-exporter export no blank values.
    """
    blank = f"{_COUNTER_BLANK if exported.counter else DCGM_BLANK:.15g}"
    values = selector("dcgm", name, matchers, uuids, apply)
    if isinstance(apply, Over) and apply.function != "max_over_time":
        largest = selector("dcgm", name, matchers, uuids, replace(apply, function="max_over_time"))
        values = f"{values} and {largest}"
    return _scaled(by_uuid("dcgm", f"{values} < {blank}"), exported.dcgm_unit_size)


def _scaled(vector: str, factor: float) -> str:
    return vector if factor == 1 else f"{vector} * {factor:.15g}"


def _uuid_label(exporter: Exporter, uuids: Collection[str]) -> tuple[str, list[str]]:
    """Return the exporter's label with the UUID, and its values for these GPUs."""
    if exporter == "gpuwidget":
        return "UUID", list(uuids)
    gpus = dict.fromkeys(uuid.partition("/")[0] for uuid in uuids)
    if exporter == "dcgm":
        return "UUID", list(gpus)
    return "uuid", [uuid.removeprefix("GPU-") for uuid in gpus]


def _one_of(values: Collection[str]) -> str:
    """Return a PromQL string with a regular expression that matches exactly these values."""
    pattern = "|".join(
        re.sub(r"[^A-Za-z0-9_/-]", lambda found: _escaped(found[0]), value) for value in values
    )
    return f'"{pattern}"'


def _escaped(character: str) -> str:
    """Return a character as a code point in a regular expression, which no string ends or continues at."""
    return f"\\\\x{{{ord(character):x}}}"
