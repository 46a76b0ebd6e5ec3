"""Tests of which GPU each cuda:N is, how certain that is, and what the user is told about it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import gpu
from helpers_torch import FakeTorch, make_torch

from gpuwidget.measure import device_order
from gpuwidget.measure.device_order import CudaOrder, environment_order, find_order, unlike_expected
from gpuwidget.model.messages import MessageId
from gpuwidget.model.samples import Gpu
from gpuwidget.pytorch import cuda_driver

pytestmark = pytest.mark.usefixtures("no_torch")

GPUS = tuple(gpu(index) for index in range(3))
UUIDS = tuple(one.uuid for one in GPUS)
RTX_3090 = replace(GPUS[0], name="NVIDIA GeForce RTX 3090")
RTX_4090 = replace(GPUS[1], name="NVIDIA GeForce RTX 4090")
MIXED = (RTX_3090, RTX_4090)
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def use_torch(monkeypatch: pytest.MonkeyPatch, *uuids: str | None) -> None:
    """Let torch's CUDA be initialized, with the GPUs that have these NVML UUIDs as its devices."""
    fake: Any = FakeTorch(devices=len(uuids))
    of_torch = [None if uuid is None else uuid.removeprefix("GPU-") for uuid in uuids]
    fake.cuda.get_device_properties = lambda index: SimpleNamespace(uuid=of_torch[index])
    monkeypatch.setitem(sys.modules, "torch", fake)


def notes(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[str]:
    """Return the texts of the notes about the order."""
    return [*find_order(gpus, environment).notes]


# -- before CUDA starts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "places"),
    [
        ("2,0", [2, 0]),
        ("1", [1]),
        ("0,9,1", [0]),
        ("", []),
        (f"{UUIDS[1]},GPU-00000000", [1, 0]),
        ("0,0", []),
    ],
)
def test_cuda_visible_devices_limits_and_reorders(visible: str, places: list[int]) -> None:
    """Before CUDA is initialized, cuda:N is the GPU in entry N of CUDA_VISIBLE_DEVICES.

    The first invalid entry and all entries after it are ignored. If an entry is repeated, CUDA shows no
    device.
    """
    order = environment_order(GPUS, {"CUDA_VISIBLE_DEVICES": visible})
    assert order == tuple(UUIDS[place] for place in places)


def test_the_order_of_equal_gpus_is_that_of_the_pci_bus() -> None:
    """If all GPUs are the same model, cuda:N is the GPU with the N-th lowest PCI bus id."""
    assert find_order(GPUS, {}) == CudaOrder(UUIDS, "environment")
    assert environment_order(tuple(reversed(GPUS)), {}) == UUIDS


def test_the_order_of_different_gpus_is_not_guessed() -> None:
    """If the GPUs differ, it is unknown which GPU cuda:N is, and the note says why and what makes it certain.

    The number of devices is known. GPUs of one model with different memory count as different.
    """
    assert find_order(MIXED, {}) == CudaOrder((None, None), None, (device_order.ORDER_UNKNOWN,))
    assert environment_order(MIXED, {"CUDA_VISIBLE_DEVICES": "1"}) == (None,)
    assert environment_order((GPUS[0], replace(GPUS[1], memory_total=1)), {}) == (None, None)
    assert len(notes(MIXED, {})) == 1


def test_what_makes_the_order_of_different_gpus_certain() -> None:
    """With CUDA_DEVICE_ORDER=PCI_BUS_ID, or with UUIDs in CUDA_VISIBLE_DEVICES, the order is certain."""
    assert find_order(MIXED, BY_BUS) == CudaOrder(UUIDS[:2], "environment")
    assert environment_order(MIXED, {**BY_BUS, "CUDA_VISIBLE_DEVICES": "1,0"}) == (UUIDS[1], UUIDS[0])
    named = {"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},{UUIDS[0]}"}
    assert environment_order(MIXED, named) == (UUIDS[1], UUIDS[0])
    assert environment_order(MIXED, {"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},0"}) == (None, None)


