"""torch's switches: read whatever way the user's code sets them, and set so that either way can read."""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.model.errors import OptionError
from gpuwidget.pytorch import torch_switches
from gpuwidget.pytorch.torch_switches import TORCH_SWITCHES, ComputeSwitches, SwitchValue, find_switch

torch: Any = pytest.importorskip("torch")

PRECISIONS = ("highest", "high", "medium")


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
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
    """What a switch is at."""
    values = torch_switches.switch_values()
    assert values is not None
    return values[name].value


def user_runs(code: str) -> None:
    """A line of the user's own."""
    exec(code, {"torch": torch})


def either_way_reads() -> tuple[object, ...]:
    """All that the user's code, or torch.compile, could ask; raises where the two ways have been mixed."""
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cuda.matmul.fp32_precision,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.conv.fp32_precision,
    )


def test_what_advice_looks_at() -> None:
    """As a fresh torch has them, and after each was changed."""
    assert torch_switches.compute_switches() == ComputeSwitches(
        tf32_matmul=False, tf32_conv=True, cudnn=True, cudnn_benchmark=False
    )
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    assert torch_switches.compute_switches() == ComputeSwitches(
        tf32_matmul=True, tf32_conv=True, cudnn=False, cudnn_benchmark=True
    )


def test_a_fresh_torch_is_at_the_defaults_that_are_told() -> None:
    """What is called torch's default is what a torch that nobody has touched says."""
    names = {switch.name: switch.default for switch in TORCH_SWITCHES}
    assert {name: now(name) for name in names} == names


@pytest.mark.parametrize("name", [switch.name for switch in TORCH_SWITCHES])
def test_every_choice_can_be_set_and_is_then_read(name: str) -> None:
    """By exactly the statement that is told, which the user could have typed; either way to read goes on."""
    switch = find_switch(name)
    for value in (*switch.choices, *reversed(switch.choices)):
        statement = torch_switches.set_switch(switch, value)
        assert now(name) == value
        either_way_reads()
        torch_switches.set_switch(switch, switch.default)
        user_runs(statement)
        assert now(name) == value


def test_the_statements() -> None:
    """They are the documented ones, a line each."""
    said = [torch_switches.statement(switch, switch.choices[-1]) for switch in TORCH_SWITCHES]
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
def test_matmul_precision_whatever_the_user_s_code_has_used(code: str, found: str, precision: str) -> None:
    """It is read without an error, and once set, both of torch's ways read what was set."""
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
def test_cudnn_tf32_whatever_the_user_s_code_has_used(code: str, found: str | None, value: str) -> None:
    """The same of cuDNN's, also where all of torch was set to TF32."""
    user_runs(code)
    assert now("cudnn.tf32") == found
    statement = torch_switches.set_switch(find_switch("cudnn.tf32"), value)
    assert now("cudnn.tf32") == value
    assert torch.backends.cudnn.allow_tf32 is (value == "on")
    assert (torch.backends.cudnn.conv.fp32_precision == "tf32") is (value == "on")
    assert (torch.backends.cudnn.rnn.fp32_precision == "tf32") is (value == "on")
    assert statement.startswith("torch.backends.cudnn.allow_tf32 = ")


def test_apart_it_is_not_one_value() -> None:
    """Convolutions and recurrent layers set apart are told so, in place of a guess."""
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    values = torch_switches.switch_values()
    assert values is not None
    assert values["cudnn.tf32"] == SwitchValue(
        None, "TF32 is on for convolutions and off for recurrent layers: your code has set them apart."
    )


def test_a_torch_without_cudnn_says_that_it_changes_nothing() -> None:
    """The CPU build has the switches, too."""
    values = torch_switches.switch_values()
    assert values is not None
    built = "This torch was built without cuDNN: it changes nothing here."
    assert values["cudnn.benchmark"].note == (None if torch._C._has_cudnn else built)
    assert values["matmul.precision"].note is None


def test_what_torch_refuses_is_told() -> None:
    """With its own reason."""
    torch.backends.cudnn.benchmark = False
    frozen = torch.backends.__dict__.get("m", torch.backends)
    flag = "__allow_nonbracketed_mutation_flag"
    before = getattr(frozen, flag)
    torch.backends.disable_global_flags()
    try:
        with pytest.raises(OptionError, match=r"refused 'torch\.backends\.cudnn\.benchmark = True': Runt"):
            torch_switches.set_switch(find_switch("cudnn.benchmark"), "on")
    finally:
        vars(frozen)[flag] = before
    assert now("cudnn.benchmark") == "off"


def test_what_torch_ignores_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that ran and changed nothing is not passed off as done."""
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
    with pytest.raises(OptionError, match="was run, and torch still says highest"):
        torch_switches.set_switch(find_switch("matmul.precision"), "high")


def test_no_warning_of_torch_s_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.9 warns of the older way in words for whoever wrote it, which was not the user."""

    def warn(precision: str) -> None:
        warnings.warn("Please use the new API settings to control TF32 behavior", UserWarning, stacklevel=1)
        torch._C._set_float32_matmul_precision(precision)

    monkeypatch.setattr(torch, "set_float32_matmul_precision", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch_switches.set_switch(find_switch("matmul.precision"), "high")


def test_no_such_switch_no_such_choice() -> None:
    """What there is, in a sentence."""
    with pytest.raises(OptionError, match=r"'cudnn' is no switch\. There are: cudnn\.enabled, cudnn\.bench"):
        find_switch("cudnn")
    with pytest.raises(OptionError, match=r"matmul\.precision can be highest, high or medium, not 'low'\."):
        find_switch("matmul.precision", "low")


def test_either_way_to_set_tf32_is_read_without_an_error() -> None:
    """torch's own older way to read raises where the newer one was used to set."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError):
        torch.backends.cuda.matmul.allow_tf32  # noqa: B018  (to be read is what fails)
    found = torch_switches.compute_switches()
    assert found is not None
    assert found.tf32_matmul is True


class _OldBackend:
    """torch.backends.cudnn and the rest of a torch before 2.9."""

    def __init__(self) -> None:
        self.allow_tf32 = True
        self.enabled = True
        self.precision = "highest"


def test_an_older_torch_has_only_the_older_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read and set by that; what it does not have at all is unknown, and says so."""
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
    unknown = SwitchValue(None, "This torch does not say.")
    assert torch_switches.switch_values() == {
        "cudnn.enabled": SwitchValue("on"),
        "cudnn.benchmark": unknown,
        "cudnn.deterministic": unknown,
        "cudnn.tf32": SwitchValue("off"),
        "matmul.precision": SwitchValue("medium"),
        "deterministic": unknown,
    }
    assert torch_switches.compute_switches() == ComputeSwitches(tf32_matmul=True, tf32_conv=False, cudnn=True)


def test_without_torch_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is imported for it."""
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_switches.compute_switches() is None
    assert torch_switches.switch_values() is None
    with pytest.raises(OptionError, match=r"torch is not imported yet: import it in a cell first\."):
        torch_switches.set_switch(find_switch("cudnn.benchmark"), "on")
    assert "torch" not in sys.modules


def test_reading_and_setting_import_nothing_and_start_no_cuda() -> None:
    """Not even more of torch: a busy kernel's questions would wait for it."""
    program = (
        "import sys, torch; from gpuwidget.pytorch import torch_switches as s; before = set(sys.modules);"
        "s.switch_values(); [s.set_switch(x, choice) for x in s.TORCH_SWITCHES for choice in x.choices];"
        "print(sorted(set(sys.modules) - before), torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
