"""The doctor in a real kernel: the magic, the function, and the panel's request on the control channel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_doctor import WORKING, fake_torch
from helpers_kernel import TIMEOUT_S, Kernel, Ran

HANGING = """
import os, pathlib, time
begun = pathlib.Path({begun!r})
begun.with_suffix(".part").write_text(str(os.getpid()))
begun.with_suffix(".part").rename(begun)  # whole from its first moment on
while not os.path.exists({gate!r}):
    time.sleep(0.01)
"""
LIBRARY = "libcudnn.so.9: cannot open shared object file: No such file or directory"


@pytest.fixture
def start(start_kernel: Callable[..., Kernel], tmp_path: Path) -> Callable[[str], Kernel]:
    """Return a function that starts a kernel with gpuwidget loaded and a torch module with that code."""

    def made(torch: str) -> Kernel:
        kernel = start_kernel(GPUWIDGET_SOURCE="none")
        # As a notebook does it: the child's path is the kernel's as it is now.
        run(kernel, f"import sys\nsys.path.insert(0, {str(fake_torch(tmp_path / 'site', torch))!r})")
        run(kernel, "%load_ext gpuwidget")
        return kernel

    return made


def run(kernel: Kernel, code: str) -> Ran:
    """Run ``code``, which must end well."""
    ran = kernel.run(code)
    assert ran.reply["status"] == "ok", ran.reply
    return ran


def links(doctor: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By id."""
    return {link["id"]: link for link in doctor["links"]}


def send(kernel: Kernel) -> str:
    """Ask for the doctor on the control channel, without waiting; the question's id."""
    channel = kernel.client.control_channel
    message = kernel.client.session.msg("gpuwidget_request", {"schema": 1, "ask": "doctor"})
    channel.send(message)
    identity: str = message["header"]["msg_id"]
    return identity


def answer(kernel: Kernel, question: str) -> dict[str, Any]:
    """Return the reply to it."""
    channel = kernel.client.control_channel
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if channel.socket.poll(50):
            reply = channel.get_msg(timeout=0)
            if reply["parent_header"].get("msg_id") == question:
                content: dict[str, Any] = reply["content"]
                return content
    raise TimeoutError("no answer")


def test_the_magic_shows_the_chain(start: Callable[[str], Kernel]) -> None:
    """%gpu doctor reports a torch whose import raises; the kernel itself never imports torch."""
    kernel = start(f"raise ImportError({LIBRARY!r})")
    (shown,) = (m.content["data"] for m in run(kernel, "%gpu doctor").messages if m.type == "display_data")
    assert sorted(shown) == ["text/html", "text/plain"]
    lines = shown["text/plain"].splitlines()
    assert "BROKEN   PyTorch          2.10.0, which can't be imported" in lines
    assert "BROKEN   cuDNN            libcudnn.so.9 missing" in lines
    assert "libcudnn.so.9 missing" in shown["text/html"]
    assert kernel.value("[name for name in ('torch', 'pynvml') if name in __import__('sys').modules]") == "[]"


def test_a_word_too_many_is_a_usage_error(start: Callable[[str], Kernel]) -> None:
    """It is a one-line error, and no check runs."""
    reply = start("").run("%gpu doctor now").reply
    assert (reply["ename"], reply["evalue"]) == (
        "UsageError",
        "%gpu doctor: why torch does not use the GPU, link by link. It takes no words.",
    )


def test_the_function_displays_itself(start: Callable[[str], Kernel]) -> None:
    """gpuwidget.doctor() displays as a cell's last line, and has the notebook's cuDNN setting."""
    kernel = start(WORKING)
    (shown,) = (
        m.content["data"]
        for m in run(kernel, "import gpuwidget\ngpuwidget.doctor()").messages
        if m.type == "execute_result"
    )
    assert "found    PyTorch          2.10.0, built for CUDA 12.8" in shown["text/plain"].splitlines()
    assert shown["text/html"].startswith("<div style=")
    assert kernel.value("_.doctor.place, _.doctor.variables.get('GPUWIDGET_SOURCE')") == "('kernel', 'none')"


def test_the_panels_question_holds_up_nothing(start: Callable[[str], Kernel], tmp_path: Path) -> None:
    """While torch's import hangs in the child, cells run and other questions are answered; then comes the
    answer, to each who asked, from one examination."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    kernel = start(HANGING.format(begun=str(begun), gate=str(gate)) + WORKING)
    first, second = send(kernel), send(kernel)
    deadline = time.monotonic() + TIMEOUT_S
    while not begun.exists():
        assert time.monotonic() < deadline
        kernel.idle_for(0.02)
    state = kernel.answer_to(ask="state")
    assert state["status"] == "ok"
    assert kernel.value("1 + 1") == "2"
    child = begun.read_text()
    gate.touch()
    answers = [answer(kernel, first)]
    answers.append(answer(kernel, second))
    for told in answers:
        assert (told["status"], told["state"]["torch"]) == ("examined", None)
        assert links(told["doctor"])["torch"]["found"] == "2.10.0, built for CUDA 12.8"
    assert answers[0]["doctor"]["time"] == answers[1]["doctor"]["time"]
    assert begun.read_text() == child


def test_an_interrupt_ends_the_examination(start: Callable[[str], Kernel], tmp_path: Path) -> None:
    """Ctrl-C in %gpu doctor raises KeyboardInterrupt at once, and nothing continues in the background."""
    begun = tmp_path / "begun"
    kernel = start(HANGING.format(begun=str(begun), gate=str(tmp_path / "never")))
    request = kernel.send("%gpu doctor")
    deadline = time.monotonic() + TIMEOUT_S
    while not begun.exists():
        assert time.monotonic() < deadline
        kernel.idle_for(0.02)
    kernel.interrupt()
    assert kernel.wait(request).reply["ename"] == "KeyboardInterrupt"
    child = int(begun.read_text())
    while _runs(child):
        assert time.monotonic() < deadline
        kernel.idle_for(0.02)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
