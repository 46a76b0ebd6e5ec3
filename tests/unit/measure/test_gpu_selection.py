"""Which GPUs a user's words name."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from fakes import gpu
from helpers_torch import FakeTorch

from gpuwidget.measure.gpu_selection import cuda_order, select_gpus
from gpuwidget.model.errors import OptionError

GPUS = tuple(gpu(index) for index in range(3))
UUIDS = tuple(one.uuid for one in GPUS)


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)


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
def test_words_name_gpus(words: list[str], places: list[int]) -> None:
    """nvidia-smi's index, a UUID or its beginning, and cuda:N name a GPU, each once."""
    assert select_gpus(words, GPUS, {}) == tuple(UUIDS[place] for place in places)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("7", f"--gpu 7: no such GPU. There are: 0 ({UUIDS[0]}), 1 ({UUIDS[1]}), 2 ({UUIDS[2]})."),
        ("GPU-", "--gpu GPU-: the prefix fits 3 GPUs; give more of the UUID."),
        ("cuda:5", "--gpu cuda:5: no such GPU."),
        ("x", "--gpu x: no such GPU."),
    ],
)
def test_what_names_none_says_what_is_there(word: str, says: str) -> None:
    """A GPU that does not exist is a sentence, not a guess."""
    with pytest.raises(OptionError) as raised:
        select_gpus([word], GPUS, {})
    assert str(raised.value).startswith(says)


def test_a_slice_is_named_by_its_parent_and_number() -> None:
    """0:1 is MIG slice 1 of GPU 0, as cards name it."""
    piece = replace(GPUS[0], uuid="MIG-1", mig_index=1, mig_parent=UUIDS[0])
    assert select_gpus(["0:1"], (GPUS[0], piece, GPUS[1]), {}) == ("MIG-1",)
    assert select_gpus(["0"], (GPUS[0], piece, GPUS[1]), {}) == (UUIDS[0],)


def test_without_a_gpu_none_can_be_named() -> None:
    """On a machine without GPU the error says just that."""
    with pytest.raises(OptionError, match="--gpu 0: no GPU is visible here"):
        select_gpus(["0"], (), {})


@pytest.mark.parametrize(
    ("visible", "places"),
    [
        ("2,0", [2, 0]),
        ("1", [1]),
        ("0,9,1", [0]),
        ("", []),
        (f"{UUIDS[1]},GPU-00000000", [1, 0]),
        ("0,0", [0]),
    ],
)
def test_cuda_visible_devices_cuts_and_permutes(visible: str, places: list[int]) -> None:
    """cuda:N before CUDA is up is what the environment will make of it, up to the first invalid item."""
    assert cuda_order(GPUS, {"CUDA_VISIBLE_DEVICES": visible}) == tuple(UUIDS[place] for place in places)


def test_cuda_order_of_different_models_is_not_guessed() -> None:
    """CUDA numbers the fastest first, which nobody can tell from names; by PCI bus it can be told."""
    mixed = (GPUS[0], replace(GPUS[1], name="NVIDIA A2"))
    assert cuda_order(mixed, {}) is None
    assert cuda_order(mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == UUIDS[:2]
    with pytest.raises(OptionError, match="will be known once CUDA is up"):
        select_gpus(["cuda:0"], mixed, {})


def test_once_cuda_is_up_torch_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The join is by UUID, whatever the order."""
    fake = FakeTorch(devices=2)
    torch_uuids = [UUIDS[2][4:], UUIDS[0][4:]]
    fake.cuda.get_device_properties = lambda index: type("P", (), {"uuid": torch_uuids[index]})
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert select_gpus(["cuda:0"], GPUS, {}) == (UUIDS[2],)
    assert select_gpus(["cuda:1"], GPUS, {}) == (UUIDS[0],)


def test_cuda_does_not_say_which_slice_it_takes() -> None:
    """With a GPU that is cut into slices, only an environment that names slices tells which is cuda:0."""
    piece = replace(GPUS[0], uuid="MIG-1", mig_index=1, mig_parent=UUIDS[0])
    machine = (GPUS[0], piece, GPUS[1])
    assert cuda_order(machine, {}) is None
    assert cuda_order(machine, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert cuda_order(machine, {"CUDA_VISIBLE_DEVICES": "MIG-1"}) == ("MIG-1",)
