"""Tests of showing a diagnosis as text, HTML and JSON, of comparing two diagnoses, and of `gpuwidget
doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers_doctor import NO_CUDA, TORCH, WORKING, devices, fake_torch, h200, nvml, results

import gpuwidget
from gpuwidget import pytorch
from gpuwidget.cli.commands import doctor
from gpuwidget.cli.main import main
from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.compare import Change, compare
from gpuwidget.diagnostics.issues import build_check
from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.diagnostics.target import NotebookState, Target
from gpuwidget.diagnostics.torch_copies import TorchFiles
from gpuwidget.kernel.commands import doctor_command
from gpuwidget.model.diagnosis import Diagnosis, Issue
from gpuwidget.model.to_json import to_json
from gpuwidget.model.torch_state import ComputeSwitches, Loader, TorchDevice
from gpuwidget.views import diagnosis_view

HOSTILE = "<script>alert(1)</script>\x1b[31m'\"&"
WELL = diagnose(results())
ILL = diagnose(results(torch={"cuda": None, "version": "2.13.0+cpu"}))


def test_as_text() -> None:
    """The text of a diagnosis has one line per check. The reason and the fix of a check follow below its
    line. All skipped checks share the last line."""
    lines = diagnosis_view.text(ILL, 90).splitlines()
    torch = ILL.links[0]
    fix = torch.issues[0].fix
    assert fix is not None
    assert lines[:7] == [
        f"1 problem: PyTorch. {torch.reason}",
        "",
        f"BROKEN   PyTorch          {torch.found}",
        f"           {torch.reason}",
        f"           Fix: {fix.before}",
        f"             {fix.command}",
        "OK       Driver           580.95.05, for CUDA up to 13.0",
    ]
    assert lines[-2:] == [
        "skipped  CUDA runtime (none in this build of PyTorch), cuDNN, NCCL (comes with PyTorch for",
        "           CUDA), Between GPUs (one GPU)",
    ]
    assert len(diagnosis_view.text(WELL, 90).splitlines()) == 2 + len(WELL.links)


def test_text_after_a_command() -> None:
    """In a diagnosis as text, a fix's command is on a separate line, and the text after it starts on the next
    line, without punctuation. In HTML, the whole fix is one sentence."""
    doctor = diagnose(results(torch={"cu_init": 999, "cu_count": None, "available": False}))
    fix = doctor.problems[0].fix
    assert fix is not None
    assert fix.command == "sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm"
    lines = diagnosis_view.text(doctor, 90).splitlines()
    first = next(number for number, line in enumerate(lines) if "Fix:" in line)
    assert lines[first : first + 3] == [
        f"           Fix: {fix.before}",
        f"             {fix.command}",
        f"           {fix.after.removeprefix('. ')}",
    ]
    sentence = f"<b>Fix:</b> {fix.before} <code>{fix.command}</code>{fix.after}</div>"
    assert sentence in diagnosis_view.html(doctor)
    files = {"devices": devices("nvidia0", "nvidiactl", usable=False)}
    forbidden = diagnose(results(torch=NO_CUDA, machine=files))
    assert "<code>sudo usermod -aG video $USER</code>. If the group" in diagnosis_view.html(forbidden)


def test_hostile_text_is_shown_as_text() -> None:
    """If paths, variables or GPU names contain escape sequences or HTML tags, these are removed or escaped in
    the text and the HTML of a diagnosis."""
    hostile = diagnose(
        results(
            python=HOSTILE,
            variables={"CUDA_VISIBLE_DEVICES": HOSTILE},
            nvml=nvml(h200(name=HOSTILE)),
            packages={"torch": TorchFiles(HOSTILE, (), HOSTILE, None)},
        )
    )
    text, page = diagnosis_view.text(hostile), diagnosis_view.html(hostile)
    assert "\x1b" not in text
    assert "\x1b" not in page
    assert "<script" not in page


class Tags(HTMLParser):
    """HTML parser that collects tags, attribute names and text, and checks that each element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen |= {tag, *(name for name, _ in attributes)}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def test_as_html() -> None:
    """A diagnosis as HTML contains only elements and attributes that a front end keeps in an untrusted
    notebook. No status is broken into two lines, also in Chinese. The checks that passed are folded."""
    html = diagnosis_view.html(ILL)
    skipped = [check.id for check in ILL.links if check.status == "skipped"]
    assert skipped == ["cuda", "cudnn", "nccl", "peers"]
    assert html.count(";white-space:nowrap'>") == len(ILL.links) - len(skipped)
    tags = Tags(html)
    assert tags.open == []
    assert tags.seen <= {
        *("div", "table", "tbody", "tr", "td", "th", "b", "code", "details", "summary"),
        *("style", "cellpadding", "scope"),
    }
    lines = tags.text.splitlines()
    assert lines[0] == ILL.summary
    torch = ILL.links[0]
    fix = torch.issues[0].fix
    assert fix is not None
    assert lines[1:13] == [
        "BROKEN",
        "PyTorch",
        torch.found,
        torch.reason,
        "Fix:",
        f" {fix.before} ",
        fix.command,
        ".",
        "skipped: CUDA runtime (none in this build of PyTorch), cuDNN, NCCL (comes with PyTorch for CUDA), "
        "Between GPUs (one GPU)",
        f"Checks passed: {sum(check.status == 'ok' for check in ILL.links)}",
        "OK",
        "Driver",
    ]


