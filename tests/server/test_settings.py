"""The server's configuration: allowed values are applied, and the server starts despite invalid values."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from fakes import FakeSource
from helpers_server import Server

from gpuwidget import __version__ as VERSION
from gpuwidget.journal import settings as journal_settings
from gpuwidget.model import installation
from gpuwidget.server import settings
from gpuwidget.server.sample_hub import SampleHub
from gpuwidget.sources import SOURCE_VARIABLE

TRAITS = settings.GpuWidget.class_trait_names(config=True)
INTERVAL = "give a number of seconds from 0.05 to 60. Its default, 0.2, is used."
HISTORY = "give a number of seconds from 10 to 3600. Its default, 600.0, is used."
INSTALL = (
    "give the arguments of 'pip install', quoted as in a shell, without a password. Its default, '', is used."
)


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set GPUWIDGET_INSTALL_REQUIREMENT to an empty string, and restore it after the test,
    because the server changes it."""
    monkeypatch.setenv(installation.REQUIREMENT_VARIABLE, "")
    return monkeypatch


@pytest.mark.parametrize("configuration", [{"interval": 1, "history": 30}])
async def test_interval_and_history_are_configurable(
    server: Server, configuration: dict[str, object], logged: list[str]
) -> None:
    """``c.GpuWidget.interval`` and ``c.GpuWidget.history`` take effect,
    and the initial message to the panel contains them."""
    hello = await (await server.stream()).next()
    assert (hello["interval_s"], hello["history_s"]) == (1.0, 30.0)
    assert await server.refused(history=31) == (
        400,
        {"message": "history must be a number of seconds from 0 to 30."},
    )
    assert logged == []


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"interval": 0.01}, [f"GpuWidget.interval can't be 0.01: {INTERVAL}"]),
        ({"interval": 61}, [f"GpuWidget.interval can't be 61: {INTERVAL}"]),
        ({"interval": float("nan")}, [f"GpuWidget.interval can't be nan: {INTERVAL}"]),
        ({"interval": "fast"}, [f"GpuWidget.interval can't be 'fast': {INTERVAL}"]),
        ({"history": 9, "interval": 0.2}, [f"GpuWidget.history can't be 9: {HISTORY}"]),
        ({"history": None}, [f"GpuWidget.history can't be None: {HISTORY}"]),
        (
            {"history": 1e9, "interval": -1},
            [
                f"GpuWidget.history can't be 1000000000.0: {HISTORY}",
                f"GpuWidget.interval can't be -1: {INTERVAL}",
            ],
        ),
        (
            {"source": 3},
            [
                "GpuWidget.source can't be 3: give a word in quotes, such as 'auto' or 'replay'. "
                "Its default, 'auto', is used."
            ],
        ),
        (
            {"install_requirement": "'no end"},
            [f"GpuWidget.install_requirement can't be \"'no end\": {INSTALL}"],
        ),
        (
            {"install_requirement": "x --index-url https://me:secret@example.org/simple"},
            [
                "GpuWidget.install_requirement can't be 'x --index-url https://***@example.org/simple': "
                + INSTALL
            ],
        ),
        (
            {"gpu_hour_price": float("inf"), "slurm_warning_minutes": float("nan")},
            [
                "GpuWidget.gpu_hour_price can't be inf: give a number from 0 on, or None. "
                "Its default, None, is used.",
                "GpuWidget.slurm_warning_minutes can't be nan: give a number of minutes from 0 on. "
                "Its default, 15.0, is used.",
            ],
        ),
        (
            {"prometheus_timeout": 0.5},
            [
                "GpuWidget.prometheus_timeout can't be 0.5: give a number of seconds from 1 to 60. "
                "Its default, 10.0, is used."
            ],
        ),
        (
            {"prometheus_matchers": ['cluster="a"'], "prometheus_url": "http://127.0.0.1:1"},
            [
                "GpuWidget.prometheus_matchers can't be ['cluster=\"a\"']: give label matchers in "
                "quotes, such as 'cluster=\"a\"'. Its default, '', is used.",
                "There is no cluster view, because it would show machines that the matchers exclude.",
            ],
        ),
        (
            {"intervall": 1},
            [f"GpuWidget has no setting 'intervall'. Its settings are {', '.join(sorted(TRAITS))}."],
        ),
    ],
)
async def test_an_invalid_value_is_logged_in_a_sentence(
    server: Server, configuration: dict[str, object], expected: list[str], logged: list[str]
) -> None:
    """If a value is invalid, the server uses the default and logs a sentence with the value,
    the allowed values and the default."""
    hello = await (await server.stream()).next()
    assert (hello["interval_s"], hello["history_s"]) == (0.2, 600.0)
    assert sorted(logged) == expected


