"""The default torch device with the real torch, which may be built for the CPU only:
``meta`` serves as a second device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers_cases import ASYNCHRONOUS, ERRORS, LINE_MAGICS, RESULTS, SETUP, Case
from helpers_kernel import Kernel
from helpers_pair import Pair

pytestmark = pytest.mark.usefixtures("needs_torch")

CASES = [*RESULTS[:6], *ASYNCHRONOUS[:3], *LINE_MAGICS[:3], *ERRORS[:6]]


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel that has loaded gpuwidget and torch."""
    kernel = start_kernel()
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget, torch, sys")
    return kernel


@pytest.fixture(scope="module")
def device_pair(start_kernel: Callable[..., Kernel]) -> Pair:
    """Return two kernels at the same execution count:
    one without gpuwidget, and one with gpuwidget and a default device."""
    pair = Pair(start_kernel(), start_kernel())
    pair.run("import torch", "import torch\n%load_ext gpuwidget\n%gpu device cpu")
    pair.setup(SETUP)
    return pair


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cells_are_the_same_with_a_default_device(device_pair: Pair, case: Case) -> None:
    """If a default device is chosen, a cell's outputs,
    errors and replies are the same as without gpuwidget."""
    device_pair.both(case.plain or case.body)
    if case.then:
        device_pair.both(case.then)


def test_setting_and_restoring(kernel: Kernel) -> None:
    """'%gpu device none' restores the default device that the user's code had set."""
    kernel.ok("torch.set_default_device('meta')")
    kernel.ok("%gpu device cpu")
    assert kernel.ok("torch.empty(3).device, torch.get_default_device()").result == (
        "(device(type='cpu'), device(type='cpu'))"
    )
    kernel.ok("%gpu device none")
    assert kernel.ok("torch.empty(3).device").result == "device(type='meta')"
    kernel.ok("torch.set_default_device(None)")


def test_device_of_one_cell(kernel: Kernel) -> None:
    """%%gpuwatch --device cpu overrides the user's default device for one cell, even if the cell fails."""
    kernel.ok("torch.set_default_device('meta')")
    ran = kernel.run("%%gpuwatch --device cpu\nprint(torch.empty(3).device)\n1 / 0")
    assert "cpu\n" in ran.text
    assert ran.reply["ename"] == "ZeroDivisionError"
    assert kernel.ok("torch.empty(3).device").result == "device(type='meta')"
    kernel.ok("torch.set_default_device(None)")


def test_a_device_context_that_spans_cells(kernel: Kernel) -> None:
    """If one cell enters ``with torch.device`` and a later cell exits it,
    this context works as it does without gpuwidget."""
    kernel.ok("scope = torch.device('meta'); scope.__enter__();")
    kernel.ok("%gpu device cpu")
    assert kernel.ok("torch.empty(3).device").result == "device(type='meta')"
    assert "inside a `with torch.device(...)`" in kernel.ok("%gpu device").displayed
    refused = kernel.run("%%gpuwatch --device cpu\nprint('ran')")
    assert refused.reply["evalue"].startswith("--device cpu: Your code is inside a `with torch.device(...)`")
    assert refused.text == f"UsageError: {refused.reply['evalue']}\n"
    kernel.ok("scope.__exit__(None, None, None)")
    assert kernel.ok("torch._GLOBAL_DEVICE_CONTEXT.device_context.device").result == "device(type='cpu')"
    kernel.ok("%gpu device none")
    assert kernel.ok("torch._GLOBAL_DEVICE_CONTEXT.device_context").result is None


def test_a_build_without_cuda(kernel: Kernel) -> None:
    """If torch was built without CUDA, choosing cuda:0 is reported as an error in one line."""
    if kernel.ok("torch.version.cuda").result is not None:
        pytest.skip("this torch was built with CUDA")
    ran = kernel.run("gpuwidget.set_device(torch.device('cuda:0'))")
    assert ran.reply["ename"] == "OptionError"
    assert "was built without CUDA: there is only the CPU." in ran.reply["evalue"]
    assert kernel.ok("[d.device for d in gpuwidget.devices()]").result == "['cpu']"


def test_default_device_of_new_threads(kernel: Kernel) -> None:
    """As documented, the default device applies only to the main thread.
    In a new thread, torch uses the CPU."""
    kernel.ok("torch.set_default_device('meta')\nfrom concurrent.futures import ThreadPoolExecutor as Pool")
    kernel.ok("%gpu device cpu")
    cell = "torch.set_default_device('meta')\nPool(1).submit(lambda: torch.empty(1).device).result()"
    assert kernel.ok(cell).result == "device(type='cpu')"
    kernel.ok("torch.set_default_device(None)\n%gpu device none")


HINTS = {
    "shuffle": (
        """raise RuntimeError("Expected a 'meta' device type for generator but found 'cpu'")""",
        "RuntimeError",
        "Random numbers were requested on meta, but the generator is on cpu. The default torch device",
        'DataLoader(..., generator=torch.Generator(device="meta"))',
    ),
    "two devices": (
        "x = torch.ones(2, device='cpu')\ndef scaled(batch):\n    return batch + layer.weight\nscaled(x)",
        "RuntimeError",
        "One operation received tensors on different devices: batch on cpu, layer on meta.",
        'Fix: batch = batch.to("meta")',
    ),
    "bus error": (
        "raise RuntimeError('DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
        "dataloader\\'s workers are out of shared memory.')",
        "RuntimeError",
        "A DataLoader worker died because /dev/shm",
        "DataLoader(..., num_workers=0), or start the container with --shm-size=8g",
    ),
    "fork": (
        "raise RuntimeError('Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
        "multiprocessing, you must use the spawn start method')",
        "RuntimeError",
        "A forked child process, such as a DataLoader worker, used CUDA",
        'DataLoader(..., multiprocessing_context="spawn")',
    ),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS.keys())
def test_hints_on_known_errors(kernel: Kernel, hint: tuple[str, str, str, str]) -> None:
    """Below the unchanged traceback of a known error, the cause and a fix are shown."""
    code, name, cause, fix = hint
    kernel.ok("torch.set_default_device('meta'); layer = torch.nn.Linear(2, 2)")
    ran = kernel.run(code)
    kinds = [m.type for m in ran.messages if m.type in ("error", "display_data")]
    text = ran.displayed
    kernel.ok("torch.set_default_device(None)")
    assert (ran.reply["ename"], kinds) == (name, ["error", "display_data"])
    assert text.startswith(cause)
    assert fix in text.splitlines()[1]
    assert kernel.ok("sys.last_value is sys.last_exc if hasattr(sys, 'last_exc') else True").result == "True"


def test_other_errors_have_no_hint(kernel: Kernel) -> None:
    """No hint is shown for a RuntimeError that the user's code raises,
    nor for an error whose str() raises."""
    assert kernel.run("raise RuntimeError('mine')").displayed == ""
    kernel.ok("class Odd(RuntimeError):\n    def __str__(self): raise SystemExit")
    assert kernel.run("raise Odd").displayed == ""
