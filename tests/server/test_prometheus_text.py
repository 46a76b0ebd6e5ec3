"""The text that Prometheus scrapes has exact names, labels and values, and no series for unknown values."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import EPOCH, FakeClock
from helpers_nvml import Machine
from helpers_samples import GIB, LIVE, h200, reading, sample
from nvml_standin import profiles
from prometheus_client.parser import text_string_to_metric_families

import gpuwidget
from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import Origin, Sample
from gpuwidget.sampler import Sampler
from gpuwidget.server import prometheus
from gpuwidget.server.prometheus import KernelLabels
from gpuwidget.server.wire import GpuMemoryOwnership, MemoryHolder, MemoryOwnership, ServerKernel
from gpuwidget.sources.nvml import NvmlSource

GOLDEN = Path(__file__).parent / "data" / "metrics.txt"
ZERO, ONE = h200(0), h200(1)
SLICE = h200(1, uuid="MIG-11111111", mig_index=0, mig_parent=ONE.uuid, memory_total=18 * GIB)
NOTEBOOK = ServerKernel(
    "k-1", "python3", "idle", EPOCH - 3600, "s-1", "notebook", "work/a.ipynb", "a.ipynb", None, None
)
CONSOLE = ServerKernel("k-2", "python3", "busy", None, "s-2", "console", None, "Console 1", None, None)
HOLDS_NOTHING = ServerKernel(
    "k-3", "python3", "idle", EPOCH, "s-3", "notebook", "secret.ipynb", "secret.ipynb", None, None
)
WINDOW = Activity(
    since=EPOCH - 1,
    until=EPOCH,
    graphics=100.0,
    sm=80.0,
    sm_occupancy=25.0,
    tensor=50.0,
    dram=30.0,
    fp64=None,
    fp32=None,
    fp16=None,
    pcie_tx=None,
    pcie_rx=None,
    nvlink_tx=None,
    nvlink_rx=None,
)


def fake_id(path: str) -> str:
    """Return a fixed id for the path of a notebook."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:12]


NAMES = KernelLabels(fake_id, "anna", names=True)
NO_NAMES = replace(NAMES, names=False)


def metrics_text(of: Sample, ownership: MemoryOwnership | None, labels: KernelLabels = NO_NAMES) -> bytes:
    """Return the metrics, by default without the notebooks' names."""
    return prometheus.metrics_text(of, ownership, labels)


def holding(memory: int | None, *, kernel: str | None = None, terminal: str | None = None) -> MemoryHolder:
    """Return a holder whose memory was reported by the driver: by default, another process."""
    pid = 4711 if kernel is None and terminal is None else None
    return MemoryHolder(kernel, terminal, pid, None, None, memory, "driver", other_users=False)


OTHER_USERS = MemoryHolder(None, None, None, None, None, 5 * GIB, "driver", other_users=True)


def usage(
    *gpus: GpuMemoryOwnership, kernels: tuple[ServerKernel, ...] = (NOTEBOOK, CONSOLE, HOLDS_NOTHING)
) -> MemoryOwnership:
    """Return the memory ownership of these GPUs."""
    return MemoryOwnership("usage", EPOCH, kernels, gpus, None)


