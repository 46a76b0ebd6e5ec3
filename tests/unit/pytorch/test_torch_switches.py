"""Tests of the PyTorch switches: values are read whichever of torch's two APIs set them, and after gpuwidget
sets a switch, both APIs can read it.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.model.errors import OptionError
from gpuwidget.model.torch_state import ComputeSwitches, SwitchValue
from gpuwidget.pytorch import torch_switches
from gpuwidget.pytorch.torch_switches import TORCH_SWITCHES, find_switch

torch: Any = pytest.importorskip("torch")

PRECISIONS = ("highest", "high", "medium")


@pytest.fixture(autouse=True)
def _restore_settings() -> Any:
    yield
    torch.backends.fp32_precision = "none"
    torch.backends.cudnn.fp32_precision = "none"
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.enabled = True
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.matmul.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "none"
    torch.set_deterministic_debug_mode("default")


def now(name: str) -> str | None:
    """Return the value of a switch."""
    values = torch_switches.switch_values()
    assert values is not None
    return values[name].value


def user_runs(code: str) -> None:
    """Run a line of code as the user would."""
    exec(code, {"torch": torch})


def either_way_reads() -> tuple[object, ...]:
    """Return the values that user code and torch.compile can read. torch raises an error if the two APIs were
    mixed when the values were set.
    """
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.conv.fp32_precision,
    )


def test_switches_that_advice_uses() -> None:
    """The switches that advice is based on are read correctly, before and after user code changes them."""
    assert torch_switches.compute_switches() == ComputeSwitches(
        tf32_matmul=False, tf32_conv=True, cudnn=True, cudnn_benchmark=False
    )
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    assert torch_switches.compute_switches() == ComputeSwitches(
        tf32_matmul=True, tf32_conv=True, cudnn=False, cudnn_benchmark=True
    )


def test_a_fresh_torch_has_the_listed_defaults() -> None:
    """The documented default of each switch is the switch's value in a newly started process."""
    names = {switch.name: switch.default for switch in TORCH_SWITCHES}
    assert {name: now(name) for name in names} == names


@pytest.mark.parametrize("name", [switch.name for switch in TORCH_SWITCHES])
def test_every_choice_can_be_set_and_is_then_read(name: str) -> None:
    """set_switch() returns the statement that it ran. If user code runs that statement, it has the same
    effect.
    """
    switch = find_switch(name)
    for value in (*switch.choices, *reversed(switch.choices)):
        statement = torch_switches.set_switch(switch, value)
        assert now(name) == value
        either_way_reads()
        torch_switches.set_switch(switch, switch.default)
        user_runs(statement)
        assert now(name) == value


def test_the_statements() -> None:
    """Each switch is set by a single line, which uses torch's public API."""
    said = [torch_switches.switch_statement(switch, switch.choices[-1]) for switch in TORCH_SWITCHES]
    assert said == [
        "torch.backends.cudnn.enabled = False",
        "torch.backends.cudnn.benchmark = False",
        "torch.backends.cudnn.deterministic = False",
        "torch.backends.cudnn.allow_tf32 = False",
        'torch.set_float32_matmul_precision("medium")',
        'torch.set_deterministic_debug_mode("error")',
    ]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('torch.backends.cuda.matmul.fp32_precision = "tf32"', "high"),
        ('torch.backends.cuda.matmul.fp32_precision = "ieee"', "highest"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "high"),
        ('torch.backends.fp32_precision = "tf32"', "high"),
        ('torch.set_float32_matmul_precision("medium")', "medium"),
        (
            'torch.set_float32_matmul_precision("high"); torch.backends.cuda.matmul.fp32_precision = "ieee"',
            "highest",
        ),
    ],
)
def test_matmul_precision_after_any_user_setting(code: str, found: str, precision: str) -> None:
    """The precision of matrix products can be read, whichever of torch's APIs the user's code has used to set
    it.

    After gpuwidget has set it, both APIs return the new value.
    """
    user_runs(code)
    assert now("matmul.precision") == found
    torch_switches.set_switch(find_switch("matmul.precision"), precision)
    assert now("matmul.precision") == precision
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cuda.matmul.allow_tf32 is (precision != "highest")
    assert torch.backends.cuda.matmul.fp32_precision == ("ieee" if precision == "highest" else "tf32")


