"""Tests on two real GPUs of choosing a default device: what the choice changes in torch, CuPy and Numba, and
on which GPUs CUDA contexts are opened."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from helpers_gpu import run_program

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus]

SHELL = """
import os, sys, threading
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(code):
    ran = shell.run_cell(code)
    return ran.result
def contexts():
    import torch
    if not torch.cuda.is_initialized():
        return []
    return [i for i in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(i)]
cell("%load_ext gpuwidget")
cell("import gpuwidget")
"""

WHERE = """
def where():
    import torch
    made = (torch.empty(3), torch.empty(3, device="cuda"), torch.empty(3, device="cpu").cuda())
    return [str(one.device) for one in made] + [torch.cuda.current_device()]
"""


def run_cells(code: str, **environment: str) -> Any:
    """Run ``code`` in a process with an IPython shell, and return its variable ``result``. In ``code``,
    ``cell(…)`` runs a cell."""
    return run_program(f"{SHELL}{WHERE}\n{code}", **environment)


def test_the_next_cell_uses_the_default_device() -> None:
    """After %gpu device cuda:1, new tensors are on cuda:1, and "cuda", .cuda() and the current device mean
    cuda:1. After '%gpu device none', all of this is as before."""
    result = run_cells(
        "cell('import torch; torch.cuda.init()')\n"
        "shell.user_ns['where'] = where\n"
        "cell('%gpu device cuda:1')\nafter = cell('where()')\n"
        "cell('%gpu device none')\nresult = [after, cell('where()')]"
    )
    assert result == [["cuda:1", "cuda:1", "cuda:1", 1], ["cpu", "cuda:0", "cuda:0", 0]]


def test_setting_the_device_opens_no_context() -> None:
    """Choosing a default device does not initialize CUDA, and the driver lists this process on no GPU."""
    result = run_cells(
        "cell('import torch')\ncell('%gpu device cuda:1')\n"
        "for _ in range(3): cell('torch.ones(3, device=\"cpu\")')\n"
        "cell('gpuwidget.devices()')\n"
        "import torch\n"
        "mine = [r.uuid for r in cell('gpuwidget.sample()').readings for p in (r.processes or ()) "
        "if p.pid == os.getpid()]\n"
        "result = [torch.cuda.is_initialized(), mine]"
    )
    assert result == [False, []]


def test_a_fork_after_setting_the_device_can_use_cuda() -> None:
    """After a default device was chosen, a forked child process can still use CUDA, because choosing does not
    initialize CUDA."""
    result = run_cells(
        """
        cell('import torch')
        cell('%gpu device cuda:1')
        cell('1')
        import torch
        child = os.fork()
        if child == 0:
            try:
                torch.ones(1, device="cuda:0").item()
                os._exit(0)
            except BaseException:
                os._exit(1)
        result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        """.replace("\n        ", "\n")
    )
    assert result == 0


@pytest.mark.parametrize("light", ["", " --light"])
def test_the_cell_that_initializes_cuda_uses_the_device(light: str) -> None:
    """The first cell that uses the device "cuda" already uses the chosen GPU, and no context is opened on
    another GPU."""
    result = run_cells(
        f"cell('import torch')\ncell('%gpu device cuda:1{light}')\n"
        "first = cell('str(torch.ones(3, device=\"cuda\").device)')\n"
        "result = [first, contexts()]"
    )
    assert result == ["cuda:1", [1]]


def test_none_opens_no_context_on_the_previous_gpu() -> None:
    """After '%gpu device none', torch's current device is cuda:0 again, but no context is opened on
    cuda:0."""
    result = run_cells(
        "cell('import torch')\ncell('%gpu device cuda:1')\ncell('torch.ones(3)')\ncell('%gpu device none')\n"
        "result = [cell('torch.cuda.current_device()'), contexts()]"
    )
    assert result == [0, [1]]


def test_torch_set_device_in_user_code_wins() -> None:
    """If user code calls set_device(0) after another device was chosen, cuda:0 is the current device, even if
    this call initializes CUDA."""
    result = run_cells(
        "cell('import torch')\ncell('%gpu device cuda:1 --light')\ncell('torch.cuda.set_device(0)')\n"
        "result = cell('torch.cuda.current_device()')"
    )
    assert result == 0


def test_the_device_of_one_cell() -> None:
    """%%gpuwatch --device changes the device for this cell only, even if the cell fails."""
    result = run_cells(
        "cell('import torch; torch.cuda.init()')\nseen = []\nshell.user_ns.update(seen=seen, where=where)\n"
        "cell('%%gpuwatch --device cuda:1\\nseen.append(where())\\n1 / 0')\nresult = [*seen, cell('where()')]"
    )
    assert result == [["cuda:1", "cuda:1", "cuda:1", 1], ["cpu", "cuda:0", "cuda:0", 0]]


@pytest.mark.parametrize(
    ("package", "current"),
    [("cupy", "cupy.cuda.Device().id"), ("numba", "__import__('numba.cuda').cuda.get_current_device().id")],
)
def test_other_libraries_follow(package: str, current: str) -> None:
    """CuPy and Numba also use the chosen device, even if they have used another one before."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    result = run_cells(
        f"cell('import torch, {package}; torch.cuda.init()')\nfound = []\n"
        "for device in ('cuda:1', 'cuda:0', 'cuda:1', 'none'):\n"
        "    cell(f'%gpu device {device}')\n"
        f"    found.append(cell({current!r}))\n"
        "result = found"
    )
    assert result == [1, 0, 1, 0]