def test_json_is_stable_and_can_be_read_back() -> None:
    """A diagnosis as JSON has fixed field names and can be parsed again. Fields that a newer version has
    added are ignored."""
    values = json.loads(json.dumps(to_json(ILL)))
    assert list(values) == [
        *("schema", "version", "time", "place", "python", "variables", "status", "summary", "unfinished"),
        *("problems", "links"),
    ]
    assert list(values["links"][0]) == [
        *("id", "title", "status", "found", "reason", "remedy", "command", "evidence", "issues")
    ]
    assert list(values["links"][0]["issues"][0]) == ["id", "status", "params", "reason", "fix"]
    assert list(values["links"][0]["issues"][0]["fix"]) == ["id", "params", "before", "command", "after"]
    assert isolated_run.parse_diagnosis(values) == ILL
    values["of_a_newer_version"] = values["links"][0]["too"] = 1
    assert isolated_run.parse_diagnosis(values) == ILL


# -- comparison with an earlier diagnosis ----------------------------------------------------------------


def test_changes_since_an_earlier_diagnosis() -> None:
    """`compare()` lists changed versions, drivers, variables and checks, with the earlier and the later value
    of each."""
    older = {
        "torch": TorchFiles("/env/lib/python3.12/site-packages/torch/__init__.py", ("/x",), "2.9.0", "12.8")
    }
    before = diagnose(
        results(
            torch={"version": "2.9.0", "cuda": "12.8"},
            nvml=nvml(h200(), driver="570.86", cuda_driver="12.8"),
            packages=older,
        )
    )
    after = diagnose(results(variables={"CUDA_VISIBLE_DEVICES": ""}))
    assert [str(change) for change in compare(before, after)] == [
        "PyTorch: 2.9.0, built for CUDA 12.8 → 2.13.0, built for CUDA 13.0",
        "CUDA runtime: 12.8 → 13.0",
        "Driver: 570.86, for CUDA up to 12.8 → 580.95.05, for CUDA up to 13.0",
        "Driver, driver: 570.86 → 580.95.05",
        "Driver, newest CUDA supported: 12.8 → 13.0",
        "Visible GPUs: all: CUDA_VISIBLE_DEVICES is not set → none (broken)",
        "variable CUDA_VISIBLE_DEVICES: nothing → ''",
    ]
    text = diagnosis_view.text(after, 100, compare(before, after))
    assert text.splitlines()[-8] == "Changed since then:"


def test_a_different_time_is_no_change() -> None:
    """Two diagnoses that differ only in their time have no changes."""
    assert compare(WELL, replace(WELL, time=WELL.time + 86400)) == ()
    assert diagnosis_view.text(WELL, 100, ()).splitlines()[-1] == "Nothing has changed since then."


def test_another_wording_is_no_change() -> None:
    """If an earlier version of gpuwidget worded the same issue differently, this is no change. If the issue's
    parameters differ, such as the GPU's number, this is a change."""

    def with_issues(*texts: tuple[str, int]) -> Diagnosis:
        found = [Issue("gpu-lost", "warning", {"gpu": gpu}, text, None) for text, gpu in texts]
        check = build_check(("gpu", "GPU"), "2", found)
        return replace(WELL, links=(check,))

    before = with_issues(("One.", 0), ("GPU 1 is lost.", 1), ("GPU 2 is lost.", 2))
    after = with_issues(("One.", 0), ("GPU 1 fell off the bus.", 1), ("GPU 3 is lost.", 3))
    assert compare(before, after) == (Change("GPU, finding 3", "GPU 2 is lost.", "GPU 3 is lost."),)


