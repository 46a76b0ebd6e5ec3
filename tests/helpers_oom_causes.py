"""Programs that run out of GPU memory for a known reason, with what the card must name first.

Each runs on a real GPU, and on the stand-in of :mod:`helpers_out_of_memory`. ``UNIT`` is a sixteenth of the
memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

STANDIN = """
import sys; sys.path.insert(0, {tests!r})
import torch
from helpers_out_of_memory import LimitedGpu
gpu = LimitedGpu(torch, 64 * 2**20)
gpu.install()
UNIT = 4 * 2**20
def take(units): return gpu.empty(round(units * UNIT / 4))
def zeros_on_gpu(tensor, **options): return gpu.like(tensor)
torch.zeros_like = zeros_on_gpu
class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return gpu.like(x)
    @staticmethod
    def backward(ctx, gradient):
        return None, torch.ones(())
def layer(x, w): return Layer.apply(x, w)
def on_gpu(module): return module._apply(gpu.like)
torch.Tensor.cpu = torch.Tensor.clone
def shrink(part): pass
"""
REAL = """
import torch
torch.empty(1, device="cuda")
ALL = torch.cuda.mem_get_info()[1]
def shrink(part):
    # Use only a part of the GPU, because the CPU's memory must hold what the program keeps.
    global UNIT
    torch.cuda.set_per_process_memory_fraction(part)
    UNIT = round(ALL * part) // 17
shrink(1.0)
def take(units): return torch.zeros(round(units * UNIT / 4), device="cuda")
def layer(x, w): return x * w
def on_gpu(module): return module.to_empty(device="cuda")
"""
PREPARE = """
import gc
w = torch.ones((), requires_grad=True, device=take(0.001).device)
def forward(units=1): return layer(take(units), w).mean()
class Net(torch.nn.Module):
    def __init__(self, units=0.0):
        super().__init__()
        self.w = torch.nn.Parameter(w.detach().clone())
        if units: self.table = torch.nn.Parameter(take(units))
    def forward(self, x):
        return layer(x, self.w)
"""


@dataclass(frozen=True)
class Cause:
    """A program, and what the card of its out-of-memory error must contain."""

    name: str
    cells: Sequence[str]
    """The cells to run, as In [4] and so on. The last one fails."""
    advice: Sequence[str]
    """Parts of the first advice, such as the name of what keeps the memory and the line that does it."""
    mended: str | None = None
    """The failed cell after the first advice has been carried out, if the card prints no code for it."""
    code: str | None = None
    """The code of the first advice: a statement to write instead of the one on the card, or a command."""
    is_retention: bool = True
    """Whether the program keeps something from each step, so that a smaller batch is no help."""


CLEAN = """
shrink(1.0)
for one in [one for one in globals() if one not in KEEP and not one.startswith("_")]: del globals()[one]
"""
CHECK = """
gc.collect(); gc.collect()
assert torch.cuda.memory_stats_as_nested_dict(0)["allocated_bytes"]["all"]["current"] < UNIT
torch.cuda.empty_cache()
"""


class CauseKernel:
    """Runs one program after the other in a kernel, and reads the cards of their errors."""

    def __init__(self, kernel: Any, setup: str) -> None:
        """``setup`` is :data:`STANDIN` or :data:`REAL`, completed."""
        self._kernel = kernel
        kernel.ok(setup)
        kernel.ok("%load_ext gpuwidget")
        kernel.ok(PREPARE)
        kernel.ok("KEEP = {*globals(), 'KEEP', 'out_of_memory'}")

    def clean(self) -> None:
        """Remove what a program has left."""
        self._kernel.ok(CLEAN)
        self._kernel.ok("%gpu free --yes")
        self._kernel.ok(CHECK)

    def card(self, cells: Sequence[str], magic: str = "") -> tuple[str, Any]:
        """Run the cells, of which the last one must fail. Return the text of the card and what was displayed.

        The first cell is In [4] on the card.
        """
        first = int(self._kernel.value("len(In)"))
        for cell in cells[:-1]:
            self._kernel.ok(cell)
        ran = self._kernel.run(magic + cells[-1])
        assert ran.reply["status"] == "error", ran.reply
        assert ran.reply["ename"] == "OutOfMemoryError", ran.reply
        kinds = [message.type for message in ran.messages]
        after = ran.messages[kinds.index("error") + 1 :]
        (bundle,) = [m.content["data"] for m in after if m.type == "display_data"]
        text = re.sub(r" {2,}", "  ", bundle["text/plain"])
        return re.sub(r"In \[(\d+)\]", lambda at: f"In [{int(at[1]) - first + 4}]", text), ran

    def check(self, cause: Cause) -> str:
        """Run a program, check its card, carry out the first advice and run it again. Return the card."""
        text, _ran = self.card(cause.cells)
        advice = first_advice(text)
        missing = [part for part in cause.advice if part not in advice]
        assert not missing, (missing, text)
        assert cause.code is None or cause.code in advice, (cause.code, text)
        assert cause.name == "batch" or "Make the batch" not in text, text
        assert not cause.is_retention or "would have been enough" not in text, text
        self._kernel.ok("%gpu free --yes")
        self._mend(cause, advice)
        return text

    def ok(self, cell: str) -> None:
        """Run a cell, which must succeed."""
        self._kernel.ok(cell)

    def check_watched(self, cause: Cause) -> None:
        """Run a program whose last cell is watched. Both parts of its card must agree on the holders and
        their sizes."""
        text, _ran = self.card(cause.cells, "%%gpuwatch --no-live --gpu 0\n")
        of_error, _total, of_run = text.partition("\n  total")
        rows = re.findall(r"^  (\w+)  In \[4\]  (\d.*)$", of_error, re.MULTILINE)
        assert rows
        for name, size in rows:
            assert re.search(rf"\b{name}\b.*{re.escape(size)}", of_run), (name, size, text)

    def _mend(self, cause: Cause, advice: str) -> None:
        """Carry out the advice, and run the program again, which must succeed."""
        failed = cause.cells[-1]
        at = re.search(r"line \d+: (.*)$", advice, re.MULTILINE)
        if cause.name == "batch":
            parts = re.search(r"Make the batch (\d+) times smaller", advice)
            assert parts is not None
            self._kernel.ok(failed.replace("parts = 1", f"parts = {parts[1]}"))
        elif cause.mended is not None:
            self._kernel.ok(cause.mended)
        elif cause.code is not None and at is not None:
            mended = [cell.replace(at[1], cause.code) for cell in cause.cells]
            assert mended != list(cause.cells)
            for cell in mended:
                self._kernel.ok(cell)
        elif cause.code is not None:
            self._kernel.ok(cause.code)
            self._kernel.ok(failed)


def first_advice(card: str) -> str:
    """Return the first advice of the card's text, with its caption, code and reasons."""
    parts = re.split(r"\n(?=  \d+\. )", card.partition("\n  held by")[0])
    # The error's frames are freed in any case.
    first = 2 if len(parts) > 2 and parts[1].startswith("  1. Free this error's frames") else 1
    return f"{parts[first - 1].splitlines()[-1]}\n{parts[first]}"