@pytest.mark.parametrize("visible", ["0,1", "1,0", "1"])
def test_choices_are_joined_by_uuid(visible: str) -> None:
    """Each cuda:N is matched with the right GPU for any CUDA_VISIBLE_DEVICES, before and after CUDA is
    initialized."""
    result = run_cells(
        "code = '[(d.device, d.index, d.uuid is not None, d.memory_free is not None) '\\\n"
        "      'for d in gpuwidget.devices()]'\n"
        "cell('import torch')\nbefore = cell(code)\ncell('torch.cuda.init()')\nresult = [before, cell(code)]",
        CUDA_VISIBLE_DEVICES=visible,
    )
    expected: list[list[Any]] = [["cpu", None, False, False]]
    expected += [[f"cuda:{n}", int(i), True, True] for n, i in enumerate(visible.split(","))]
    assert result == [expected, expected]


def test_a_new_thread_has_torchs_default() -> None:
    """As documented, a new thread has torch's own default devices, cpu and cuda:0, even if another device was
    chosen."""
    result = run_cells(
        "cell('import torch; torch.cuda.init()')\ncell('%gpu device cuda:1')\nfound = []\n"
        "shell.user_ns.update(found=found, where=where)\n"
        "cell('import threading; t = threading.Thread(target=lambda: found.append(where()))')\n"
        "cell('t.start(); t.join()')\n"
        "result = found[0]"
    )
    assert result == ["cpu", "cuda:0", "cuda:0", 0]


def test_shuffling_fails_and_works_with_the_fix() -> None:
    """While a default device is chosen, a DataLoader with shuffle=True fails. With the fix from the hint
    below the error, the DataLoader works."""
    result = run_cells(
        """
        from gpuwidget.kernel.error_hints import hint
        cell('import torch; from torch.utils.data import DataLoader')
        cell('%gpu device cuda:1')
        failed = shell.run_cell('list(DataLoader(list(range(8)), shuffle=True))')
        fixed = shell.run_cell(
            'list(DataLoader(list(range(8)), shuffle=True, generator=torch.Generator(device="cuda:1")))')
        found = None if failed.success else hint(failed.error_in_exec, shell.user_ns)
        result = [failed.success, found and found.fix, fixed.success]
        """.replace("\n        ", "\n")
    )
    if result[0]:
        pytest.skip("this torch shuffles under a CUDA default")
    assert 'generator=torch.Generator(device="cuda:1")' in result[1]
    assert result[2] is True