@pytest.mark.parametrize("value", ["on", "off"])
@pytest.mark.parametrize(
    ("code", "found"),
    [
        # Recurrent layers still use TF32, so the setting has no single value.
        ('torch.backends.cudnn.conv.fp32_precision = "ieee"', None),
        (
            "for one in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn): one.fp32_precision = 'ieee'",
            "off",
        ),
        ('torch.backends.cudnn.fp32_precision = "tf32"', "on"),
        ('torch.backends.fp32_precision = "tf32"', "on"),
        ("torch.backends.cudnn.allow_tf32 = False", "off"),
    ],
)
def test_cudnn_tf32_after_any_user_setting(code: str, found: str | None, value: str) -> None:
    """cuDNN's TF32 setting can be read, whichever of torch's APIs has set it, even if it was set for all of
    torch at once.

    After gpuwidget has set it, both APIs return the new value.
    """
    user_runs(code)
    assert now("cudnn.tf32") == found
    statement = torch_switches.set_switch(find_switch("cudnn.tf32"), value)
    assert now("cudnn.tf32") == value
    assert torch.backends.cudnn.allow_tf32 is (value == "on")
    assert (torch.backends.cudnn.conv.fp32_precision == "tf32") is (value == "on")
    assert (torch.backends.cudnn.rnn.fp32_precision == "tf32") is (value == "on")
    assert statement.startswith("torch.backends.cudnn.allow_tf32 = ")


def test_different_settings_have_no_single_value() -> None:
    """If TF32 is on for convolutions and off for recurrent layers, the switch has no value, and a note
    explains why.
    """
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    values = torch_switches.switch_values()
    assert values is not None
    assert values["cudnn.tf32"] == SwitchValue(
        None, "TF32 is on for convolutions and off for recurrent layers: your code has set them separately."
    )


def test_without_cudnn_a_note_explains_that_nothing_changes() -> None:
    """If torch was built without cuDNN, the cuDNN switches have a note that they have no effect."""
    values = torch_switches.switch_values()
    assert values is not None
    built = "This torch was built without cuDNN, so the switch has no effect."
    assert values["cudnn.benchmark"].note == (None if torch._C._has_cudnn else built)
    assert values["matmul.precision"].note is None


def test_a_value_that_torch_refuses_is_reported() -> None:
    """If torch refuses to change a setting, the error contains torch's message."""
    torch.backends.cudnn.benchmark = False
    frozen = torch.backends.__dict__.get("m", torch.backends)
    flag = "__allow_nonbracketed_mutation_flag"
    before = getattr(frozen, flag)
    torch.backends.disable_global_flags()
    try:
        with pytest.raises(OptionError, match=r"^torch\.backends\.cudnn\.benchmark = True failed: Runt"):
            torch_switches.set_switch(find_switch("cudnn.benchmark"), "on")
    finally:
        vars(frozen)[flag] = before
    assert now("cudnn.benchmark") == "off"


