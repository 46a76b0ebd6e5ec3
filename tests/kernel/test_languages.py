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
def catalogs() -> None:
    """Compile the catalogs, which a kernel of a fresh clone lacks."""
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
    assert "<summary>运行</summary>" in card["text/html"]
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
    rows = [line.split() for line in shown["text/plain"].splitlines()]
    assert ["故障", "PyTorch", "2.10.0,", "无法导入"] in rows
    assert ["故障", "cuDNN", "缺少", "libcudnn.so.9"] in rows
    assert "<b>解决办法：</b>" in shown["text/html"]
    assert "GPUWIDGET_SOURCE 是 'none'，" in shown["text/plain"]
    reason = kernel.value("found.doctor.links[0].reason")
    assert f"The copy that Python finds can't be imported: {BROKEN}." in reason
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
    assert f"Python 找到的这一份无法导入：{BROKEN}。" in reply["texts"][torch["reason"]]
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


@pytest.fixture
def chinese_kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Return a kernel with gpuwidget and the torch stand-in, whose page is Chinese."""
    kernel = start_kernel(PYTHONPATH=TORCH)
    kernel.ok("%load_ext gpuwidget\nimport gpuwidget, torch")
    kernel.answer_to(ask="state", locale="zh-CN")
    return kernel


def shown(kernel: Kernel, code: str) -> str:
    """Run a cell and return the text of its only display."""
    messages = kernel.ok(code).messages
    (text,) = (
        message.content["data"]["text/plain"] for message in messages if message.type == "display_data"
    )
    assert isinstance(text, str)
    return text


def test_commands_in_chinese(chinese_kernel: Kernel) -> None:
    """The replies of the subcommands of %gpu are in the page's language; the Python API raises English."""
    kernel = chinese_kernel
    assert shown(kernel, "%gpu device").startswith("使用 PyTorch 默认设备（cpu）。\n  cpu\n")
    assert shown(kernel, "%gpu device cuda:1").startswith(
        "默认设备：cuda:1（也用于新张量，每次 torch 调用 +1\N{EN DASH}3 µs）。"
    )
    assert shown(kernel, "%gpu device none").startswith("使用 PyTorch 默认设备")
    assert shown(kernel, "%gpu switches").splitlines()[0].split() == ["开关", "当前值", "默认值", "可选值"]
    assert "on：cuDNN 对" in shown(kernel, "%gpu switches cudnn.benchmark")
    assert shown(kernel, "%gpu memory") == "没有可显示的 PyTorch 显存，因为此进程未初始化 CUDA。"
    assert shown(kernel, "%gpu free") == "没有可释放的显存，因为此进程未初始化 CUDA。"
    raised = kernel.run("gpuwidget.set_device('gpu0')").reply
    assert raised["evalue"].startswith("'gpu0': no such device.")


def test_usage_errors_in_chinese(chinese_kernel: Kernel) -> None:
    """Errors of %gpu and %%gpuwatch are in the page's language."""
    errors = {
        "%gpu dashbord": "'%gpu dashbord' 不是命令。可用的命令：\n%gpu  ",
        "%gpu device gpu0": "'gpu0'：没有这个设备。可用的设备：\n  cpu",
        "%gpu switches cudnn.benchmark maybe": "cudnn.benchmark 可以是 on 或 off，而不是 'maybe'。",
        "%gpu compare 1": "%gpu compare 需要两次运行。%gpu compare A B 比较两次运行。",
        "%gpu memory -x": "'%gpu memory -x' 不是命令。",
        "%gpu doctor now": "%gpu doctor 没有选项。",
        "%%gpuwatch --wait 1m\npass": "%%gpuwatch：--wait 需要与 --need 一起使用。",
        "%%gpuwatch --need 900GiB\npass": "--need：单元格没有运行。它需要 GPU",
    }
    found = {code: chinese_kernel.run(code).reply.get("evalue", "") for code in errors}
    assert {code: text.startswith(errors[code]) for code, text in found.items()} == dict.fromkeys(
        errors, True
    ), found


def test_a_comparison_in_chinese(chinese_kernel: Kernel) -> None:
    """%gpu compare and gpuwidget.compare() are in the page's language."""
    kernel = chinese_kernel
    kernel.ok("%%gpuwatch --name a\npass")
    kernel.ok("%%gpuwatch --name b\nimport time; time.sleep(0.2)")
    headline, header, time, *_rows = shown(kernel, "%gpu compare a b").splitlines()
    assert "a → " in headline
    assert "：用时为 " in headline
    assert header.split()[-1] == "变化"
    assert (time.split()[0], time[-3:]) == ("时间", "，变差")
    assert "数值来自录制数据" in (kernel.ok("gpuwidget.compare('a', 'b')").result or "")


def test_the_dashboard_in_chinese(chinese_kernel: Kernel) -> None:
    """The dashboard's controls and the line below them are in the page's language."""
    kernel = chinese_kernel
    kernel.ok("%gpu")
    kernel.ok(
        "import time\nfrom gpuwidget.kernel.live import dashboard\nview = dashboard._current._view\n"
        "while not view._text.value: time.sleep(0.01)"
    )
    texts = (
        "[view._device.description, view._new_tensors.description, view._resume.description, "
        "view._text.value]"
    )
    assert kernel.value(texts) == repr(
        [
            "设备",
            "新张量也创建在此设备上（每次 torch 调用 +1\N{EN DASH}3 µs）",
            "继续",
            "使用 PyTorch 默认设备（cpu）。",
        ]
    )