def test_the_mig_slice_that_cuda_uses_is_unknown() -> None:
    """If a GPU is in MIG mode, the device behind cuda:0 is known only if CUDA_VISIBLE_DEVICES lists MIG
    slices."""
    piece = replace(GPUS[0], uuid="MIG-1", mig_index=1, mig_parent=UUIDS[0])
    machine = (GPUS[0], piece, GPUS[1])
    assert find_order(machine, {}) == CudaOrder(None, None, (device_order.SLICE_UNKNOWN,))
    assert environment_order(machine, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert environment_order(machine, {"CUDA_VISIBLE_DEVICES": "MIG-1"}) == ("MIG-1",)


def test_mig_slices_have_no_number_to_compare() -> None:
    """There is no note about the numbers of MIG slices, of which a GPU may have several."""
    slices = tuple(
        replace(GPUS[1], uuid=f"MIG-{index}", mig_index=index, mig_parent=UUIDS[1]) for index in range(2)
    )
    order = find_order((*GPUS, *slices), {"CUDA_VISIBLE_DEVICES": "MIG-0,MIG-1"})
    assert order == CudaOrder(("MIG-0", "MIG-1"), "environment")


# -- once CUDA has started -------------------------------------------------------------------------------


def test_torch_decides_once_it_has_initialized_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once torch has initialized CUDA, the order is what torch reports, and the GPUs are joined by UUID."""
    use_torch(monkeypatch, UUIDS[1], UUIDS[0])
    order = find_order(MIXED, {})
    assert (order.uuids, order.source) == ((UUIDS[1], UUIDS[0]), "cuda")


def test_the_driver_decides_before_torch_has_initialized_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After torch.cuda.is_available(), which initializes the driver, the order is the driver's, whatever the
    environment contains by then."""
    monkeypatch.setattr(cuda_driver, "_loaded_library", lambda: Driver(1, 0))
    monkeypatch.setattr(cuda_driver, "_uuids", None)
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    order = find_order(MIXED, BY_BUS)
    assert (order.uuids, order.source) == ((UUIDS[1], UUIDS[0]), "cuda")


def test_a_driver_that_is_not_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver's library is loaded but not initialized, the environment decides, until it is."""
    driver = Driver(1, 0)
    driver.code = 3  # CUDA_ERROR_NOT_INITIALIZED
    monkeypatch.setattr(cuda_driver, "_loaded_library", lambda: driver)
    monkeypatch.setattr(cuda_driver, "_uuids", None)
    assert find_order(MIXED, BY_BUS).source == "environment"
    driver.code = 0
    assert find_order(MIXED, BY_BUS).source == "cuda"


def test_a_torch_without_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a torch that does not report UUIDs, the driver's are used. Without them, the order is unknown,
    even if all GPUs are the same model."""
    use_torch(monkeypatch, None, None)
    monkeypatch.setattr(cuda_driver, "_loaded_library", lambda: Driver(1, 0))
    monkeypatch.setattr(cuda_driver, "_uuids", None)
    assert find_order(MIXED, {}).uuids == (UUIDS[1], UUIDS[0])
    use_torch(monkeypatch, None, None)
    monkeypatch.setattr(cuda_driver, "_loaded_library", lambda: None)
    monkeypatch.setattr(cuda_driver, "_uuids", None)
    assert find_order(GPUS, {}) == CudaOrder((None, None), None, (device_order.UUIDS_UNKNOWN,))


class Driver:
    """The CUDA driver's library, with the given places of :data:`GPUS` as its devices."""

    def __init__(self, *places: int) -> None:
        self._places = places
        self.code = 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self._places)
        return self.code

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = self._places[index]
        return self.code

    def cuDeviceGetUuid(self, raw: Any, device: ctypes.c_int) -> int:
        raw.raw = bytes.fromhex(UUIDS[device.value][4:].replace("-", ""))
        return self.code


# -- notes about the numbers -----------------------------------------------------------------------------


def test_numbers_that_agree_need_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every cuda:N is nvidia-smi's GPU N, there is no note."""
    assert notes(GPUS, {}) == notes(MIXED, BY_BUS) == []
    use_torch(monkeypatch, *UUIDS[:2])
    assert notes(MIXED, {}) == []


@pytest.mark.parametrize(
    ("environment", "visible", "by_speed"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, "1", True),
        ({**BY_BUS, "CUDA_VISIBLE_DEVICES": "1,0"}, "1,0", False),
        ({}, None, True),
        (BY_BUS, None, False),
    ],
)
def test_numbers_that_differ(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], visible: str | None, by_speed: bool
) -> None:
    """If cuda:0 is not nvidia-smi's GPU 0, a note says why."""
    use_torch(monkeypatch, UUIDS[1], UUIDS[0])
    (note,) = find_order(MIXED, environment).notes
    assert note.message_id == MessageId(
        "device-numbers-differ", {"device": "cuda:0", "gpu": 1, "visible": visible, "by_speed": by_speed}
    )


def test_an_order_unlike_the_expected_one() -> None:
    """If CUDA's order is not the one that the environment led to expect, a note names both GPUs."""
    expected, reported = CudaOrder(UUIDS[:2], "environment"), CudaOrder((UUIDS[1], UUIDS[0]), "cuda")
    (note,) = unlike_expected(reported, expected, MIXED).notes
    assert note.message_id == MessageId(
        "device-order-unlike-expected", {"device": "cuda:0", "gpu": 1, "expected": 0}
    )
    assert "GeForce RTX 4090" in note
    assert "GeForce RTX 3090" in note
    for order, before in ((expected, expected), (reported, None), (reported, reported)):
        assert unlike_expected(order, before, MIXED).notes == ()