def test_a_value_that_torch_ignores_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch ignores the statement that sets a switch, gpuwidget raises an error."""
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
    with pytest.raises(OptionError, match="had no effect: torch still reports highest"):
        torch_switches.set_switch(find_switch("matmul.precision"), "high")


def test_an_error_shows_the_first_line_of_a_longer_statement() -> None:
    """If a switch is set by two lines of Python and the code fails, the error shows the first line."""
    switch = replace(
        find_switch("cudnn.benchmark"), statements=lambda native, value: ("raise OSError", "pass")
    )
    with pytest.raises(OptionError, match=r"^raise OSError failed: OSError"):
        torch_switches.set_switch(switch, "on")


def test_torchs_warnings_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's deprecation warning for its older API is not shown when gpuwidget sets a switch."""

    def warn(precision: str) -> None:
        warnings.warn("Please use the new API settings to control TF32 behavior", UserWarning, stacklevel=1)
        torch._C._set_float32_matmul_precision(precision)

    monkeypatch.setattr(torch, "set_float32_matmul_precision", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch_switches.set_switch(find_switch("matmul.precision"), "high")


def test_unknown_switches_and_values() -> None:
    """The error for an unknown switch lists the existing switches, and the error for an invalid value lists
    the valid values.
    """
    with pytest.raises(
        OptionError, match=r"'cudnn' is not a switch\. The switches:\n  cudnn\.enabled\n  cudnn\.bench"
    ):
        find_switch("cudnn")
    with pytest.raises(OptionError, match=r"matmul\.precision can be highest, high or medium, not 'low'\."):
        find_switch("matmul.precision", "low")


def test_either_way_to_set_tf32_is_read_without_an_error() -> None:
    """After TF32 was set with torch's newer API, reading it with the older API raises an error. gpuwidget
    reads the value nevertheless.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError):
        torch.backends.cuda.matmul.allow_tf32  # noqa: B018  (reading it raises)
    found = torch_switches.compute_switches()
    assert found is not None
    assert found.tf32_matmul is True


class _OldBackend:
    """Stand-in for torch.backends.cudnn in a torch version before 2.9."""

    def __init__(self) -> None:
        self.allow_tf32 = True
        self.enabled = True
        self.precision = "highest"


def test_an_older_torch_has_only_the_older_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a torch version before 2.9, switches are read and set with the only API that the version has.

    Switches that this version does not report are unknown, with a note.
    """
    old, backend = make_torch(), _OldBackend()
    old._C = SimpleNamespace(
        _get_cublas_allow_tf32=lambda: backend.precision != "highest",
        _get_cudnn_allow_tf32=lambda: backend.allow_tf32,
        _get_cudnn_enabled=lambda: backend.enabled,
        _get_float32_matmul_precision=lambda: backend.precision,
    )
    old.backends = SimpleNamespace(cudnn=backend)
    old.set_float32_matmul_precision = lambda value: setattr(backend, "precision", value)
    monkeypatch.setitem(sys.modules, "torch", old)
    assert torch_switches.set_switch(find_switch("matmul.precision"), "medium") == (
        'torch.set_float32_matmul_precision("medium")'
    )
    assert (
        torch_switches.set_switch(find_switch("cudnn.tf32"), "off")
        == "torch.backends.cudnn.allow_tf32 = False"
    )
    unknown = SwitchValue(None, "Not reported by this PyTorch.")
    assert torch_switches.switch_values() == {
        "cudnn.enabled": SwitchValue("on"),
        "cudnn.benchmark": unknown,
        "cudnn.deterministic": unknown,
        "cudnn.tf32": SwitchValue("off"),
        "matmul.precision": SwitchValue("medium"),
        "deterministic": unknown,
    }
    assert torch_switches.compute_switches() == ComputeSwitches(tf32_matmul=True, tf32_conv=False, cudnn=True)


def test_without_torch_the_switches_have_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch is not imported, the switches have no values, setting one raises an error, and gpuwidget does
    not import torch.
    """
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_switches.compute_switches() is None
    assert torch_switches.switch_values() is None
    with pytest.raises(OptionError, match=r"torch is not imported yet: import it in a cell first\."):
        torch_switches.set_switch(find_switch("cudnn.benchmark"), "on")
    assert "torch" not in sys.modules


def test_reading_and_setting_do_not_initialize_cuda() -> None:
    """Reading and setting switches does not initialize CUDA. It imports no further module of torch either,
    because imports would block a busy kernel.
    """
    program = (
        "import sys, torch; from gpuwidget.pytorch import torch_switches as s; before = set(sys.modules);"
        "s.switch_values(); [s.set_switch(x, choice) for x in s.TORCH_SWITCHES for choice in x.choices];"
        "print(sorted(set(sys.modules) - before), torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_cpu_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of torch's CPU threads is known while torch is loaded."""
    assert torch_switches.cpu_threads() == torch.get_num_threads()
    monkeypatch.setattr("gpuwidget.pytorch.cuda_state.loaded_torch", lambda: None)
    assert torch_switches.cpu_threads() is None
