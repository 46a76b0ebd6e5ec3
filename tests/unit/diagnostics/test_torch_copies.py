"""Tests of a torch that hides another torch: the doctor reports both, what put the first one into
``sys.path``, and a fix that removes it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from helpers_doctor import fix, issue, outcome
from helpers_faults import FaultMachine

from gpuwidget.model.diagnosis import Check
from gpuwidget.model.translation import _, use_language

OWN = "2.13.0+cu130"


def torch_check(machine: FaultMachine) -> Check:
    return machine.run_doctor().links[0]


def hides(first: object, second: object, source: str, set_in: object = None) -> tuple[str, Any]:
    """Return the issue of a torch in the folder ``first`` that hides one in ``second``."""
    return issue(
        "torch-shadowed",
        first=f"{first}/torch",
        second=f"{second}/torch",
        source=source,
        set_in=None if set_in is None else str(set_in),
    )


@pytest.fixture
def machine(fault_machine: FaultMachine) -> FaultMachine:
    """Return a machine whose environment has a working torch."""
    fault_machine.install_all()
    return fault_machine


@pytest.mark.parametrize(
    ("rest", "command"), [([], "unset PYTHONPATH"), (["/a b", "/c"], "export PYTHONPATH='/a b:/c'")]
)
def test_a_torch_in_pythonpath(machine: FaultMachine, rest: list[str], command: str) -> None:
    """For a torch in a folder of PYTHONPATH, the command removes only this folder from the variable. After
    the command, the environment's own torch is imported."""
    cluster = machine.folder / "cluster"
    machine.install_cpu_torch(cluster)
    machine.variables["PYTHONPATH"] = ":".join([str(cluster), *rest])
    found = torch_check(machine)
    assert outcome(found) == (
        "broken",
        hides(cluster, machine.site, "pythonpath", cluster),
        fix("remove-from-pythonpath", command, entry=str(cluster)),
    )
    assert (found.reason or "").endswith("is built for the CPU only.")
    assert "Jupyter" in (found.remedy or "")
    print_it = f'{found.command}; printf %s "$PYTHONPATH"'
    done = subprocess.run(["/bin/sh", "-c", print_it], env=machine.variables, capture_output=True, text=True)
    machine.variables["PYTHONPATH"] = done.stdout
    assert torch_check(machine).status == "ok"


def test_a_torch_in_pythonpath_in_a_shell(machine: FaultMachine) -> None:
    """In a shell, the fix does not mention Jupyter."""
    machine.install_cpu_torch(machine.folder / "cluster")
    machine.variables["PYTHONPATH"] = str(machine.folder / "cluster")
    machine.place = "shell"
    found = torch_check(machine)
    cluster = str(machine.folder / "cluster")
    assert outcome(found)[2] == fix("remove-from-pythonpath", "unset PYTHONPATH", entry=cluster)
    assert "Jupyter" not in (found.remedy or "")


def test_a_torch_of_the_user(machine: FaultMachine) -> None:
    """For a torch that `pip install --user` installed, the command uninstalls this copy with the interpreter
    of the environment, whose pip finds it first."""
    machine.install_cpu_torch(machine.user_site)
    assert outcome(torch_check(machine)) == (
        "broken",
        hides(machine.user_site, machine.site, "user-site"),
        fix(
            "remove-torch-copy",
            f"{machine.python} -m pip uninstall -y torch",
            folder=str(machine.user_site),
        ),
    )


def test_a_users_torch_without_metadata(machine: FaultMachine) -> None:
    """If a copy has no metadata, pip would uninstall the environment's torch instead, so the fix is to rename
    the folder of the copy."""
    machine.install_cpu_torch(machine.user_site)
    for file in machine.user_site.glob("*.dist-info/*"):
        file.unlink()
    for folder in machine.user_site.glob("*.dist-info"):
        folder.rmdir()
    found = torch_check(machine)
    assert found.status == "broken"
    assert outcome(found)[2] == fix("rename-file", file=f"{machine.user_site}/torch")


def test_a_torch_that_a_virtual_environment_hides(machine: FaultMachine) -> None:
    """If the environment has a CPU build and a later folder has a build for CUDA, the fix uninstalls the CPU
    build. The command never uninstalls a build for CUDA."""
    machine.uninstall("torch")
    machine.install_cpu_torch()
    later = machine.folder / "later"
    machine.install_torch(later)
    (machine.site / "later.pth").write_text(f"{later}\n")
    assert outcome(torch_check(machine)) == (
        "broken",
        hides(machine.site, later, "environment"),
        fix("remove-torch-copy", f"{machine.python} -m pip uninstall -y torch", folder=str(machine.site)),
    )


def test_a_torch_that_code_has_added(machine: FaultMachine) -> None:
    """If neither PYTHONPATH nor a .pth file contains the folder of the first torch, the doctor attributes it
    to code, and offers no command."""
    other = machine.folder / "other"
    machine.install_cpu_torch(other)
    machine.first = [str(other)]
    assert outcome(torch_check(machine)) == (
        "broken",
        hides(other, machine.site, "code"),
        fix("remove-from-code", folder=str(other)),
    )


def test_a_torch_of_a_pth_file(machine: FaultMachine) -> None:
    """If a .pth file contains the folder of the first torch, the fix names the file."""
    other, file = machine.folder / "other", machine.site / "a.pth"
    machine.install_cpu_torch(other)
    file.write_text(f"# a comment\n{other}\n")
    machine.first = [str(other)]
    assert outcome(torch_check(machine)) == (
        "broken",
        hides(other, machine.site, "pth-file", file),
        fix("remove-from-pth-file", folder=str(other), file=str(file)),
    )


