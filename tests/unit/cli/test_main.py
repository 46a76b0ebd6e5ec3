"""Tests of the ``gpuwidget`` command."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import EPOCH, FakeClock, FakeSource
from helpers_nvml import Machine
from helpers_recordings import meta, tick, values, write
from nvml_standin import profiles

import gpuwidget
from gpuwidget.cli.main import COMMANDS, main
from gpuwidget.model.errors import GpuLostError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import message
from gpuwidget.sampler import NO_THREAD, Sampler
from gpuwidget.sources.recording import read

GPUWIDGET = [sys.executable, "-m", "gpuwidget"]
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch, in_utc: None) -> None:
    """Set the time zone to UTC and the terminal to 80 columns without color."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set GPUWIDGET_SOURCE to a recording in which nothing changes; return the path of the recording."""
    path = write(tmp_path / "still.jsonl", meta(), tick(0, values(mem_used=1024**3)))
    monkeypatch.setenv("GPUWIDGET_SOURCE", f"replay:{path}")
    return path


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run ``gpuwidget`` with these arguments in a subprocess; return the completed process."""
    return subprocess.run(
        [*GPUWIDGET, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **more
    )


def run_command(source: FakeSource, *arguments: str) -> int:
    """Run ``gpuwidget`` with these arguments in this process, with ``source`` as its GPUs; return the exit
    status."""
    return main(arguments, Sampler(source, FakeClock()))


def test_the_command_prints_all_gpus_and_their_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuwidget` without arguments prints all GPUs and their processes, and exits with 0."""
    source = FakeSource(gpus=2)
    source.processes[1] = (Process(42, "compute", 5 * 1024**3, "anna", "python train.py"),)
    source.memory[1] = 6 * 1024**3
    assert run_command(source) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14 22:13:20 · driver 580.00 · CUDA 13.0",
        "",
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200      50   <0.1 / 139.7  100 / 700  40  1980",
        "  1  NVIDIA H200      50    6.0 / 139.7  100 / 700  40  1980",
        "",
        "GPU  PID  User  GiB  Program",
        "  1   42  anna  5.0  python train.py",
    ]
    assert source.closed == 1


