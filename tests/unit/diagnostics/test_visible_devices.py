"""Tests of parsing CUDA_VISIBLE_DEVICES, of choosing a torch build for a driver, and of parsing and
formatting versions."""

from __future__ import annotations

import pytest

from gpuwidget.diagnostics import cuda_versions
from gpuwidget.diagnostics.checks_visible_devices import (
    NameableDevices,
    RejectedEntry,
    VisibleDevices,
    parse_visible_devices,
    rejected_issue,
)
from gpuwidget.diagnostics.cuda_versions import format_cuda_version, format_cudnn_version, version_tuple
from gpuwidget.diagnostics.messages_gpu import Rejection

GPUS = ("GPU-aa00", "GPU-aa11", "GPU-bb22")
SLICES = ("MIG-cc00", "MIG-dd11")
KNOWN = NameableDevices(GPUS, SLICES)


TWICE = "the same GPU is listed twice"


@pytest.mark.parametrize(
    ("value", "named", "rejected", "why"),
    [
        ("0", ("0",), None, None),
        (" 2, 0 ", ("2", "0"), None, None),
        ("GPU-bb,MIG-c", ("GPU-bb", "MIG-c"), None, None),
        ("1gpu,0", ("1gpu", "0"), None, None),
        ("MIG-GPU-aa00/1/0,MIG-GPU-aa00/2/0", ("MIG-GPU-aa00/1/0", "MIG-GPU-aa00/2/0"), None, None),
        (
            "MIG-GPU-zz/1/0",
            (),
            ("MIG-GPU-zz/1/0", "no-slice-matches", 0),
            "no MIG slice of this machine has a UUID that begins with this text",
        ),
        ("0,3", ("0",), ("3", "out-of-range", 3), "there are 3 GPUs, numbered from 0"),
        ("0,2,-1,1", ("0", "2"), ("-1", "negative", 0), "a negative number ends the list"),
        ("-1", (), ("-1", "negative", 0), "a negative number ends the list"),
        ("0,,1", ("0",), ("", "empty", 0), "the entry is empty"),
        ("0,1,", ("0", "1"), None, None),
        (",", (), ("", "empty", 0), "the entry is empty"),
        ("GPU-aa", (), ("GPU-aa", "several-gpus-match", 2), "the UUIDs of 2 GPUs begin with this text"),
        ("MIG-", (), ("MIG-", "several-slices-match", 2), "the UUIDs of 2 MIG slices begin with this text"),
        (
            "GPU-zz",
            (),
            ("GPU-zz", "no-gpu-matches", 0),
            "no GPU of this machine has a UUID that begins with this text",
        ),
        (
            "MIG-ff",
            (),
            ("MIG-ff", "no-slice-matches", 0),
            "no MIG slice of this machine has a UUID that begins with this text",
        ),
        ("0,1,0", (), ("0", "duplicate", 2), TWICE),
        ("0,GPU-aa00", (), ("GPU-aa00", "duplicate", 2), TWICE),
        (
            "NoDevFiles",
            (),
            ("NoDevFiles", "slurm", 0),
            "Slurm sets this value for a job that requested no GPU",
        ),
        (
            "cuda:0",
            (),
            ("cuda:0", "unknown-format", 0),
            "the entry is neither a number nor a UUID that begins with GPU- or MIG-",
        ),
    ],
)
def test_entries_up_to_the_first_invalid_one(
    value: str, named: tuple[str, ...], rejected: tuple[str, Rejection, int] | None, why: str | None
) -> None:
    """CUDA_VISIBLE_DEVICES is parsed from left to right up to the first invalid entry. That entry is returned
    with the reason why it is invalid. If an entry is repeated, no GPU is visible."""
    entry = None if rejected is None else RejectedEntry(*rejected)
    assert parse_visible_devices(value, KNOWN) == VisibleDevices(named, entry)
    if entry is not None:
        reason = rejected_issue(value, entry, hides_all=True).reason
        assert f", but CUDA rejects the entry {entry.entry!r}: {why}. This hides every GPU." in reason


