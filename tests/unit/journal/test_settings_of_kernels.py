"""Environment variables decide what a kernel writes to the journal."""

from __future__ import annotations

import pytest

from gpuwidget.journal.settings import JournalSettings


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, JournalSettings(enabled=True, seconds=30.0, printed=False)),
        ({"GPUWIDGET_JOURNAL": "0"}, JournalSettings(enabled=False)),
        ({"GPUWIDGET_JOURNAL": " off "}, JournalSettings(enabled=False)),
        ({"GPUWIDGET_JOURNAL": "1"}, JournalSettings()),
        ({"GPUWIDGET_JOURNAL_SECONDS": "2.5"}, JournalSettings(seconds=2.5)),
        ({"GPUWIDGET_JOURNAL_SECONDS": "0"}, JournalSettings(seconds=0.0)),
        ({"GPUWIDGET_JOURNAL_SECONDS": "-1"}, JournalSettings()),
        ({"GPUWIDGET_JOURNAL_SECONDS": "nan"}, JournalSettings()),
        ({"GPUWIDGET_JOURNAL_SECONDS": "soon"}, JournalSettings()),
        ({"GPUWIDGET_JOURNAL_PRINTED": "1"}, JournalSettings(printed=True)),
        ({"GPUWIDGET_JOURNAL_PRINTED": "yes"}, JournalSettings()),
    ],
)
def test_settings(environment: dict[str, str], settings: JournalSettings) -> None:
    """The journal is on by default; an invalid number of seconds counts as 30, and only ``1`` keeps lines."""
    assert JournalSettings.of(environment) == settings


@pytest.mark.parametrize(
    "settings", [JournalSettings(), JournalSettings(False, 2.5, True), JournalSettings(True, 0.0)]
)
def test_a_kernel_gets_the_same_settings(settings: JournalSettings) -> None:
    """What the server exports is what its kernels read."""
    assert JournalSettings.of(settings.variables()) == settings
