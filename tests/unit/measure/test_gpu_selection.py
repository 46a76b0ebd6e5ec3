"""Tests of which GPUs a selection such as ``--gpu 0`` refers to."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from fakes import gpu
from helpers_torch import FakeTorch

from gpuwidget.measure.gpu_selection import select_gpus
from gpuwidget.model.errors import OptionError

pytestmark = pytest.mark.usefixtures("no_torch")

GPUS = tuple(gpu(index) for index in range(3))
UUIDS = tuple(one.uuid for one in GPUS)


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (["1"], [1]),
        (["2", "0"], [0, 2]),
        ([UUIDS[1]], [1]),
        (["gpu-00000002"], [2]),
        (["cuda:0", "0"], [0]),
    ],
)
def test_a_selection_names_gpus(words: list[str], places: list[int]) -> None:
    """A GPU is selected by its nvidia-smi index, by its UUID or the beginning of its UUID, or as cuda:N.

    A GPU that is selected twice is returned once.
    """
    assert select_gpus(words, GPUS, {}) == tuple(UUIDS[place] for place in places)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("7", f"--gpu 7: no such GPU. There are: 0 ({UUIDS[0]}), 1 ({UUIDS[1]}), 2 ({UUIDS[2]})."),
        ("GPU-", "--gpu GPU-: 3 GPUs match this prefix; give more of the UUID."),
        ("cuda:5", "--gpu cuda:5: no such GPU."),
        ("x", "--gpu x: no such GPU."),
    ],
)
def test_an_unknown_gpu_is_an_error_with_the_gpus_that_exist(word: str, says: str) -> None:
    """A selection that no GPU matches is an error whose message lists the existing GPUs.

    A prefix that several GPUs match is an error too.
    """
    with pytest.raises(OptionError) as raised:
        select_gpus([word], GPUS, {})
    assert str(raised.value).startswith(says)


def test_the_existing_slices_are_listed() -> None:
    """If there is no such MIG slice, the error lists the slices as well as the GPUs."""
    pieces = [replace(GPUS[0], uuid=f"MIG-{n}", mig_index=n, mig_parent=UUIDS[0]) for n in (1, 2)]
    with pytest.raises(OptionError) as raised:
        select_gpus(["0:7"], [GPUS[0], *pieces], {})
    existing = f"0 ({UUIDS[0]}), 0:1 (MIG-1), 0:2 (MIG-2)"
    assert str(raised.value) == f"--gpu 0:7: no such GPU. There are: {existing}."


def test_a_mig_slice_is_selected_by_parent_and_index() -> None:
    """``--gpu 0:1`` selects MIG slice 1 of GPU 0. Cards use the same name for this slice."""
    piece = replace(GPUS[0], uuid="MIG-1", mig_index=1, mig_parent=UUIDS[0])
    assert select_gpus(["0:1"], (GPUS[0], piece, GPUS[1]), {}) == ("MIG-1",)
    assert select_gpus(["0"], (GPUS[0], piece, GPUS[1]), {}) == (UUIDS[0],)


def test_a_selection_without_any_gpu() -> None:
    """On a machine without a GPU, ``--gpu`` is an error with the message that no GPU is visible."""
    with pytest.raises(OptionError, match="--gpu 0: no GPU is visible here"):
        select_gpus(["0"], (), {})


def test_with_cuda_initialized_the_order_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """After CUDA is initialized, cuda:N is torch's device N. Its GPU is found by UUID."""
    fake = FakeTorch(devices=2)
    torch_uuids = [UUIDS[2][4:], UUIDS[0][4:]]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": torch_uuids[index]})
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert select_gpus(["cuda:0"], GPUS, {}) == (UUIDS[2],)
    assert select_gpus(["cuda:1"], GPUS, {}) == (UUIDS[0],)


def test_a_device_whose_gpu_is_unknown() -> None:
    """If the GPUs are of different models, ``--gpu cuda:0`` is an error until CUDA has started.

    The message contains the reason, what makes the order certain, and the alternative.
    """
    mixed = (GPUS[0], replace(GPUS[1], name="NVIDIA A2"))
    with pytest.raises(OptionError, match="Couldn't tell which GPU is cuda:0") as raised:
        select_gpus(["cuda:0"], mixed, {})
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in str(raised.value)
    assert str(raised.value).endswith("The GPU's index or UUID always works here.")
    assert select_gpus(["cuda:0"], mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == (UUIDS[0],)