@pytest.mark.parametrize("jp_argv", [["--GpuWidget.interval=0.5", "--GpuWidget.history=soon"]])
async def test_settings_on_the_command_line(server: Server, jp_argv: list[str], logged: list[str]) -> None:
    """``--GpuWidget.interval=0.5`` on the command line takes effect.
    If a value on the command line is invalid, the server still starts."""
    hello = await (await server.stream()).next()
    assert (hello["interval_s"], hello["history_s"]) == (0.5, 600.0)
    assert logged == [f"GpuWidget.history can't be 'soon': {HISTORY}"]


@pytest.mark.parametrize(
    ("configuration", "command"),
    [
        ({}, None),
        ({"install_requirement": "'/srv/my wheels/x.whl[lab]'"}, "pip install '/srv/my wheels/x.whl[lab]'"),
        (
            {"install_requirement": "jupyterlab-gpuwidget --index-url https://pypi.example.org/simple"},
            f"pip install jupyterlab-gpuwidget=={VERSION} --index-url https://pypi.example.org/simple",
        ),
        ({"install_requirement": "/srv/my wheels/x.whl[lab]"}, "pip install '/srv/my wheels/x.whl[lab]'"),
        (
            {"install_requirement": "/srv/x.whl --find-links /srv/y.whl"},
            "pip install /srv/x.whl --find-links /srv/y.whl",
        ),
        ({"install_requirement": "https://example.org/a;b.whl"}, "pip install 'https://example.org/a;b.whl'"),
    ],
)
async def test_the_configured_install_command(
    variable: pytest.MonkeyPatch, server: Server, configuration: dict[str, str], command: str | None
) -> None:
    """The panel receives a pip command with the configured requirement, quoted for the shell.
    A bare package name is pinned to the server's version.
    Kernels and terminals inherit the requirement in an environment variable."""
    hello = await (await server.stream()).next()
    assert (hello["install"], hello["documentation"]) == (command, installation.documentation())
    requirement = configuration.get("install_requirement")
    assert os.environ[installation.REQUIREMENT_VARIABLE] == (requirement or "")


def test_the_variable_takes_precedence(variable: pytest.MonkeyPatch) -> None:
    """GPUWIDGET_INSTALL_REQUIREMENT takes precedence over the configuration's install_requirement."""
    variable.setenv(installation.REQUIREMENT_VARIABLE, "/srv/b.whl")
    log = logging.getLogger("test")
    assert settings.install_command("/srv/a.whl", log) == "pip install /srv/b.whl"
    variable.setenv(installation.REQUIREMENT_VARIABLE, "'no end")
    assert settings.install_command("/srv/a.whl", log) is None


