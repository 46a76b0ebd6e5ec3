"""Tests of the ids and parameters of the doctor's issues and fixes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_doctor import NO_CUDA, build, check_of, h200, no_driver, nvml, results

import gpuwidget.diagnostics
from gpuwidget.diagnostics.issues import add_issues, build_check
from gpuwidget.diagnostics.messages import FixTemplate, IssueTemplate
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Issue
from gpuwidget.model.to_json import to_json

FOLDER = Path(gpuwidget.diagnostics.__file__ or "").parent
WITH_ID = ("Issue", "Fix", "IssueTemplate", "FixTemplate")
"""The functions and classes whose first argument is the id of an issue or a fix."""


def ids() -> Iterator[str]:
    """Yield the id of each issue and fix in the message modules. If texts of one issue or fix stand one after
    the other, its id occurs once."""
    for file in FOLDER.glob("messages_*.py"):
        last = None
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in WITH_ID:
                assert isinstance(node.args[0], ast.Constant), ast.unparse(node)
                if last != node.args[0].value:
                    yield str(node.args[0].value)
                last = node.args[0].value


def test_each_id_belongs_to_one_message() -> None:
    """No two issues or fixes have the same id, so that an id always identifies the same text."""
    found = list(ids())
    assert sorted(found) == sorted(set(found))
    assert [one for one in found if re.fullmatch(r"[a-z]+(-[a-z]+)*", one) is None] == []


def test_issues_and_fixes_are_phrased_in_the_message_modules_only() -> None:
    """Issues and fixes are created only in the message modules, so that these modules contain all their
    texts."""
    for file in FOLDER.glob("*.py"):
        if not file.stem.startswith("messages"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in WITH_ID:
                    # isolated_run creates issues and fixes too, but only from JSON.
                    assert (node.args, file.stem) == ([], "isolated_run")


TOO_OLD = results(
    torch={"cuda": "13.0", "available": False}, nvml=nvml(h200(), driver="570.124.06", cuda_driver="12.8")
)


@pytest.mark.parametrize(
    ("which", "of", "issue", "fix"),
    [
        (
            "driver",
            TOO_OLD,
            ("driver-too-old", {"driver": "570.124.06", "cuda": "13.0", "minimum": "580"}),
            (
                "update-driver-or-install-torch",
                {"minimum": "580", "cuda": "12.6", "last_torch": "2.14"},
            ),
        ),
        (
            "driver",
            results(torch=NO_CUDA, nvml=no_driver(4, "Insufficient Permissions")),
            ("driver-start-failed", {"code": 4, "error": "Insufficient Permissions"}),
            ("fix-driver-start", {"code": 4}),
        ),
        (
            "visible",
            results(variables={"CUDA_VISIBLE_DEVICES": "0,7"}),
            (
                "visible-devices-entry-rejected",
                {"value": "0,7", "entry": "7", "why": "out-of-range", "number": 1},
            ),
            ("set-visible-devices", {}),
        ),
        (
            "sharing",
            results(nvml=nvml(h200(), h200(1, compute_mode="prohibited"))),
            ("compute-mode-prohibited", {"gpus": (1,)}),
            ("allow-cuda", {"gpu": 1}),
        ),
    ],
)
def test_ids_and_parameters(
    which: str, of: ProbeResults, issue: tuple[str, Any], fix: tuple[str, Any]
) -> None:
    """Each issue and each fix has a fixed id, and its parameters are the values that its text contains."""
    worst = check_of(which, of).issues[0]
    assert worst.fix is not None
    assert (worst.id, worst.params) == issue
    assert (worst.fix.id, worst.fix.params) == fix
    assert json.loads(json.dumps(to_json(worst)))["id"] == issue[0]


def test_a_fix_with_text_after_its_command() -> None:
    """A fix can have a text before its command and a text after it. The check's remedy consists of the text
    before, the command and the text after."""
    check = check_of("driver", TOO_OLD)
    fix = check.issues[0].fix
    assert fix is not None
    assert (fix.before, fix.command, fix.after) == (
        "Update the driver to 580 or newer, or install a PyTorch built with CUDA 12.6:",
        build("cu126"),
        ". PyTorch 2.14 is the last version with such a build.",
    )
    assert (check.remedy, check.command) == (fix.text, fix.command)


def issue(id_: str, status: Any) -> Issue:
    return Issue(id_, status, {}, f"This is {id_}.", None)


def test_all_issues_are_listed_worst_first() -> None:
    """A check lists its issues, the worst first. Its evidence contains the texts of all issues but the worst.

    Issues that are added to the check later are sorted in the same way.
    """
    doubtful, small, large = issue("doubtful", "unknown"), issue("small", "warning"), issue("large", "broken")
    check = build_check(("gpu", "GPU"), "1", [doubtful, small], {"name": "H200"})
    assert (check.status, check.reason, check.issues) == ("warning", "This is small.", (small, doubtful))
    assert check.evidence == {"name": "H200", "finding 2": "This is doubtful."}
    more = add_issues(check, [large])
    assert (more.status, more.reason, more.issues) == ("broken", "This is large.", (large, small, doubtful))
    assert more.evidence == {
        "name": "H200",
        "finding 2": "This is small.",
        "finding 3": "This is doubtful.",
    }


def test_a_record_has_a_fix_and_more_sentences() -> None:
    """An issue gives its values to its fix. Sentences after a reason or a command are left out if their
    values are unknown. A call may pass another status or fix."""
    fix = FixTemplate("limit", "Run on GPU {gpu}:", "run {gpu}", "Then wait {seconds} s.")
    made = IssueTemplate("slow", "warning", "GPU {gpu} is slow.", fix, "It takes {seconds} s.")
    one, other = made(gpu=1, seconds=None), made(gpu=2, status="broken", shown={"seconds": 3})
    assert (one.status, one.reason, one.params) == ("warning", "GPU 1 is slow.", {"gpu": 1, "seconds": None})
    assert one.fix is not None
    assert other.fix is not None
    assert (one.fix.text, one.fix.params) == ("Run on GPU 1: run 1.", {"gpu": 1, "seconds": None})
    assert (other.status, other.reason, other.params) == (
        "broken",
        "GPU 2 is slow. It takes 3 s.",
        {"gpu": 2},
    )
    assert other.fix.text == "Run on GPU 2: run 2. Then wait 3 s."
    assert made(gpu=1, seconds=None, fix=other.fix).fix == other.fix
