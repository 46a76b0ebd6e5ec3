"""Tests of advice on a recording of four H200s.

Each phase of the recording leads to the advice that the phase's description names, and to no other advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_replay import Player, recording_without, repeated

from gpuwidget.kernel.cells import run_context
from gpuwidget.kernel.cells.run_context import RunContextBuilder
from gpuwidget.model.report import Advice, CodeTime, LineTime, Report
from gpuwidget.sources.replay import SHIPPED

pytestmark = pytest.mark.usefixtures("no_torch")

STEADY = {
    "idle": (0.1, 4.7),
    "starved": (14.0, 9.0),
    "DDP bf16": (36.0, 11.0),
    "DDP fp32": (58.0, 8.5),
    "straggler": (78.0, 9.5),
    "four kinds": (96.0, 9.5),
    "two processes": (112.0, 8.0),
    "leak": (124.5, 4.0),
    "idle at the end": (131.6, 3.4),
}
"""For each phase of the recording: when its steady part starts, and how long this part lasts, in seconds.

The steady part begins after the processes of the phase have started up.
"""
WHOLE = {
    "starved": (5.0, 19.2),
    "DDP bf16": (24.3, 24.4),
    "DDP fp32": (48.8, 19.5),
    "straggler": (68.4, 21.6),
    "four kinds": (90.1, 16.8),
    "two processes": (107.0, 14.3),
    "leak": (121.4, 8.6),
}


@pytest.fixture
def player() -> Iterator[Player]:
    """Yield a player of the recording as it is shipped."""
    player = Player(SHIPPED)
    yield player
    player.close()


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a copy of the recording whose GPUs have no hardware counters."""
    return recording_without(tmp_path_factory.mktemp("older") / "h200-x4.jsonl", "gpm")


@pytest.fixture
def older_player(older: Path) -> Iterator[Player]:
    """Yield a player of the recording without hardware counters."""
    player = Player(older)
    yield player
    player.close()


def rules(advice: tuple[Advice, ...]) -> list[tuple[str, bool]]:
    """Return the rule of each piece of advice, and whether the advice is certain."""
    return [(one.rule, one.sure) for one in advice]


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("idle", []),
        ("starved", [("input-pipeline", False)]),
        ("DDP bf16", []),
        ("DDP fp32", [("tensor-cores-idle", True)]),
        ("straggler", [("straggler", True)]),
        ("four kinds", [("copies", True), ("small-kernels", True), ("memory-bound", True)]),
        ("two processes", []),
        ("leak", []),
        ("idle at the end", []),
    ],
)
def test_each_phase_gets_the_advice_that_its_description_names(
    player: Player, phase: str, expected: list[tuple[str, bool]]
) -> None:
    """Each phase leads to exactly the advice that its description names; a healthy phase leads to no advice.

    The phase 'leak' leads to no advice either, because growing memory in a single run does not count as a
    leak.
    """
    assert rules(player.measure(*STEADY[phase]).advice) == expected


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [("0", ["copies"]), ("1", ["memory-bound"]), ("2", []), ("3", ["small-kernels"])],
)
def test_four_kinds_of_full_utilization(player: Player, gpu: str, expected: list[str]) -> None:
    """If only one GPU is watched, the advice fits the load of that GPU.

    There is no advice about the GPU with busy tensor cores.
    """
    assert [one.rule for one in player.measure(*STEADY["four kinds"], gpu).advice] == expected


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("idle", []),
        ("starved", [("input-pipeline", False)]),
        ("DDP bf16", []),
        ("DDP fp32", []),
        ("straggler", [("straggler", False)]),
        ("four kinds", [("copies", False), ("small-kernels", False), ("memory-bound", False)]),
        ("two processes", []),
        ("leak", []),
        ("idle at the end", []),
    ],
)
def test_without_hardware_counters_advice_is_weaker_or_absent(
    older_player: Player, phase: str, expected: list[tuple[str, bool]]
) -> None:
    """Without hardware counters, as on GPUs before Hopper, advice is less certain.

    There is no advice if utilization and power are not sufficient evidence.
    """
    assert rules(older_player.measure(*STEADY[phase]).advice) == expected


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [("0", ["copies"]), ("1", ["memory-bound"]), ("2", []), ("3", ["small-kernels"]), ("0,3", None)],
)
def test_four_kinds_without_hardware_counters(
    older_player: Player, gpus: str, expected: list[str] | None
) -> None:
    """Without hardware counters, advice about a single GPU still fits the load of that GPU.

    Two GPUs with independent work are not mistaken for a GPU that waits for another.
    """
    found = [one.rule for one in older_player.measure(*STEADY["four kinds"], *gpus.split(",")).advice]
    assert found == (["copies", "small-kernels"] if expected is None else expected)


@pytest.mark.parametrize("phase", WHOLE)
@pytest.mark.parametrize("counters", [True, False])
def test_a_phase_with_its_start_up_gets_no_wrong_advice(
    request: pytest.FixtureRequest, phase: str, counters: bool
) -> None:
    """If a run includes ten seconds of imports and first steps, advice may be missing, but none is wrong."""
    player: Player = request.getfixturevalue("player" if counters else "older_player")
    named = {
        "starved": {"input-pipeline"},
        "DDP fp32": {"tensor-cores-idle"},
        "straggler": {"straggler"},
        "four kinds": {"copies", "small-kernels", "memory-bound"},
    }
    assert {one.rule for one in player.measure(*WHOLE[phase]).advice} <= named.get(phase, set())