def test_different_models(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """On a machine with different GPUs, each row has the GPU's model, memory and power limit."""
    machine.set_scenario(*profiles.machine("RTX 3090", "RTX 4090", "V100", "A100", "H100"))
    assert main([], Sampler(machine.source())) == 0
    assert capsys.readouterr().out.splitlines()[2:8] == [
        "GPU  Name                  Util %     Memory GiB    Power W  °C  MHz",
        "  0  GeForce RTX 3090           0    0.0 /  24.0   28 / 350  29  345",
        "  1  GeForce RTX 4090           0    0.0 /  24.0   20 / 450  29  345",
        "  2  Tesla V100-SXM2-32GB       0    0.0 /  32.0   42 / 300  29  345",
        "  3  A100-SXM4-80GB             0    0.0 /  80.0   60 / 400  29  345",
        "  4  H100 80GB HBM3             0    0.0 /  79.6   76 / 700  29  345",
    ]


def test_a_lost_gpu_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """If one GPU is lost, `gpuwidget` still prints the others, and why that GPU is lost. It exits with 1."""
    source = FakeSource(gpus=2)
    source.failing[0] = GpuLostError("lost", message("gpu-lost", "the GPU fell off the bus"))
    assert run_command(source) == 1
    assert capsys.readouterr().out.splitlines()[2:6] == [
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200  lost since 22:13:20",
        "  1  NVIDIA H200      50   <0.1 / 139.7  100 / 700  40  1980",
        "GPU 0: the GPU fell off the bus.",
    ]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_without_a_gpu_it_prints_the_reason_and_fails(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """If there is no GPU, `gpuwidget` and `gpuwidget --json` print the reason and exit with 1."""
    source = FakeSource(gpus=0, kind="none")
    source.reason = "No NVIDIA driver was found."
    assert run_command(source, *arguments) == 1
    shown = capsys.readouterr()
    if arguments:
        assert json.loads(shown.out)["origin"]["reason"] == "No NVIDIA driver was found."
    else:
        assert shown.out.splitlines()[2:] == ["No NVIDIA driver was found."]
    assert shown.err == ""


def test_json_is_the_sample_with_finite_numbers_only(capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuwidget --json` prints one JSON object on one line. NaN, which is not valid JSON, is replaced by
    null."""
    source = FakeSource()
    source.utilization[0] = float("nan")
    source.power[0] = None
    source.missing = {"power_w": "not supported by this GPU"}
    assert run_command(source, "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    sample = json.loads(line, parse_constant=pytest.fail)
    assert list(sample) == ["schema", "time", "origin", "gpus", "readings"]
    assert (sample["schema"], sample["time"]) == (1, EPOCH)
    assert sample["gpus"][0]["uuid"] == source.gpus[0].uuid
    reading = sample["readings"][0]
    assert (reading["utilization"], reading["power_w"], reading["memory_used"]) == (None, None, 1_000_000)
    assert reading["missing"]["power_w"] == "not supported by this GPU"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-i", "0"), "argument -i/--interval: '0' is not a number of seconds from 0.05 to 60"),
        (("-i", "61"), "argument -i/--interval: '61' is not a number of seconds from 0.05 to 60"),
        (("-i", "nan"), "argument -i/--interval: 'nan' is not a number of seconds from 0.05 to 60"),
        (("record", "x", "--interval", "fast"), "argument --interval: 'fast' is not a number of seconds"),
        (("record",), "the following arguments are required: FILE"),
        (("watch",), "invalid choice: 'watch'"),
    ],
)
def test_a_usage_error_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    """If an argument is invalid, `gpuwidget` prints the reason and exits with 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_options_of_the_table_are_rejected_by_record(capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuwidget -i 5 record FILE` is a usage error: `-i` before `record` is an option of the table and would
    not set the interval of the recording."""
    assert run_command(FakeSource(), "-i", "5", "record", "x") == 2
    expected = "gpuwidget: record does not accept --json, and --interval must follow record.\n"
    assert capsys.readouterr().err == expected


def test_a_source_that_does_not_exist_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typo in GPUWIDGET_SOURCE is reported as a usage error, not as a machine without a GPU."""
    monkeypatch.setattr("gpuwidget.sampler.sampler._sampler", None)
    monkeypatch.setenv("GPUWIDGET_SOURCE", "nvlm")
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "gpuwidget: 'nvlm' is not a source of GPU readings. Use auto, nvml, replay, replay:PATH, "
        "replay-once:PATH or none.\n"
    )


def test_waiting_for_the_driver_has_a_timeout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the driver does not answer, `gpuwidget` reports this after 4 seconds. If it has not answered after
    another 30 seconds, the command exits with 1. Nothing is printed to stdout, which may be expected to be
    JSON."""
    sampler = Sampler(FakeSource(), FakeClock())
    waits: list[float] = []
    monkeypatch.setattr(sampler, "wait_until_open", waits.append)
    assert main(["--json"], sampler) == 1
    assert waits == [4.0, 30.0]
    assert capsys.readouterr() == (
        "",
        "gpuwidget: the driver has not answered the first call for 4 seconds. Still waiting…\n"
        "gpuwidget: The driver has not answered for 34 seconds. If nvidia-smi hangs too, the driver or a GPU "
        "is stuck: see the kernel log (dmesg). A restart of the machine usually helps.\n",
    )


def test_a_reading_has_a_timeout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver has started and then does not answer, the command exits with 1 and says how long it has
    waited."""
    sampler = Sampler(FakeSource(), FakeClock())
    waits: list[float] = []
    monkeypatch.setattr(sampler, "wait_until_open", lambda _: True)
    monkeypatch.setattr(sampler, "read_now", waits.append)
    assert main([], sampler) == 1
    assert waits == [5.0]
    assert "The driver has not answered for 5 seconds." in capsys.readouterr().err


def test_a_command_without_threads(capsys: pytest.CaptureFixture[str], no_threads: None) -> None:
    """If no thread can be started, `gpuwidget` names that reason at once, and does not blame the driver."""
    clock = FakeClock()
    assert main([], Sampler(FakeSource(), clock)) == 1
    assert clock.monotonic() == 0.0
    assert f"gpuwidget: {NO_THREAD}\n" in capsys.readouterr().err


def test_the_call_that_hangs_is_named(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """While the driver does not answer a call, the line after 4 seconds names the call."""
    machine.set_scenario("gpus=1", "nvmlInitWithFlags=hang")
    sampler = Sampler(machine.source())
    with sampler.subscribe():
        while sampler.current_call() != "nvmlInitWithFlags":
            time.sleep(0.01)
        machine.set_scenario("gpus=1")
        assert sampler.wait_until_open(PATIENCE_S)
    sampler.stop()


def test_a_long_diagnosis_is_announced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the doctor takes seconds, for example because a driver hangs, a line on stderr shows how long it may
    take."""
    shown: list[str] = []

    def run_doctor(options: Any) -> tuple[str, bool]:
        while not shown or not shown[-1].endswith("\n"):
            shown.append("".join(shown[-1:]) + capsys.readouterr().err)
            time.sleep(0.01)
        return "the diagnosis", True

    monkeypatch.setattr("gpuwidget.cli.commands.doctor._diagnose", run_doctor)
    monkeypatch.setattr("gpuwidget.cli.commands.doctor.SILENCE_S", 0.0)
    assert main(["doctor"]) == 0
    assert shown[-1] == "gpuwidget: checking… This takes at most 20 seconds.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [(), ("--json",), ("--version",), ("--help",), ("clean", "--help")])
def test_a_full_disk_gives_one_line(replay: Path, arguments: tuple[str, ...]) -> None:
    """If stdout can't be written, one line has the reason, and the exit status is 1."""
    with open("/dev/full", "w") as full:
        found = subprocess.run([*GPUWIDGET, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    text = "gpuwidget: the output can't be written: No space left on device.\n"
    assert (found.returncode, found.stderr) == (1, text)


@pytest.mark.parametrize("arguments", [(), ("-i", "1", "--json"), ("doctor",), ("clean", "x.ipynb")])
def test_a_closed_stdout_gives_one_line(replay: Path, arguments: tuple[str, ...]) -> None:
    """If stdout is closed, one line says so, nothing is done, and the exit status is 1."""
    shell = ["/bin/sh", "-c", '"$@" >&-', "sh", *GPUWIDGET, *arguments]
    found = subprocess.run(shell, stderr=subprocess.PIPE, text=True)
    assert (found.returncode, found.stderr) == (1, "gpuwidget: the standard output is closed.\n")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_help_text_has_no_doubled_percent_sign(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """In the help of each command, `%gpu` is written with one percent sign, and no default is missing."""
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    shown = capsys.readouterr().out
    assert "%%gpu " not in shown.replace(",", " ")
    assert "%(" not in shown


def test_version() -> None:
    """`python -m gpuwidget --version` prints the package's version."""
    assert run("--version").stdout == f"gpuwidget {gpuwidget.__version__}\n"


def test_the_command_loads_nothing_it_does_not_need(replay: Path) -> None:
    """To print the table, `gpuwidget` imports neither torch nor a notebook package. If it replays a
    recording, it does not import pynvml either."""
    code = (
        "import sys; from gpuwidget.cli.main import main; main([]); "
        "print([name for name in ('torch', 'IPython', 'ipywidgets', 'bqplot', 'pandas', 'tornado', 'pynvml') "
        "if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.splitlines()[-1] == "[]"


def test_it_repeats_until_ctrl_c(replay: Path) -> None:
    """If the output is not a terminal, `gpuwidget -i SECONDS` prints one table after another, separated by
    blank lines. Ctrl-C ends the command without an error."""
    with subprocess.Popen(
        [*GPUWIDGET, "-i", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline().rstrip("\n") for _ in range(18)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    label = "Recording of 1 × NVIDIA H200 (still.jsonl)"  # noqa: RUF001 (the sign that is shown)
    one = [
        "",
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200      50    1.0 / 140.4  100 / 700  30  1980",
        "",
        "GPU  PID  User   GiB  Program",
        "  0    7  n/a   <0.1  n/a",
        "",
    ]
    assert (shown[0], shown[2:9]) == (label, one)
    assert (shown[9], shown[11:18]) == (label, one)
    assert (process.returncode, errors) == (0, "")


def test_repeated_json_is_one_object_per_line(replay: Path) -> None:
    """`gpuwidget -i SECONDS --json` prints one sample per line. The time of each sample is later than the
    time of the previous one."""
    with subprocess.Popen(
        [*GPUWIDGET, "-i", "0.05", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        times = [json.loads(process.stdout.readline())["time"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert times == sorted(set(times))
    assert (process.returncode, errors) == (0, "")


def test_in_a_terminal_it_repeats_in_place(replay: Path) -> None:
    """In a terminal, `gpuwidget -i SECONDS` prints each table over the previous one and clears what is left
    of the previous one."""
    controller, terminal = pty.openpty()
    with subprocess.Popen([*GPUWIDGET, "-i", "0.05"], stdout=terminal, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        shown = b""
        while shown.count(b"\x1b[J") < 4:
            shown += os.read(controller, 65536)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    os.close(controller)
    frames = shown.split(b"\x1b[H")
    assert frames[:2] == [b"", b"\x1b[J"]
    first, second = frames[2:4]
    assert first.startswith("Recording of 1 × NVIDIA H200 (still.jsonl)\x1b[K\r\n".encode())  # noqa: RUF001
    assert first.endswith(b"\x1b[J")
    assert first.count(b"\r\n") == second.count(b"\r\n") == first.count(b"\x1b[K") == 8
    assert (process.returncode, errors) == (0, b"")


def test_a_closed_pipe_is_no_error(replay: Path) -> None:
    """If the reader of the output closes the pipe, as in `gpuwidget -i 1 | head -1`, `gpuwidget` exits with 0
    and without an error message."""
    with subprocess.Popen(
        [*GPUWIDGET, "-i", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=PATIENCE_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_recording_stopped_by_a_signal_is_complete(
    replay: Path, tmp_path: Path, number: signal.Signals, name: str
) -> None:
    """A recording that is stopped by Ctrl-C, or by the SIGTERM that ends a batch job, is complete and can be
    replayed."""
    path = tmp_path / name
    with subprocess.Popen(
        [*GPUWIDGET, "record", str(path), "--interval", "0.05"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        begun = process.stdout.readline()
        process.send_signal(number)
        ended, errors = process.communicate(timeout=PATIENCE_S)
    sign = "\N{MULTIPLICATION SIGN}"
    assert begun == f"Recording 1 {sign} NVIDIA H200 every 0.05 s to {path}. Ctrl-C stops.\n"
    assert ended.endswith(f"To play them: GPUWIDGET_SOURCE=replay:{path}\n")
    assert (process.returncode, errors) == (0, "")
    recording = read(path)
    assert recording.gpus[0].gpu.name == "NVIDIA H200"
    assert recording.gpus[0].series.ticks["memory_used"][0] == 1024**3


def test_recording_over_a_file_is_rejected(replay: Path) -> None:
    """If FILE exists, `gpuwidget record FILE` exits with 1 and leaves the file unchanged."""
    before = replay.read_bytes()
    made = run("record", str(replay))
    expected = f"gpuwidget: {str(replay)!r} already exists and was not overwritten: choose another name.\n"
    assert (made.returncode, made.stdout, made.stderr) == (1, "", expected)
    assert replay.read_bytes() == before