@pytest.mark.parametrize("configuration", [{"source": "replay"}])
async def test_the_source_trait_selects_a_recording(
    real_server: Server, configuration: dict[str, object]
) -> None:
    """With ``c.GpuWidget.source = 'replay'``, the server plays the built-in recording,
    and the sample is labeled as a recording."""
    _, sample = await real_server.get("sample")
    assert sample["origin"]["recording"] == "Recording of 4 \N{MULTIPLICATION SIGN} NVIDIA H200"
    assert [gpu["index"] for gpu in sample["gpus"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("configuration", [{"source": "none"}])
async def test_the_source_trait_selects_no_gpus(
    real_server: Server, configuration: dict[str, object]
) -> None:
    """With ``c.GpuWidget.source = 'none'``, no GPU is shown, and the reason names the setting."""
    _, sample = await real_server.get("sample")
    assert (sample["gpus"], sample["origin"]["reason"]) == (
        [],
        "GpuWidget.source is 'none': unset it to see this machine's GPUs.",
    )


class TestWithTheVariable:
    """A server that starts with GPUWIDGET_SOURCE set."""

    @pytest.fixture(autouse=True)
    def variable(self, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
        monkeypatch.setenv(SOURCE_VARIABLE, chosen)

    @pytest.mark.parametrize(("configuration", "chosen"), [({"source": "replay"}, "none")])
    async def test_the_variable_takes_precedence(
        self, variable: None, real_server: Server, configuration: dict[str, object]
    ) -> None:
        """GPUWIDGET_SOURCE takes precedence over ``c.GpuWidget.source``,
        as in kernels and on the command line."""
        _, sample = await real_server.get("sample")
        assert sample["origin"]["reason"] == (
            "GPUWIDGET_SOURCE is 'none': unset it to see this machine's GPUs."
        )

    @pytest.mark.parametrize("chosen", ["nvidia"])
    async def test_an_unknown_source_shows_no_gpus(
        self, variable: None, real_server: Server, logged: list[str]
    ) -> None:
        """If GPUWIDGET_SOURCE is misspelt, the log and the panel give the reason, and no GPUs are shown."""
        reason = (
            "GPUWIDGET_SOURCE can't be used. 'nvidia' is not a source of GPU readings. "
            "Use auto, nvml, replay, replay:PATH, replay-once:PATH or none."
        )
        _, sample = await real_server.get("sample")
        assert (sample["gpus"], sample["origin"]["reason"]) == ([], reason)
        assert logged == [reason]


class TestWithABrokenDriver:
    """A server whose driver can't be opened."""

    async def test_the_server_starts_without_opening_the_driver(
        self, fake_devices: None, source: FakeSource, jp_serverapp: Any, hubs: list[SampleHub]
    ) -> None:
        """The server starts without opening the driver."""
        assert source.calls == {}
        assert not hubs[0]._sampler.running

    async def test_samples_have_the_reason_and_no_gpus(
        self, server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If the driver can't be opened,
        the stream continues with samples that contain the reason and no GPUs."""

        def fail() -> None:
            raise OSError("no permission")

        monkeypatch.setattr(source, "open", fail)
        stream = await server.stream()
        await stream.next()
        sample = (await stream.next())["sample"]
        assert sample["gpus"] == []
        assert "OSError: no permission" in sample["origin"]["reason"]
        hello = await (await server.stream()).next()
        assert hello["history"]["gpus"] == []
        assert len(hello["history"]["t"]) >= 1


@pytest.mark.parametrize(
    ("configuration", "exported"),
    [
        pytest.param({}, {}, id="default"),
        pytest.param({"journal": False}, {"GPUWIDGET_JOURNAL": "0"}, id="off"),
        pytest.param(
            {"journal_seconds": 120, "journal_printed": True},
            {"GPUWIDGET_JOURNAL_SECONDS": "120.0", "GPUWIDGET_JOURNAL_PRINTED": "1"},
            id="longer, with printed lines",
        ),
        pytest.param({"journal": "nein"}, {"GPUWIDGET_JOURNAL": "0"}, id="invalid"),
    ],
)
async def test_kernels_get_the_settings_of_the_journal(
    cleared: None, server: Server, configuration: dict[str, object], exported: dict[str, str]
) -> None:
    """The server's traits reach its kernels as environment variables. An invalid ``journal`` turns it off."""
    found = {name: value for name, value in os.environ.items() if name.startswith("GPUWIDGET_JOURNAL")}
    assert found == exported


@pytest.mark.parametrize("configuration", [{"journal": False, "journal_seconds": 5}])
async def test_a_variable_takes_precedence_over_the_journals_traits(
    cleared: None, preset: None, server: Server, configuration: dict[str, object]
) -> None:
    """GPUWIDGET_JOURNAL_SECONDS in the server's environment wins over ``c.GpuWidget.journal_seconds``."""
    assert os.environ["GPUWIDGET_JOURNAL_SECONDS"] == "60"
    assert os.environ["GPUWIDGET_JOURNAL"] == "0"


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the journal's variables, and restore them after the test, because the server sets them."""
    for name in journal_settings.JournalSettings(False, 1.0, True).variables():
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the seconds in the server's environment."""
    monkeypatch.setenv("GPUWIDGET_JOURNAL_SECONDS", "60")