def test_the_evidence_has_the_figures(player: Player) -> None:
    """The evidence of advice contains the measured values, and the text contains the power of the GPUs."""
    fp32 = player.measure(*STEADY["DDP fp32"]).advice[0]
    assert fp32.rule == "tensor-cores-idle"
    assert fp32.evidence == {
        "sm_activity": 94.3,
        "tensor_activity": 1.9,
        "fp32_activity": 65.9,
        "gpus": [0, 1, 2, 3],
    }
    assert fp32.link == "docs/reference/advice.md#tensor-cores-idle"
    late = player.measure(*STEADY["straggler"]).advice[0]
    assert late.rule == "straggler"
    assert (late.evidence["waiting"], late.evidence["late"]) == ([0, 1, 2], 3)
    assert round(late.evidence["late_utilization"]) == 12
    assert late.evidence["waiting_sm_activity"] == 25.5
    assert round(late.evidence["waiting_power_w"]) == 192
    assert "about 88 % of the time" in late.text
    assert "192 of 700 W" in late.text


def test_pcie_and_nvlink_traffic_is_in_the_report(player: Player) -> None:
    """The report contains the PCIe and NVLink traffic of each GPU in bytes per second."""
    gpu = player.measure(*STEADY["four kinds"], "0").gpus[0]
    assert gpu.pcie is not None
    assert gpu.pcie.tx is not None
    assert gpu.pcie.rx is not None
    assert (round(gpu.pcie.tx.mean / 1024**3), round(gpu.pcie.rx.mean / 1024**3)) == (30, 28)
    assert gpu.nvlink is not None
    assert gpu.nvlink.rx is not None
    assert gpu.nvlink.rx.mean == 0.0


def test_the_power_cap_is_reported_without_advice(player: Player) -> None:
    """If the power cap slows a GPU down, the report contains that throttle reason but no advice.

    There is no advice because full load is expected to reach the power limit.
    """
    report = player.measure(*STEADY["two processes"], "1")
    assert report.gpus[0].throttled is not None
    assert set(report.gpus[0].throttled) == {"power cap"}
    # The run lasted eight seconds. Its first two seconds do not count, because the throttle reasons of
    # samples in that time may have been read before the run.
    assert report.gpus[0].throttled["power cap"] == pytest.approx(6.0, abs=0.3)
    assert report.advice == ()


def test_a_leak_from_run_to_run(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each of four runs of the same code leaves more memory in use, the advice reports the growth.

    The text of the advice states that the owner of the memory is unknown.
    """
    monkeypatch.setattr(run_context, "_earlier_runs", type(run_context._earlier_runs)())
    player.go_to(124.4)
    found = []
    for _ in range(4):
        run = player.start("0", label="epoch", run_context=RunContextBuilder(None))
        player.play(0.5)
        found.append(player.report(run).advice)
    assert [rules(advice) for advice in found] == [[], [], [], [("growing-memory", False)]]
    gib = 1024**3
    (leak,) = found[-1]
    assert [round(end / gib, 1) for end in leak.evidence["ends_bytes"]] == [10.6, 30.6, 50.6, 70.6]
    assert round(leak.evidence["growth_bytes"] / gib, 1) == 20.0
    assert "Couldn't tell which process holds it." in leak.text
    assert "after 3 more such runs" in leak.text


def test_live_advice_after_half_a_minute(tmp_path: Path) -> None:
    """A run shows no live advice in its first half minute.

    Later live advice is based on the recent past, not on the start-up.
    """
    path = repeated(tmp_path / "x.jsonl", *STEADY["straggler"], 6)
    player = Player(path)
    try:
        run = player.start()
        player.play(29.5)
        assert run.progress().advice is None
        player.play(1.0)
        shown = run.progress().advice
        assert shown is not None
        assert shown.rule == "straggler"
        player.play(3.0)
        assert run.progress().advice is shown
        run.abandon()
    finally:
        player.close()


class Onlooker:
    """A fake collector whose line profile shows that the code waits for its data loader."""

    measures = "time by line"

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def abandon(self) -> None: ...

    def annotate(self, report: Report) -> Report:
        return report

    def busy_devices(self) -> frozenset[int]:
        return frozenset()

    def snapshot(self) -> CodeTime:
        call = "DataLoader._next_data"
        loading = LineTime(7, "for x, y in loader:", 82.0, 3.0, call, None, call_share=82.0)
        lines = (loading, LineTime(8, "step(x, y)", 18.0, 90.0, None, None))
        return CodeTime(lines, 4000, 0.02, reason=None, cpu=None, cpu_children=None, warm_up_s=None)


@pytest.mark.parametrize(("phase", "expected"), [("starved", [("input-pipeline", True)]), ("DDP bf16", [])])
def test_live_advice_uses_the_line_profile(
    tmp_path: Path, phase: str, expected: list[tuple[str, bool]]
) -> None:
    """If the line profile shows that the code waits for its data loader, the live advice about it is certain.

    If the GPU is busy nevertheless, there is no advice.
    """
    path = repeated(tmp_path / "x.jsonl", *STEADY[phase], 6)
    player = Player(path)
    try:
        run = player.start("0", collectors=[Onlooker()])
        player.play(30.5)
        shown = run.progress().advice
        assert rules(() if shown is None else (shown,)) == expected
        if shown is not None:
            assert (round(shown.evidence["share"]), shown.evidence["line"]) == (82, 7)
            assert shown.evidence["call"] == "DataLoader._next_data"
        run.abandon()
    finally:
        player.close()


def test_live_advice_is_about_the_recent_past(player: Player) -> None:
    """If the GPU had to wait for data at first but is busy now, the run shows no live advice."""
    player.go_to(14.0)
    run = player.start("0")
    player.play(34.0)
    assert run.progress().advice is None
    run.abandon()