def test_a_translated_text(machine: FaultMachine) -> None:
    """In another language, the words between versions and folders are translated, too."""
    machine.install_cpu_torch(machine.user_site)
    reason = torch_check(machine).reason
    with use_language("zh_CN"):
        assert _(reason or "").startswith(
            f"'import torch' 找到的是 {machine.user_site} 中的 2.9.0+cpu，而不是 {machine.site} 中的 {OWN}："
        )


def test_a_torch_that_fails_and_hides_another(machine: FaultMachine) -> None:
    """If the first copy can't be imported, for example a checkout that was not built, the reason contains the
    error, and the fix removes the copy instead of repairing it."""
    checkout = machine.folder / "checkout"
    machine.install_torch(checkout, imports="raise ImportError('No C extensions:\\nmore')")
    machine.install_libraries(site=checkout)
    machine.variables["PYTHONPATH"] = str(checkout)
    found = torch_check(machine)
    assert outcome(found) == (
        "broken",
        hides(checkout, machine.site, "pythonpath", checkout),
        fix("remove-from-pythonpath", "unset PYTHONPATH", entry=str(checkout)),
    )
    assert (found.reason or "").endswith(": No C extensions.")


def test_another_version_that_works(machine: FaultMachine) -> None:
    """If the first copy is another version that works, it is a warning. The same build is no issue, and
    neither is a second copy without CUDA, because then the first copy is the right one."""
    same, cluster = machine.folder / "same", machine.folder / "cluster"
    for folder in (same, cluster):
        machine.install_libraries(site=folder)
    machine.install_torch(same)
    machine.variables["PYTHONPATH"] = str(same)
    assert torch_check(machine).status == "ok"
    machine.install_torch(cluster, version="2.10.0+cu130")
    machine.variables["PYTHONPATH"] = str(cluster)
    assert outcome(torch_check(machine))[:2] == (
        "warning",
        hides(cluster, machine.site, "pythonpath", cluster),
    )
    machine.uninstall("torch")
    machine.install_cpu_torch()
    assert torch_check(machine).status == "ok"


@pytest.mark.parametrize("name", ["torch.py", "torch/__init__.py"])
def test_a_torch_in_the_working_directory(
    machine: FaultMachine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch.py or a torch package beside the notebook is reported with the path of the torch that it
    hides."""
    here = machine.folder / "notebooks"
    (here / name).parent.mkdir(parents=True)
    (here / name).write_text("__version__ = '0'\n")
    monkeypatch.chdir(here)
    machine.first = [""]
    assert outcome(torch_check(machine)) == (
        "broken",
        issue(
            "torch-hidden",
            file=str(here / name),
            second=f"{machine.site}/torch",
            source="working-directory",
        ),
        fix("rename-file", file=str(here / name)),
    )


def test_a_checkout_of_torch_in_the_working_directory(
    machine: FaultMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout of torch in the working directory is reported with the torch that it hides. The fix is
    another working directory."""
    here = machine.folder / "pytorch"
    machine.install_torch(here)
    monkeypatch.chdir(here)
    machine.first = [""]
    assert outcome(torch_check(machine)) == (
        "unknown",
        issue(
            "torch-in-working-directory",
            file=f"{here}/torch/__init__.py",
            second=f"{machine.site}/torch",
        ),
        fix("use-another-folder"),
    )


def test_leftovers_without_init(machine: FaultMachine) -> None:
    """A folder torch without __init__.py does no harm beside a torch in a later folder. If it is all that is
    left, the doctor reports it, and the fix deletes it and installs torch."""
    rest = machine.user_site / "torch/lib"
    rest.mkdir(parents=True)
    assert torch_check(machine).status == "ok"
    machine.uninstall("torch")
    rest.parent.joinpath("lib").rmdir()
    rest.parent.rmdir()
    (machine.site / "torch/test").mkdir(parents=True)
    folder = f"{machine.site}/torch"
    assert outcome(torch_check(machine)) == (
        "broken",
        issue("torch-leftovers", folder=folder),
        fix("replace-torch-leftovers", f"{machine.python} -m pip install torch", folder=folder),
    )


def test_a_folder_named_torch(fault_machine: FaultMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no torch is installed, a user's folder named torch in the working directory is what `import torch`
    finds. The fix is to rename it."""
    here = fault_machine.folder / "notebooks"
    (here / "torch").mkdir(parents=True)
    monkeypatch.chdir(here)
    fault_machine.first = [""]
    file = f"{here}/torch"
    assert outcome(torch_check(fault_machine)) == (
        "broken",
        issue("torch-hidden", file=file, second=None, source="working-directory"),
        fix("rename-file", file=file),
    )


def test_two_metadata_in_one_folder(machine: FaultMachine) -> None:
    """If a folder has the metadata of two versions of torch, the doctor names both versions."""
    machine.install_torch(version="2.12.0+cu130")
    found = torch_check(machine)
    assert {issue.id for issue in found.issues} >= {"torch-copies"}
    versions = {tuple(sorted(issue.params.get("versions", ()))) for issue in found.issues}
    assert ("2.12.0+cu130", "2.13.0+cu130") in versions


def test_paths_of_the_environment_itself(machine: FaultMachine) -> None:
    """The environment's own folder is not attributed to PYTHONPATH if the variable contains it as well."""
    machine.variables["PYTHONPATH"] = str(machine.site)
    check = torch_check(machine)
    assert (check.status, check.evidence["copies"]) == ("ok", f"{OWN} in {machine.site}")