LOOP = "for step in range(40):\n    "
RETENTIONS = (
    Cause(
        "keep",
        [
            "outputs = []\nfor step in range(40):\n    with torch.no_grad():\n        "
            "outputs.append(Net()(take(1)))"
        ],
        ["outputs keeps", "results on the GPU", "In [4], line 4: outputs.append(Net()(take(1)))"],
        "outputs = []\nfor step in range(40):\n    with torch.no_grad():\n"
        "        outputs.append(Net()(take(1)).mean().cpu())",
        "outputs.append(Net()(take(1)).cpu())",
    ),
    Cause(
        "losses",
        [f"losses = []\n{LOOP}loss = forward()\n    losses.append(loss)"],
        ["losses keeps", "with their graphs", "In [4], line 4: losses.append(loss)"],
        f"losses = []\n{LOOP}loss = forward()\n    losses.append(loss.item())",
        "losses.append(loss.item())",
    ),
    Cause(
        "losses in a function",
        [
            "def train():\n    losses = []\n    for step in range(40):\n        loss = forward()\n"
            "        losses.append(loss)\ntrain()"
        ],
        ["losses in train() keeps", "In [4], line 5: losses.append(loss)"],
        "def train():\n    losses = []\n    for step in range(40):\n        loss = forward()\n"
        "        losses.append(loss.item())\ntrain()",
        "losses.append(loss.item())",
    ),
    Cause(
        "many losses",
        [
            "losses = []\nfor step in range(400):\n    x = take(0.01)\n    for n in range(10): x = layer(x, "
            "w)\n    losses.append(x.mean())"
        ],
        ["losses keeps", "with their graphs", "In [4], line 5: losses.append(x.mean())"],
        code="losses.append(x.mean().item())",
    ),
    Cause(
        "graph",
        [f"total = 0\n{LOOP}loss = forward()\n    total = total + loss"],
        ["total is the sum of", "In [4], line 4: total = total + loss"],
        f"total = 0\n{LOOP}loss = forward()\n    total = total + loss.item()",
        "total = total + loss.item()",
    ),
    Cause(
        "in-place sum",
        [f"total = torch.zeros(())\n{LOOP}total += forward().to('cpu')"],
        ["total is the sum of", "In [4], line 3: total += forward().to('cpu')"],
        f"total = torch.zeros(())\n{LOOP}total += forward().to('cpu').item()",
        "total += forward().to('cpu').item()",
    ),
    Cause(
        "hook",
        [
            "seen = []\ndef keep(module, inputs, output):\n    seen.append(output)\n"
            "net = Net()\nhandle = net.register_forward_hook(keep)\nshrink(0.03)",
            "with torch.no_grad():\n    for step in range(40):\n        net(take(1))",
        ],
        ["seen keeps", "In [4], line 3: seen.append(output)", "handle.remove()"],
        None,
        "seen.append(output.detach().cpu())",
    ),
    Cause(
        "closure",
        [
            "def make():\n    kept = []\n    def step():\n        kept.append(forward())\n    return step\n"
            "step = make()",
            "for i in range(40):\n    step()",
        ],
        ["kept in step() keeps", "In [4], line 4: kept.append(forward())"],
        None,
        "kept.append(forward().item())",
    ),
    Cause(
        "attribute",
        [
            "class Trainer:\n    def __init__(self): self.history = {'loss': []}\n"
            "    def step(self):\n        self.history['loss'].append(forward())\ntrainer = Trainer()",
            "for i in range(40):\n    trainer.step()",
        ],
        ["trainer.history['loss'] keeps", "In [4], line 4: self.history['loss'].append(forward())"],
        None,
        "self.history['loss'].append(forward().item())",
    ),
    Cause(
        "dataclass",
        [
            "from dataclasses import dataclass\n@dataclass\nclass Result:\n    step: int\n    loss: object",
            f"results = []\n{LOOP}results.append(Result(step, forward()))",
        ],
        ["results keeps", "In [5], line 3: results.append(Result(step, forward()))", "loss.item()"],
        f"results = []\n{LOOP}results.append(Result(step, forward().item()))",
    ),
    Cause(
        "generator's frame",
        [
            "def batches():\n    window = []\n    while True:\n        window.append(take(1))\n"
            "        yield window[-1]\nsource = batches()\nshrink(0.03)",
            "for i in range(40):\n    x = next(source)",
        ],
        ["keeps", "In [4], line 4: window.append(take(1))"],
        None,
        "window.append(take(1).cpu())",
    ),
    Cause(
        "retain_graph",
        [
            f"h = torch.ones((), device=w.device)\n{LOOP}x = take(1)\n    h = layer(x, w).mean() + h\n"
            "    h.backward(retain_graph=True)"
        ],
        ["h", "In [4], line 4: h = layer(x, w).mean() + h", "without retain_graph=True"],
        f"h = torch.ones((), device=w.device)\n{LOOP}x = take(1)\n    h = layer(x, w).mean() + h\n"
        "    h.backward()\n    h = h.detach()",
    ),
    Cause(
        "comprehension",
        ["results = [forward() for step in range(40)]"],
        ["the comprehension kept", "In [4], line 1: results = [forward() for step in range(40)]"],
        "results = [forward().item() for step in range(40)]",
    ),
    Cause(
        "exception in a variable",
        [
            "def attempt(units):\n    first = take(9)\n    return first, take(units)",
            "try:\n    attempt(9)\nexcept torch.OutOfMemoryError as error:\n    saved = error\nattempt(4)",
        ],
        ["the traceback of saved", "Keep only the text of the exception"],
        "try:\n    attempt(9)\nexcept torch.OutOfMemoryError as error:\n    saved = str(error)\nattempt(4)",
        "saved = str(saved)",
    ),
)
OTHERS = (
    Cause(
        "old model",
        ["old = Net(9)", "new = Net(9)"],
        ["would have been enough", "Free old if no longer needed"],
        code="%gpu free old --yes",
        is_retention=False,
    ),
    Cause(
        "exception from an earlier cell",
        [
            "def attempt(units):\n    first = take(9)\n    return first, take(units)",
            "try:\n    attempt(9)\nexcept torch.OutOfMemoryError as error:\n    saved = error",
            "batch = take(9)",
        ],
        ["would have been enough", "Free saved if no longer needed"],
        code="%gpu free saved --yes",
        is_retention=False,
    ),
    Cause(
        "gradients",
        [
            "net = Net(5)\nfor p in net.parameters(): p.grad = torch.zeros_like(p)",
            "with torch.no_grad():\n    out = net(take(2)), take(6)",
        ],
        ["would have been enough", "Free the gradients of net"],
        code="net.zero_grad(set_to_none=True)",
        is_retention=False,
    ),
    Cause(
        "optimizer",
        [
            "net = Net(6)\noptimizer = torch.optim.Adam(net.parameters())",
            "for p in net.parameters(): p.grad = torch.zeros_like(p)\noptimizer.step()",
        ],
        ["the optimizer was creating its states", "a smaller batch doesn't change this"],
        is_retention=False,
    ),
    Cause(
        "parameters",
        [
            "n = int((UNIT / 4) ** 0.5)\n"
            "net = torch.nn.Sequential(*(torch.nn.Linear(n, n, device='meta') for _ in range(20)))",
            "on_gpu(net)",
        ],
        ["the model's parameters were being created", "a smaller batch doesn't change this"],
        is_retention=False,
    ),
    Cause(
        "one big tensor",
        ["x = take(20)"],
        ["Compute the tensor in parts"],
        is_retention=False,
    ),
    Cause(
        "batch",
        [
            "net = Net()\ndef train(parts):\n    for part in range(parts):\n        x = take(10 / parts)\n"
            "        hidden = net(x)\n        loss = net(hidden).mean()\n"
            "        del x, hidden, loss\nparts = 1\ntrain(parts)",
        ],
        ["Make the batch"],
        is_retention=False,
    ),
)
STEP_ONLY = {
    "comprehension of one step": [
        """outs = [layer(layer(take(1), w), w) for head in range(30)]
sum(out.mean() for out in outs).backward()""",
    ],
    "comprehension of layers": [
        """net = torch.nn.Sequential(*[on_gpu(torch.nn.Linear(1024, 1024)) for n in range(40)])""",
    ],
    "loss and regularizer": [
        """for step in range(3):
    loss = layer(layer(take(5), w), w).mean()
    loss = loss + layer(layer(take(5), w), w).mean()
    loss.backward()""",
    ],
    "seq2seq": [
        """h = take(0.1)
loss = 0
for t in range(20):
    h = layer(layer(take(1), w), h.mean())
    loss += h.mean()
loss.backward()""",
    ],
    "heads": [
        """trunk = layer(take(1), w)
losses = []
for head in range(20):
    losses.append(layer(layer(layer(trunk, w), w), w).mean())
loss = sum(losses)
loss.backward()""",
    ],
    "heads without trunk, reset": [
        """for x in range(3):
    outs = []
    for head in range(20):
        outs.append(layer(take(1), w))
    loss = sum(o.mean() for o in outs)
    loss.backward()""",
    ],
    "residual in helper": [
        """def encode(x):
    for n in range(30):
        y = layer(x, w)
        x = x + layer(y, w).mean()
    return x
encode(take(1)).mean().backward()""",
    ],
    "batch dict": [
        """batch = {'a': 4, 'b': 5}
for k, v in batch.items():
    batch[k] = take(v)
x = take(9)""",
    ],
    "ring buffer": [
        """buffer = [None] * 4
for step in range(12):
    buffer[step % 4] = take(2)
x = take(9)""",
    ],
    "popped queue": [
        """queue = []
for step in range(12):
    queue.append(take(2))
    if len(queue) > 4: queue.pop(0)
x = take(9)""",
    ],
    "same name in helper": [
        """data = [take(4), take(4)]
def collate():
    data = []
    for n in range(3):
        data.append(n)
    return data""",
        """collate()
n = len(data)
x = take(9)""",
    ],
    "contrastive": [
        """embeddings = []
for n in range(40):
    embeddings.append(layer(take(1), w))
e = torch.cat(embeddings)
e.mean().backward()""",
    ],
    "unet attr": [
        """class U(Net):
    def forward(self, x):
        self.skips = []
        for n in range(40):
            x = layer(x, self.w)
            self.skips.append(x)
        return x
net = U()""",
        "net(take(1)).mean().backward()",
    ],
    "truncated bptt": [
        """h = take(0.1).mean()
for step in range(20):
    h = h.detach()
    for t in range(20):
        h = layer(layer(take(1), w), h).mean()
    h.backward()""",
    ],
    "preloaded": [
        """data = []
for n in range(10):
    data.append(take(1))
for x in data:
    y = take(9)""",
    ],
    "unet no grad": [
        """def unet(x):
    skips = []
    for n in range(40):
        x = Net()(x)
        skips.append(x)
    for n in range(40):
        x = x + skips.pop()""",
        """with torch.no_grad():
    unet(take(1))""",
    ],
    "kv cache": [
        """class Cache:
    def __init__(self): self.k = {}
    def update(self, i, k):
        self.k[i] = k
cache = Cache()""",
        """for token in range(3):
    for i in range(8):
        cache.update(i, take(1))
    x = take(8)""",
    ],
    "ema object": [
        """class Ema:
    def __init__(self): self.a, self.b, self.c = take(3), take(3), take(3)
    def update(self, x): pass
ema = Ema()""",
        """for n in range(3):
    ema.update(n)
    x = take(9)""",
    ],
}
"""Cells in which the memory of one step is too large, or data that the user loaded. Nothing grows with each
step, so no card may say so."""