def series(text: bytes, name: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels (without the GPU's ``UUID`` and ``model``)
    and the value of each series of one metric."""
    return [
        ({key: value for key, value in one.labels.items() if key not in ("UUID", "model")}, one.value)
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
        if one.name == name
    ]


def names(text: bytes) -> set[str]:
    """Return the names of the metrics in a text."""
    return set(re.findall(r"^(\w+)[{ ]", text.decode(), re.MULTILINE))


def whole() -> bytes:
    """Return the text of the metrics of a machine on which every metric has a value."""
    return metrics_text(
        sample(
            (ZERO, reading(ZERO, throttle=("power cap",), xid=79, xid_time=EPOCH - 30, activity=WINDOW)),
            (ONE, reading(ONE, ecc_uncorrected=2)),
            (
                SLICE,
                reading(SLICE, utilization=None, power_w=None, missing={"utilization": "not for slices"}),
            ),
        ),
        usage(
            GpuMemoryOwnership(
                ZERO.uuid,
                (holding(20 * GIB, kernel="k-1"), holding(GIB, terminal="1"), holding(2 * GIB), holding(GIB)),
                36 * GIB,
                None,
                (),
            ),
            GpuMemoryOwnership(ONE.uuid, (holding(GIB, kernel="k-1"),), 59 * GIB, None, ()),
            GpuMemoryOwnership(
                SLICE.uuid,
                (MemoryHolder("k-2", None, None, None, None, GIB, "torch", other_users=False),),
                59 * GIB,
                "…",
                (),
            ),
        ),
    )


def test_holders_from_an_older_reading() -> None:
    """While the holders on a GPU are from an older reading than its memory in use, their memory is left out,
    and that of holders on other GPUs is not."""
    held = (holding(GIB, kernel="k-1"), holding(2 * GIB))
    text = metrics_text(
        sample((ZERO, reading(ZERO)), (ONE, reading(ONE))),
        usage(
            GpuMemoryOwnership(ZERO.uuid, held, None, None, (), 60 * GIB, older=True),
            GpuMemoryOwnership(ONE.uuid, held, 0, None, (), 3 * GIB),
        ),
    )
    one = {"gpu": "1", "mig": ""}
    assert series(text, "gpuwidget_kernel_memory_bytes") == [
        ({**one, "kernel": "k-1", "source": "driver"}, GIB)
    ]
    assert series(text, "gpuwidget_gpu_memory_other_bytes") == [
        ({**one, "holder": "process"}, 2 * GIB),
        ({**one, "holder": "unattributed"}, 0),
    ]


def test_the_exact_text() -> None:
    """The names, labels, types and values of the metrics are exactly those in ``data/metrics.txt``."""
    assert whole().decode() == GOLDEN.read_text(encoding="utf-8").replace("VERSION", gpuwidget.__version__)


def test_user_text_is_escaped() -> None:
    """In the metrics, a notebook's name is escaped.
    Quotes, backslashes, line breaks and invalid characters do not end the label."""
    nasty = 'a "b"\\c\nd{}=,\udcff é.ipynb'
    kernel = replace(NOTEBOOK, path=nasty, name=nasty)
    text = metrics_text(
        sample((ZERO, reading(ZERO))),
        usage(GpuMemoryOwnership(ZERO.uuid, (holding(GIB, kernel="k-1"),), 0, None, ()), kernels=(kernel,)),
        NAMES,
    )
    assert r'name="a \"b\"\\c\nd{}=,? é.ipynb"' in text.decode()
    ((labels, value),) = series(text, "gpuwidget_kernel_info")
    assert (labels["path"], value) == ('a "b"\\c\nd{}=,? é.ipynb', 1.0)


def test_unknown_values_have_no_series() -> None:
    """Unknown values have no series, neither 0 nor NaN; a GPU without readings has only its info series."""
    nothing = dict.fromkeys(
        (*("answered", "measured", "throttle", "processes"), *keys("fast"), *keys("status"), *keys("slow"))
    )
    blind = h200(0, memory_total=None, memory_reserved=None)
    text = metrics_text(sample((blind, reading(blind, **nothing))), None)
    assert names(text) == {
        "gpuwidget_build_info",
        "gpuwidget_gpus",
        "gpuwidget_sample_timestamp_seconds",
        "gpuwidget_gpu_info",
    }
    text = metrics_text(sample((ZERO, reading(ZERO, power_w=float("nan"), temperature_c=float("inf")))), None)
    assert "NaN" not in text.decode()
    assert "Inf" not in text.decode()
    assert names(text) & {"gpuwidget_gpu_power_watts", "gpuwidget_gpu_temperature_celsius"} == set()


@pytest.mark.parametrize("state", ["lost_since", "silent_since"])
def test_a_gpu_that_does_not_respond_is_not_up(state: str) -> None:
    """A GPU that is lost or does not respond is still reported,
    with ``gpuwidget_gpu_up`` 0 and the time of its last response."""
    text = metrics_text(
        sample((ZERO, reading(ZERO)), (ONE, reading(ONE, **{state: EPOCH, "answered": EPOCH - 60}))), None
    )
    assert series(text, "gpuwidget_gpu_up") == [
        ({"gpu": "0", "mig": ""}, 1.0),
        ({"gpu": "1", "mig": ""}, 0.0),
    ]
    assert series(text, "gpuwidget_gpu_answer_timestamp_seconds")[1][1] == EPOCH - 60


def test_no_gpu() -> None:
    """On a machine without a GPU, the scrape reports zero GPUs."""
    text = metrics_text(sample(origin=replace(LIVE, kind="none", driver=None, cuda_driver=None)), usage())
    ((labels, _),) = series(text, "gpuwidget_build_info")
    assert labels == {"version": gpuwidget.__version__, "source": "none", "driver": "", "cuda_driver": ""}
    assert series(text, "gpuwidget_gpus") == [({}, 0.0)]
    assert names(text) == {"gpuwidget_build_info", "gpuwidget_gpus", "gpuwidget_sample_timestamp_seconds"}


def test_a_recording_is_labelled() -> None:
    """If the GPUs come from a recording, the build info has the label ``source="replay"``."""
    origin = Origin("replay", None, "Recording of NVIDIA H200", "580.1", "13.0")
    text = metrics_text(sample((ZERO, reading(ZERO)), origin=origin), None)
    assert series(text, "gpuwidget_build_info")[0][0]["source"] == "replay"


def test_unknown_memory_is_not_summed() -> None:
    """If the memory of one process is unknown, the sum that would include this process has no series."""
    text = metrics_text(
        sample((ZERO, reading(ZERO))),
        usage(
            GpuMemoryOwnership(
                ZERO.uuid,
                (holding(None, kernel="k-1"), holding(None), holding(GIB), holding(GIB, terminal="1")),
                None,
                "The driver does not report how much each process holds.",
                (),
            )
        ),
    )
    assert series(text, "gpuwidget_kernel_memory_bytes") == []
    assert series(text, "gpuwidget_gpu_memory_other_bytes") == [
        ({"gpu": "0", "mig": "", "holder": "terminal"}, GIB)
    ]


def test_the_memory_of_other_users_is_separate() -> None:
    """If the server hides the processes of other users, the sum of their memory has the label
    ``other_users`` and is not part of that of the server user's own processes."""
    text = metrics_text(
        sample((ZERO, reading(ZERO))),
        usage(GpuMemoryOwnership(ZERO.uuid, (OTHER_USERS, holding(2 * GIB)), 0, None, ())),
    )
    assert [
        (labels["holder"], value) for labels, value in series(text, "gpuwidget_gpu_memory_other_bytes")
    ] == [("process", 2.0 * GIB), ("other_users", 5.0 * GIB), ("unattributed", 0.0)]


def test_notebooks_are_known_by_their_ids() -> None:
    """Without the administrator's permission, the metrics have a notebook's id instead of its name and path;
    a console has neither."""
    assert series(whole(), "gpuwidget_kernel_info") == [
        (
            {"kernel": "k-1", "notebook": fake_id("work/a.ipynb"), "user": "anna", "path": "", "name": ""}
            | {"kind": "notebook", "spec": "python3"},
            1.0,
        ),
        (
            {"kernel": "k-2", "notebook": "", "user": "anna", "path": "", "name": ""}
            | {"kind": "console", "spec": "python3"},
            1.0,
        ),
    ]


def test_kernels_without_gpu_memory_are_not_named() -> None:
    """The names of kernels without GPU memory do not appear in the metrics."""
    assert b"secret" not in whole()


def test_an_unknown_throttle_reason() -> None:
    """If gpuwidget has no name for a throttle reason, the reason is labeled with its number."""
    text = metrics_text(sample((ZERO, reading(ZERO, throttle=("reason 0x800",)))), None)
    on = [labels["reason"] for labels, value in series(text, "gpuwidget_gpu_throttle_reason") if value]
    assert on == ["reason 0x800"]
    assert len(series(text, "gpuwidget_gpu_throttle_reason")) == 12


def test_ownership_of_a_removed_gpu() -> None:
    """If a GPU is no longer in the sample, its memory ownership is left out of the metrics."""
    text = metrics_text(
        sample((ZERO, reading(ZERO))),
        usage(GpuMemoryOwnership(ONE.uuid, (holding(GIB, kernel="k-1"),), 0, None, ())),
    )
    assert not names(text) & {"gpuwidget_kernel_memory_bytes", "gpuwidget_kernel_info"}


def test_memory_in_a_slice_counts_once() -> None:
    """If the driver lists a process both on a MIG slice and on that slice's GPU,
    a sum over all series counts the process's memory once."""
    held = (holding(GIB, kernel="k-1"), holding(2 * GIB))
    text = metrics_text(
        sample((ONE, reading(ONE)), (SLICE, reading(SLICE))),
        usage(
            GpuMemoryOwnership(ONE.uuid, held, 5 * GIB, None, ()),
            GpuMemoryOwnership(SLICE.uuid, held, 0, None, ()),
        ),
    )
    assert series(text, "gpuwidget_kernel_memory_bytes") == [
        ({"gpu": "1", "mig": "0", "kernel": "k-1", "source": "driver"}, GIB)
    ]
    assert series(text, "gpuwidget_gpu_memory_other_bytes") == [
        ({"gpu": "1", "mig": "0", "holder": "process"}, 2 * GIB),
        ({"gpu": "1", "mig": "0", "holder": "unattributed"}, 0.0),
    ]


def test_each_model_has_series_for_what_it_reports(machine: Machine) -> None:
    """On a machine with different GPUs, a metric has series only for the GPUs that report its value."""
    models = ("RTX 3090", "RTX 4090", "V100", "A100", "H100")
    machine.set_scenario(*profiles.machine(*models))
    clock = FakeClock()
    sampler = Sampler(NvmlSource(clock), clock)
    samples: list[Sample] = []
    with sampler.subscribe(samples.append, activity=True):
        clock.until(lambda: bool(samples) and samples[-1].readings[-1].activity is not None, step=0.02)
    sampler.stop()
    reported: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics_text(samples[-1], None).decode()):
        reported[family.name] = {
            models[int(one.labels["gpu"])] for one in family.samples if "gpu" in one.labels
        }
    assert reported["gpuwidget_gpu_power_watts"] == set(models)
    assert reported["gpuwidget_gpu_memory_temperature_celsius"] == {"V100", "A100", "H100"}
    assert reported["gpuwidget_gpu_ecc_uncorrected_errors"] == {"V100", "A100", "H100"}
    assert reported["gpuwidget_gpu_fan_speed_ratio"] == {"RTX 3090", "RTX 4090"}
    counters = {name for name in reported if name.endswith(("_active_ratio", "_occupancy_ratio"))}
    assert len(counters) == 5
    assert all(reported[name] == {"H100"} for name in counters)


def test_a_gpu_that_is_lost_at_the_start_has_series(machine: Machine) -> None:
    """A GPU that can't be opened when the server starts counts in gpuwidget_gpus, and its gpuwidget_gpu_up is
    0, so that the alert GpuLost fires. Both are right again when the GPU comes back."""
    machine.set_scenario("gpus=2", "gpu.1.*=error 15")
    clock = FakeClock()
    sampler = Sampler(NvmlSource(clock), clock)
    samples: list[Sample] = []

    def state() -> tuple[list[float], list[tuple[str, float]]]:
        text = metrics_text(samples[-1], None).decode()
        found = {family.name: family.samples for family in text_string_to_metric_families(text)}
        up = [(one.labels["gpu"], one.value) for one in found["gpuwidget_gpu_up"]]
        return [one.value for one in found["gpuwidget_gpus"]], up

    with sampler.subscribe(samples.append):
        clock.until(lambda: bool(samples))
        assert state() == ([2], [("0", 1), ("1", 0)])
        machine.set_scenario("gpus=2")
        clock.until(lambda: state() == ([2], [("0", 1), ("1", 1)]), step=0.2)
    sampler.stop()
