"""Tests of the removal of private data from a diagnosis."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers_doctor import results

from gpuwidget.diagnostics.machine import VARIABLES
from gpuwidget.diagnostics.private_data import UserPaths, clean_text, remove_private_data
from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.model.diagnosis import Diagnosis, Fix, Issue
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import Text, capitalized, translatable

ADA = UserPaths(("/data/homes/ada", "/home/ada"), {"ada": "$USER", "ada.l": "$JUPYTERHUB_USER"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada", "~"),
        ("/home/ada/venv/bin/python", "~/venv/bin/python"),
        ("/data/homes/ada/x", "~/x"),
        ("/usr/lib:/home/ada/lib:/home/ada", "/usr/lib:~/lib:~"),
        (
            "The file '/home/ada/a b.so' (see /home/ada) is in /home/ada.",
            "The file '~/a b.so' (see ~) is in ~.",
        ),
        ("LD_PRELOAD=/home/ada/x.so -L/home/ada/lib", "LD_PRELOAD=~/x.so -L~/lib"),
        ("file:///home/ada/x", "file://~/x"),
        # The user's name in other paths.
        ("/scratch/ada/env/lib", "/scratch/$USER/env/lib"),
        ("/home2/ada, /Users/ada.l/x", "/home2/$USER, /Users/$USER/x"),
        ("/mnt/home/ada/x", "/mnt/home/$USER/x"),
        ("/home/ada/old/ada", "~/old/$USER"),
        # Other users, other names, and folders of the system.
        ("/home/ben/x /home/adam/x", "/home/ben/x /home/adam/x"),
        ("/home/ada-2 /home/ada.old /home/ada_2", "/home/ada-2 /home/ada.old /home/ada_2"),
        ("/usr/lib/ada/x /proc/ada", "/usr/lib/ada/x /proc/ada"),
        ("ada ran ada/x", "ada ran ada/x"),
        ("", ""),
        # Secrets.
        ("/home/ada/x --token SECRET", "~/x --token [redacted]"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    """In a text, the user's home folder is ~ and the user's name in other paths is $USER.
    Home folders of other users stay."""
    assert clean_text(text, ADA) == shown


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/home/ada/bin/python -m pip", "~/bin/python -m pip"),
        ("cd /home/ada && rm /home/ada/x", "cd ~ && rm ~/x"),
        ("'/home/ada/my env/bin/python' -m pip", "~/'my env/bin/python' -m pip"),
        ("run '/home/ada/my env/ada/x'", "run ~/'my env/'\"$USER\"'/x'"),
        ('"/home/ada/x" "/a/ada/b"', '"$HOME/x" "/a/$USER/b"'),
        ("export LD_LIBRARY_PATH=/home/ada/a:/home/ada/b", "export LD_LIBRARY_PATH=$HOME/a:$HOME/b"),
        ("x --a=/home/ada/b '--c=/home/ada/d e'", "x --a=$HOME/b '--c='\"$HOME\"'/d e'"),
        ("rm -r /scratch/ada/x '/a b/ada'", "rm -r /scratch/$USER/x '/a b/'\"$USER\"''"),
        ("rm /scratch/ada.l/x", "rm /scratch/$JUPYTERHUB_USER/x"),
        ("pip install torch==2.9.0", "pip install torch==2.9.0"),
    ],
)
def test_commands(command: str, shown: str) -> None:
    """A shortened command has the same words for the user's shell as the command with full paths."""
    assert ADA.shorten_command(command) == shown
    variables = {"HOME": "/home/ada", "USER": "ada", "JUPYTERHUB_USER": "ada.l", "PATH": os.defpath}

    def words(line: str) -> bytes:
        script = f"set -f; printf '%s\\n' {line.replace('&&', 'and')}"
        return subprocess.run(["sh", "-c", script], env=variables, capture_output=True, check=True).stdout

    assert words(shown) == words(command)


def test_the_user_of_this_process() -> None:
    """The home folder and the names come from the environment, or else from the user database."""
    entry = pwd.getpwuid(os.getuid())
    found = UserPaths.find({"HOME": "/home/ada/", "USER": "ada", "JUPYTERHUB_USER": "ada.l"})
    assert found.homes == ("/home/ada",)
    assert (found.names["ada"], found.names["ada.l"]) == ("$USER", "$JUPYTERHUB_USER")
    assert UserPaths.find({"HOME": "/"}).homes == ()
    assert UserPaths.find({"HOME": "relative"}).homes == ()
    assert entry.pw_dir in UserPaths.find({}).homes
    assert "root" not in UserPaths.find({"USER": "root"}).names