def test_a_diagnosis_of_an_older_version() -> None:
    """A diagnosis of an older version, which has no fields `issues`, can be read. Its issues are unknown."""
    values = json.loads(json.dumps(to_json(ILL)))
    for check in values["links"]:
        del check["issues"]
    links = tuple(replace(check, issues=()) for check in ILL.links)
    assert isolated_run.parse_diagnosis(values) == replace(ILL, links=links)


def test_a_check_that_only_one_of_them_has() -> None:
    """If only one of two diagnoses contains a check, the check is listed as added or removed."""
    fewer = replace(WELL, links=WELL.links[1:])
    assert compare(fewer, WELL) == (Change("PyTorch", None, "2.13.0, built for CUDA 13.0"),)
    assert compare(WELL, fewer) == (Change("PyTorch", "2.13.0, built for CUDA 13.0", None),)


# -- the command `gpuwidget doctor` ----------------------------------------------------------------------


@pytest.fixture
def diagnoses(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    """Make `gpuwidget doctor` return the first diagnosis of a list instead of running checks; return the
    list."""
    found = [WELL]

    def run_in_shell(target: Target) -> Diagnosis:
        assert (target.place, target.version) == ("shell", gpuwidget.__version__)
        return found[0]

    monkeypatch.setattr(doctor, "run_checks", run_in_shell)
    return found


def run(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run `gpuwidget doctor`; return its exit status, output and error output."""
    status = main(["doctor", *arguments])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_exit_status(diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str]) -> None:
    """`gpuwidget doctor` exits with 1 if a check is "broken" or a probe did not finish, otherwise with 0,
    even if there are warnings."""
    assert run([], capsys)[:2] == (0, f"{diagnosis_view.text(WELL, 110)}\n")
    diagnoses[0] = diagnose(results(nvml=nvml(h200(pcie_width=8))))
    assert run([], capsys)[0] == 0
    diagnoses[0] = diagnose(results(ending="hung", torch=dict.fromkeys(TORCH) | {"step": "import"}))
    assert diagnoses[0].status == "warning"
    assert run([], capsys)[0] == 1
    diagnoses[0] = ILL
    status, out, err = run(["--json"], capsys)
    assert (status, err) == (1, "")
    assert isolated_run.parse_diagnosis(json.loads(out)) == ILL


def test_diff_compares_with_a_file(
    diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`gpuwidget doctor --diff FILE` shows, as text or JSON, what has changed since the diagnosis in FILE.
    The exit status depends only on the new diagnosis."""
    file = tmp_path / "yesterday.json"
    file.write_text(run(["--json"], capsys)[1])
    assert run(["--diff", str(file)], capsys)[1].endswith("\nNothing has changed since then.\n")
    diagnoses[0] = diagnose(results(ending="hung", torch=dict.fromkeys(TORCH) | {"step": "import"}))
    assert diagnoses[0].status == "warning"
    assert run([], capsys)[0] == 1
    diagnoses[0] = ILL
    status, out, _ = run(["--json", "--diff", str(file)], capsys)
    changed = json.loads(out)["changes"]
    assert status == 1
    assert changed[0] == {
        "what": "PyTorch",
        "before": "2.13.0, built for CUDA 13.0",
        "after": "2.13.0+cpu, built for the CPU only (broken)",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [("no JSON", "The file isn't JSON."), ("{}", "This is not a diagnosis made by gpuwidget.")],
)
def test_a_file_without_a_diagnosis_is_an_error(
    diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, why: str
) -> None:
    """If FILE contains no diagnosis, `gpuwidget doctor --diff FILE` exits with 2 before it runs any check,
    and explains how to save a diagnosis to a file."""
    file = tmp_path / "x"
    file.write_text(text)
    diagnoses.clear()
    make = "Save a diagnosis with: gpuwidget doctor --json >FILE."
    expected = f"gpuwidget: Can't compare with {str(file)!r}: {why} {make}\n"
    assert run(["--diff", str(file)], capsys) == (2, "", expected)
    assert run(["--diff", str(tmp_path / "nowhere")], capsys)[0] == 2


def test_options_of_other_commands_are_not_ignored(
    diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str]
) -> None:
    """`gpuwidget -i 5 doctor` is a usage error, because the doctor has no interval. `gpuwidget --json doctor`
    works."""
    assert main(["-i", "5", "doctor"]) == 2
    assert capsys.readouterr().err == "gpuwidget: doctor does not accept --interval.\n"
    assert main(["--json", "doctor"]) == 0
    assert isolated_run.parse_diagnosis(json.loads(capsys.readouterr().out)) == WELL


def test_an_invalid_source_does_not_stop_the_doctor(
    diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an invalid GPUWIDGET_SOURCE, `gpuwidget doctor` still runs."""
    monkeypatch.setenv("GPUWIDGET_SOURCE", "nvlm")
    assert run([], capsys)[0] == 0


def test_a_file_written_by_another_shell(
    diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The output of `gpuwidget doctor --json` is pure ASCII. --diff accepts a file that begins with a byte
    order mark, which some shells add."""
    diagnoses[0] = diagnose(results(variables={"CUDA_VISIBLE_DEVICES": "\N{SNOWMAN}"}))
    out = run(["--json"], capsys)[1]
    assert out.isascii()
    assert doctor_command.DiagnosisDisplay(diagnoses[0]).to_json().isascii()
    file = tmp_path / "yesterday.json"
    file.write_text(out, encoding="utf-8-sig")
    assert run(["--diff", str(file)], capsys)[1].endswith("\nNothing has changed since then.\n")


@pytest.mark.parametrize("part", ["variables", "evidence"])
def test_a_diagnosis_without_its_evidence(
    diagnoses: list[Diagnosis], capsys: pytest.CaptureFixture[str], tmp_path: Path, part: str
) -> None:
    """If a required field of the diagnosis in FILE is null, `gpuwidget doctor --diff FILE` reports a usage
    error and does not crash."""
    values = to_json(WELL)
    (values if part == "variables" else values["links"][3])[part] = None
    file = tmp_path / "x"
    file.write_text(json.dumps(values))
    status, _, error = run(["--diff", str(file)], capsys)
    assert (status, "This is not a diagnosis made by gpuwidget." in error) == (2, True)


# -- the function gpuwidget.doctor() ---------------------------------------------------------------------


def test_from_python_nothing_is_imported_or_started(tmp_path: Path) -> None:
    """`gpuwidget.doctor()` returns a diagnosis of torch without importing torch, pynvml, bqplot or IPython
    into the calling process."""
    fake_torch(tmp_path, WORKING)
    code = (
        "import gpuwidget, json, sys\n"
        "found = gpuwidget.doctor()\n"
        "loaded = [name for name in ('torch', 'pynvml', 'bqplot', 'IPython') if name in sys.modules]\n"
        "bundle, _ = found._repr_mimebundle_()\n"
        "same = repr(found) == bundle['text/plain']\n"
        "print(json.dumps([loaded, found.to_dict(), sorted(bundle), same, found.ok]))"
    )
    path = f"{tmp_path}:{Path(gpuwidget.__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    loaded, values, bundle, same, ok = json.loads(done.stdout)
    found: dict[str, Any] = {check["id"]: check for check in values["links"]}
    assert (loaded, bundle, same, values["place"]) == ([], ["text/html", "text/plain"], True, "shell")
    assert found["torch"]["found"] == "2.10.0, built for CUDA 12.8"
    assert ok is (values["status"] != "broken")


def test_settings_of_the_notebooks_torch_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, the cuDNN setting, CUDA devices and CPU threads of the notebook's torch and the
    DataLoaders without workers are passed to the diagnosis, because a probe process can't read them."""
    asked: list[NotebookState] = []

    def run(place: str, version: str, environment: object, *, notebook: NotebookState) -> Diagnosis:
        asked.append(notebook)
        return WELL

    monkeypatch.setattr(isolated_run, "run_in_subprocess", run)
    monkeypatch.setattr(pytorch, "compute_switches", lambda: None)
    doctor_command.doctor()
    off = ComputeSwitches(tf32_matmul=None, tf32_conv=None, cudnn=False)
    monkeypatch.setattr(pytorch, "compute_switches", lambda: off)
    assert doctor_command.doctor().doctor == WELL
    assert [(one.cudnn_off, one.devices) for one in asked] == [(False, None), (True, None)]
    monkeypatch.setattr(pytorch, "devices", lambda: (TorchDevice(0, "aa-bb"), TorchDevice(1, None)))
    doctor_command.doctor()
    assert asked[2].devices == ["aa-bb", None]
    loaders = [Loader(name, workers, False, None, False) for name, workers in (("train", 0), ("test", 4))]
    monkeypatch.setattr(pytorch, "loaders", lambda _variables: loaders)
    monkeypatch.setattr(pytorch, "cpu_threads", lambda: 1)
    doctor_command.doctor()
    assert (asked[3].cpu_threads, asked[3].loaders) == (1, ["train"])
