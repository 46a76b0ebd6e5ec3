"""Programs that run out of memory for a known reason, on the whole memory of a real GPU: the card names the
reason first, and the first advice, carried out, lets the program succeed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from helpers_kernel import Kernel
from helpers_oom_causes import OTHERS, REAL, RETENTIONS, Cause, CauseKernel, first_advice

pytestmark = pytest.mark.gpu

HOLDER = (
    "import torch\ntotal = torch.cuda.mem_get_info()[1]\n"
    "kept = torch.empty(total // 17 * 10, dtype=torch.uint8, device='cuda')\n"
    "print('ready', flush=True)\ninput()"
)


@pytest.fixture(scope="module")
def causes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CauseKernel]:
    """Return a kernel that runs one program after the other on GPU 0."""
    environment = {"CUDA_VISIBLE_DEVICES": "0", "GPUWIDGET_SOURCE": "nvml"}
    kernel = Kernel(tmp_path_factory.mktemp("kernel"), environment)
    yield CauseKernel(kernel, REAL)
    kernel.shutdown()


@pytest.fixture
def clean(causes: CauseKernel) -> Iterator[None]:
    """Remove what the test's program leaves."""
    yield
    causes.clean()


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("cause", [*RETENTIONS, *OTHERS], ids=lambda cause: cause.name)
def test_the_cause_comes_first(causes: CauseKernel, cause: Cause) -> None:
    """The card names the cause first, with its line, and the program succeeds after the first advice."""
    print(causes.check(cause))


@pytest.mark.usefixtures("clean")
def test_a_watched_cell_agrees(causes: CauseKernel) -> None:
    """Both parts of a watched cell's card name the same holders with the same sizes."""
    causes.check_watched(next(cause for cause in RETENTIONS if cause.name == "losses"))


@pytest.mark.usefixtures("clean")
def test_another_process(causes: CauseKernel) -> None:
    """If another process holds the memory, the card does not blame this notebook, and once the process has
    ended, the same cell succeeds."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        text, _ran = causes.card(["x = take(10)"])
    finally:
        process.communicate("\n", timeout=60)
    print(text)
    assert "Make the batch" not in text
    assert "Shut down" in first_advice(text) or "Couldn't tell what other processes hold" in text
    causes.ok("x = take(10)")