def test_a_home_folder_that_is_a_link(tmp_path: Path) -> None:
    """The home folder is also shortened in paths in which its links are resolved."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    user = UserPaths.find({"HOME": str(tmp_path / "link")})
    assert user.shorten(f"{tmp_path}/link/a {tmp_path}/real/b {tmp_path}/c") == f"~/a ~/b {tmp_path}/c"


def diagnosis() -> Diagnosis:
    """Return a diagnosis in which every check refers to the home folder."""
    made = diagnose(results())
    fix = Fix(
        "x",
        {"folder": "/home/ada/a"},
        translatable("Delete {folder} with", folder="/home/ada/a"),
        "rm '/home/ada/a b'",
        translatable(", as {file}.", file="/home/ada/f"),
    )
    reason = capitalized(
        translatable("{file} is in {folders:and}.", file="it", folders=("/home/ada/a", "/b"))
    )
    issue = Issue("y", "broken", {"folders": ("/home/ada/a", "/b")}, reason, fix)
    links = tuple(
        replace(
            check,
            found=translatable("found in {folder}", folder="/home/ada/c"),
            status="broken",
            reason=issue.reason,
            remedy=fix.text,
            command=fix.command,
            issues=(issue,),
            evidence={"library in /home/ada/d": "/home/ada/d/lib.so", "API_TOKEN=SECRET": "TOKEN=SECRET"},
        )
        for check in made.links
    )
    return replace(
        made, links=links, python="/home/ada/bin/python", variables={"LD_LIBRARY_PATH": "/home/ada/lib:/b"}
    )


def test_every_part_of_a_diagnosis() -> None:
    """All strings of a diagnosis are cleaned: texts, their parameters, commands, evidence, variables."""
    cleaned = remove_private_data(diagnosis(), ADA)
    values: Any = to_json(cleaned)
    assert [word for word in ("ada", "SECRET") if word in json.dumps(values)] == []
    assert (values["python"], values["variables"]) == ("~/bin/python", {"LD_LIBRARY_PATH": "~/lib:/b"})
    check = cleaned.links[0]
    assert (check.found, check.reason) == ("found in ~/c", "It is in ~/a and /b.")
    assert check.remedy == "Delete ~/a with rm ~/'a b', as ~/f."
    assert check.command == "rm ~/'a b'"
    assert check.evidence == {"library in ~/d": "~/d/lib.so", "API_TOKEN=[redacted]": "TOKEN=[redacted]"}
    (issue,) = check.issues
    assert (issue.params, issue.reason) == ({"folders": ("~/a", "/b")}, check.reason)
    assert issue.fix is not None
    assert (issue.fix.text, issue.fix.command) == (check.remedy, check.command)


def test_texts_can_still_be_translated() -> None:
    """A cleaned text keeps its template, so that it can be translated."""
    check = remove_private_data(diagnosis(), ADA).links[0]
    assert isinstance(check.found, Text)
    assert (check.found.template, check.found.params) == ("found in {folder}", {"folder": "~/c"})
    assert isinstance(check.reason, Text)
    assert check.reason.template == "{file} is in {folders:and}."


def test_only_variables_that_concern_gpus() -> None:
    """A diagnosis contains only environment variables of CUDA, NCCL, torch, the dynamic loader, gpuwidget
    and Python's search for modules. The variables of the user, such as tokens, are not among them."""
    others = ("HF_TOKEN", "HOME", "USER", "PATH", "CONDA_PREFIX", "VIRTUAL_ENV")
    everything = dict.fromkeys((*VARIABLES, *others), "1")
    shown = diagnose(replace(results(), variables=everything)).variables
    assert sorted(shown) == sorted(VARIABLES)
    prefixes = ("CUDA_", "CUDNN_", "GPUWIDGET_", "LD_", "NCCL_", "NVIDIA_", "OMP_", "PYTORCH_", "PYTHON")
    assert [name for name in shown if not name.startswith(prefixes)] == []
