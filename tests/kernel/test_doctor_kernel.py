"""The doctor in a real kernel: %gpu doctor, gpuwidget.doctor(),
and the panel's request on the control channel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_doctor import WORKING, checks_by_id, fake_torch
from helpers_kernel import TIMEOUT_S, Kernel

HANGING = """
import os, pathlib, time
started = pathlib.Path({started!r})
started.with_suffix(".part").write_text(str(os.getpid()))
started.with_suffix(".part").rename(started)  # atomic: a reader never sees half of the id
while not os.path.exists({gate!r}):
    time.sleep(0.01)
"""
LIBRARY = "libcudnn.so.9: cannot open shared object file: No such file or directory"


@pytest.fixture
def start(start_kernel: Callable[..., Kernel], tmp_path: Path) -> Callable[[str], Kernel]:
    """Return a function that starts a kernel with gpuwidget loaded and with a fake torch.
    Importing this torch runs the given code."""

    def start(torch: str) -> Kernel:
        kernel = start_kernel(GPUWIDGET_SOURCE="none")
        # The probe process uses the kernel's current ``sys.path``, as it does in a notebook.
        kernel.ok(f"import sys\nsys.path.insert(0, {str(fake_torch(tmp_path / 'site', torch))!r})")
        kernel.ok("%load_ext gpuwidget")
        return kernel

    return start


def send_request(kernel: Kernel) -> str:
    """Request a diagnosis on the control channel,
    and return the request's id without waiting for the reply."""
    channel = kernel.client.control_channel
    message = kernel.client.session.msg("gpuwidget_request", {"schema": 1, "ask": "doctor"})
    channel.send(message)
    message_id: str = message["header"]["msg_id"]
    return message_id


def wait_for_reply(kernel: Kernel, message_id: str) -> dict[str, Any]:
    """Return the content of the reply to this request."""
    channel = kernel.client.control_channel
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if channel.socket.poll(50):
            reply = channel.get_msg(timeout=0)
            if reply["parent_header"].get("msg_id") == message_id:
                content: dict[str, Any] = reply["content"]
                return content
    raise TimeoutError("no reply")


def test_the_doctor_magic(start: Callable[[str], Kernel]) -> None:
    """If importing torch raises an error, %gpu doctor reports that.
    The kernel itself does not import torch."""
    kernel = start(f"raise ImportError({LIBRARY!r})")
    (shown,) = (m.content["data"] for m in kernel.ok("%gpu doctor").messages if m.type == "display_data")
    assert sorted(shown) == ["text/html", "text/plain"]
    lines = shown["text/plain"].splitlines()
    assert "BROKEN   PyTorch        2.10.0, which can't be imported" in lines
    assert "BROKEN   cuDNN          libcudnn.so.9 missing" in lines
    assert "libcudnn.so.9 missing" in shown["text/html"]
    assert kernel.value("[name for name in ('torch', 'pynvml') if name in __import__('sys').modules]") == "[]"


def test_arguments_are_a_usage_error(start: Callable[[str], Kernel]) -> None:
    """%gpu doctor with an argument is reported as a usage error in one line."""
    reply = start("").run("%gpu doctor now").reply
    assert (reply["ename"], reply["evalue"]) == (
        "UsageError",
        "%gpu doctor has no options. It checks everything from PyTorch down to the GPU.",
    )


def test_the_doctor_function(start: Callable[[str], Kernel]) -> None:
    """gpuwidget.doctor() returns the diagnosis of this kernel.
    As a cell's result, the diagnosis displays itself."""
    kernel = start(WORKING)
    (shown,) = (
        m.content["data"]
        for m in kernel.ok("import gpuwidget\ngpuwidget.doctor()").messages
        if m.type == "execute_result"
    )
    assert "OK       PyTorch        2.10.0, built for CUDA 12.8" in shown["text/plain"].splitlines()
    assert shown["text/html"].startswith("<div style=")
    assert kernel.value("_.doctor.place, _.doctor.variables.get('GPUWIDGET_SOURCE')") == "('kernel', 'none')"


def test_a_panel_request_blocks_nothing(start: Callable[[str], Kernel], tmp_path: Path) -> None:
    """While torch's import hangs in the probe process, the kernel runs cells and replies to other requests.

    Concurrent requests for a diagnosis get the same diagnosis.
    """
    started, gate = tmp_path / "started", tmp_path / "gate"
    kernel = start(HANGING.format(started=str(started), gate=str(gate)) + WORKING)
    first, second = send_request(kernel), send_request(kernel)
    deadline = time.monotonic() + TIMEOUT_S
    while not started.exists():
        assert time.monotonic() < deadline
        kernel.idle_for(0.02)
    state = kernel.answer_to(ask="state")
    assert state["status"] == "ok"
    assert kernel.value("1 + 1") == "2"
    pid = started.read_text()
    gate.touch()
    replies = [wait_for_reply(kernel, message_id) for message_id in (first, second)]
    for reply in replies:
        assert (reply["status"], reply["state"]["torch"]) == ("examined", None)
        assert checks_by_id(reply["doctor"])["torch"]["found"] == "2.10.0, built for CUDA 12.8"
    assert replies[0]["doctor"]["time"] == replies[1]["doctor"]["time"]
    assert started.read_text() == pid


def test_an_interrupt_stops_the_checks(start: Callable[[str], Kernel], tmp_path: Path) -> None:
    """Interrupting %gpu doctor raises KeyboardInterrupt immediately and ends the probe process."""
    started = tmp_path / "started"
    kernel = start(HANGING.format(started=str(started), gate=str(tmp_path / "never")))
    request = kernel.send("%gpu doctor")
    deadline = time.monotonic() + TIMEOUT_S
    while not started.exists():
        assert time.monotonic() < deadline
        kernel.idle_for(0.02)
    kernel.interrupt()
    assert kernel.wait(request).reply["ename"] == "KeyboardInterrupt"
    pid = int(started.read_text())
    while _is_running(pid):
        assert time.monotonic() < deadline
        kernel.idle_for(0.02)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