@pytest.mark.parametrize(
    ("driver", "cuda", "old"),
    [
        ("580.95.05", "13.1", False),
        ("579.99", "13.0", True),
        ("580.65.06", "13.0", False),
        ("525.60.13", "12.9", False),
        ("524.0", "12.0", True),
        ("450.80.02", "11.8", False),
        ("449.99", "11.0", True),
        ("440.33.01", "10.2", False),
        ("418.40", "10.2", True),
        ("418.39", "10.1", False),
        ("418.38", "10.1", True),
        ("410.48", "10.0", False),
        ("410.47", "10.0", True),
        ("384.81", "9.0", False),
        ("615.71", "14.0", False),
        ("unknown", "13.0", False),
    ],
)
def test_the_table_of_drivers(driver: str, cuda: str, old: bool) -> None:
    """A driver is too old if its version is below NVIDIA's minimum for the CUDA version. If the minimum or
    the driver's version is unknown, the driver does not count as too old."""
    assert cuda_versions.driver_too_old(driver, cuda) is old


@pytest.mark.parametrize(
    ("driver", "capabilities", "wheel"),
    [
        ("580.95.05", ["9.0"], "cu130"),
        ("580.95.05", ["7.5"], "cu130"),
        ("580.95.05", ["7.0"], "cu126"),
        ("580.95.05", ["6.1"], "cu126"),
        ("580.95.05", ["7.0", "8.0"], "cu126"),
        ("580.95.05", ["7.0", "12.0"], "cu130"),
        ("570.86", ["10.0"], "cu128"),
        ("570.86", ["7.0", "12.0"], "cu128"),
        ("570.86", ["9.0"], "cu126"),
        ("535.183.01", ["8.9"], "cu126"),
        ("525.60.13", ["6.1"], "cu126"),
        ("524.0", ["8.0"], "cu118"),
        ("450.80.02", ["7.0"], "cu118"),
        ("515.65.01", ["12.0"], None),
        ("440.33", ["8.0"], None),
        ("580.95.05", ["3.7"], None),
        ("470.256.02", ["3.7"], None),
        ("570.86", ["13.0"], None),
        ("570.86", [], "cu126"),
        ("580.95.05", ["3.5", "8.9"], "cu130"),
        (None, ["7.0"], "cu126"),
        (None, [], "cu130"),
    ],
)
def test_the_build_for_a_driver_and_its_gpus(
    driver: str | None, capabilities: list[str], wheel: str | None
) -> None:
    """`torch_wheel()` returns a build that the driver supports and that contains code for all GPUs. If there
    is no such build, code for the newest GPU is sufficient. If there is no build for the newest GPU either,
    the result is None."""
    assert cuda_versions.torch_wheel(driver, capabilities) == wheel


@pytest.mark.parametrize(
    ("driver", "capabilities", "wheel"),
    [
        ("580.95.05", ["9.0"], "cu130"),
        ("580.95.05", ["11.0"], "cu130"),
        ("580.95.05", ["7.5"], None),
        ("570.86", ["10.0"], "cu128"),
        ("535.183.01", ["9.0"], "cu126"),
        ("520.61.05", ["8.0"], None),
    ],
)
def test_the_build_for_arm(driver: str, capabilities: list[str], wheel: str | None) -> None:
    """On ARM, `torch_wheel()` never returns a build for CUDA 11.8 or for GPUs that the ARM builds do not
    support."""
    assert cuda_versions.torch_wheel(driver, capabilities, arm=True) == wheel


def test_the_last_pytorch_of_a_build() -> None:
    """`wheel_last_torch()` returns the last torch version that has the given build, such as cu126, or None if
    new torch versions still have the build."""
    last = {wheel: cuda_versions.wheel_last_torch(wheel) for wheel in ("cu130", "cu126", "cu128", "cu118")}
    assert last == {"cu130": None, "cu126": "2.14", "cu128": "2.11", "cu118": "2.7"}


def test_versions() -> None:
    """Version texts are parsed into tuples, and the version numbers of CUDA and cuDNN are formatted as
    text."""
    assert version_tuple("580.159.04-beta") == (580, 159, 4)
    assert version_tuple("unknown") == ()
    assert [format_cudnn_version(number) for number in (91002, 90100, 8902)] == ["9.10.2", "9.1.0", "8.9.2"]
    assert [format_cuda_version(number) for number in (13000, 12080)] == ["13.0", "12.8"]
