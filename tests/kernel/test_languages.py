"""The kernel shows cards, the doctor and error hints in the language of the page; JSON stays English."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers_doctor import fake_torch
from helpers_kernel import Kernel

from tools import translation

HAN = re.compile(r"[\u4e00-\u9fff]")
TORCH = str(Path(__file__).parents[1] / "torch_standin")
BROKEN = "libcudnn.so.9: cannot open shared object file: No such file or directory"
SHARED_MEMORY = "DataLoader worker (pid 7) is killed by signal: Bus error."


@pytest.fixture(scope="module", autouse=True)
def catalogues() -> None:
    """Compile the catalogues, which a kernel of a fresh clone lacks."""
    translation.main(["--compile"])


def test_a_card_keeps_the_language_in_which_it_was_made(start_kernel: Callable[..., Kernel]) -> None:
    """The page's locale, which is sent with each request, is the language of the cards made from then on.
    The report in the card's JSON is English in any language."""
    kernel = start_kernel()
    kernel.ok("%load_ext gpuwidget")
    english = kernel.ok("%%gpuwatch\npass")
    assert kernel.answer_to(ask="state", locale="zh-CN")["status"] == "ok"
    chinese = kernel.ok("%%gpuwatch\npass")
    (card,) = chinese.cards
    assert "此笔记本" in card["text/plain"]
    assert "峰值" in card["text/plain"]
    assert "详情" in card["text/html"]
    assert not HAN.search(json.dumps(chinese.report["notes"], ensure_ascii=False))
    assert [gpu["missing"] for gpu in chinese.report["gpus"]] == [
        gpu["missing"] for gpu in english.report["gpus"]
    ]
    assert not HAN.search(json.dumps(english.cards, ensure_ascii=False))
    assert "峰值" in (kernel.ok("import gpuwidget\ngpuwidget.reports()").result or "")
    assert kernel.answer_to(ask="state", locale="en")["status"] == "ok"
    assert not HAN.search(kernel.ok("%%gpuwatch\npass").cards[0]["text/html"])


def test_the_doctor_in_the_environments_language(start_kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    """Without a page, cards are in the language of the environment. The diagnosis's JSON is English."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none", LANGUAGE="zh_CN", LANG="zh_CN.UTF-8")
    kernel.ok(
        f"import sys\nsys.path.insert(0, {str(fake_torch(tmp_path, f'raise ImportError({BROKEN!r})'))!r})"
    )
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget")
    ran = kernel.ok("found = gpuwidget.doctor()\nfound")
    (shown,) = (message.content["data"] for message in ran.messages if message.type == "execute_result")
    assert "故障  PyTorch       2.10.0, 无法导入" in shown["text/plain"].splitlines()
    assert "故障  cuDNN         缺少 libcudnn.so.9" in shown["text/plain"].splitlines()
    assert "<b>解决办法：</b>" in shown["text/html"]
    assert "GPUWIDGET_SOURCE 是 'none'：" in shown["text/plain"]
    assert kernel.value("found.doctor.links[0].reason") == repr(
        f"'import torch' raises ImportError: {BROKEN}."
    )
    assert not HAN.search(json.loads(json.dumps(kernel.value("found.to_json()"))))


def test_the_doctor_in_the_panel(start_kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    """The panel receives the English diagnosis, and the translations of its texts for the page's locale."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none")
    kernel.ok(
        f"import sys\nsys.path.insert(0, {str(fake_torch(tmp_path, f'raise ImportError({BROKEN!r})'))!r})"
    )
    kernel.ok("%load_ext gpuwidget")
    reply = kernel.answer_to(ask="doctor", locale="zh-CN")
    torch = reply["doctor"]["links"][0]
    assert torch["found"] == "2.10.0, which can't be imported"
    assert reply["texts"][torch["found"]] == "2.10.0, 无法导入"
    assert reply["texts"][torch["reason"]] == f"'import torch' 引发 ImportError：{BROKEN}。"
    assert not HAN.search(json.dumps(reply["doctor"], ensure_ascii=False))
    assert kernel.answer_to(ask="doctor", locale="en")["texts"] == {}


def test_a_hint_in_chinese(start_kernel: Callable[..., Kernel]) -> None:
    """The hint below the traceback of a known error is in the page's language."""
    kernel = start_kernel(GPUWIDGET_SOURCE="none", PYTHONPATH=TORCH)
    kernel.ok("import torch\n%load_ext gpuwidget")
    kernel.answer_to(ask="state", locale="zh-CN")
    ran = kernel.run(f"raise RuntimeError({SHARED_MEMORY!r})")
    (hint,) = (message.content["data"] for message in ran.messages if message.type == "display_data")
    assert hint["text/plain"].startswith(
        "DataLoader 的 worker 进程异常退出，因为它用来传递批次的共享内存 /dev/shm"
    )
    assert "<b>解决办法：</b> <code>DataLoader(..., num_workers=0)，或" in hint["text/html"]
