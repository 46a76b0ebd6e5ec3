"""Tests of finding the statements with which the failed code keeps more in each step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuwidget.kernel.oom.failed_cell import FailedCell
from gpuwidget.kernel.oom.growth import read_failed_code, with_method
from gpuwidget.kernel.shell.user_code import UserCode

LOOP = "for x in data:\n    "


def growths(cell: str) -> list[tuple[str, str, int]]:
    """Return the name, kind and line of each growing statement in a cell."""
    info = SimpleNamespace(raw_cell=cell)
    found = read_failed_code(FailedCell(info, 3), None, [], UserCode(SimpleNamespace()))
    return [(growth.identifier, growth.kind, growth.line) for growth in found.growths]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (f"{LOOP}losses.append(loss)", [("losses", "item", 2)]),
        (f"%%time\n%matplotlib inline\n{LOOP}losses.append(loss)", [("losses", "item", 4)]),
        (f"{LOOP}self.history['loss'].append(loss)", [("history", "item", 2)]),
        (f"{LOOP}seen.setdefault(name, []).append(out)", [("seen", "item", 2)]),
        (f"{LOOP}outputs[n] = out", [("outputs", "item", 2)]),
        (f"{LOOP}setattr(store, name, out)", [("store", "item", 2)]),
        (f"{LOOP}losses += [loss]", [("losses", "item", 2)]),
        (f"{LOOP}total += loss", [("total", "sum", 2)]),
        (f"{LOOP}total = loss + total", [("total", "sum", 2)]),
        (f"{LOOP}every = torch.cat([every, out])", [("every", "sum", 2)]),
        (f"{LOOP}out, h = rnn(x, h)\n    out.mean().backward()", [("h", "carry", 2)]),
        (f"{LOOP}loss.backward(retain_graph=True)", [("loss", "retain_graph", 2)]),
        # A loop over a model's layers keeps the activations of one step.
        ("for layer in layers:\n    x = layer(x)", []),
        ("for layer in layers:\n    x = x + layer(x)", []),
        (
            "class Net(Module):\n    def forward(self, x):\n        for d in downs:\n            "
            "skips.append(x)",
            [],
        ),
        (f"{LOOP}loss.backward()", []),
        (f"{LOOP}out = net(x)\n    out = relu(out)\n    out.mean().backward()", []),
        (f"{LOOP}x = net(x)\n    x.mean().backward()", []),
        (f"{LOOP}with amp():\n        loss = f(x)\n    loss = loss + g(x)", []),
        (f"{LOOP}loss = f(x)\n    loss += g(x)", []),
        (f"{LOOP}losses = []\n    losses.append(f(x))", []),
        # Each of these keeps as many items as before.
        ("for k, v in batch.items():\n    batch[k] = v.cuda()", []),
        (f"{LOOP}batch['x'] = x.cuda()", []),
        (f"{LOOP}shadow[n] = 0.9 * shadow[n] + 0.1 * x", []),
        (f"{LOOP}ring[n % 8] = x", []),
        (f"{LOOP}window.append(x)\n    window = window[-8:]", []),
        (f"{LOOP}window.append(x)\n    del window[0]", []),
        (f"{LOOP}queue.append(x)\n    if full: queue.popleft()", []),
        (f"{LOOP}if x not in cache:\n        cache[x] = f(x)", []),
        ("for n, p in net.named_parameters():\n    shadow[n] = p.clone()", []),
        (f"{LOOP}metric.update(x)", []),
        # These are emptied only after many steps.
        (f"for epoch in epochs:\n    losses = []\n    {LOOP}    losses.append(x)", [("losses", "item", 4)]),
        (
            f"for epoch in epochs:\n    {LOOP}    losses.append(x)\n    losses.clear()",
            [("losses", "item", 3)],
        ),
        (f"{LOOP}d['total'] = d['total'] + loss", [("d", "sum", 2)]),
        ("total = total + loss", []),
    ],
)
def test_growing_statements(cell: str, expected: list[tuple[str, str, int]]) -> None:
    """Statements that keep more with each step are found, with their line in the cell. A loop over a model's
    layers, and the local variables of a module's forward(), keep nothing from step to step."""
    assert growths(cell) == expected


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("losses.append(loss)", "losses.append(loss.item())"),
        ("total = total + loss", "total = total + loss.item()"),
        ("total += a + b", "total += (a + b).item()"),
        ("d[step] = model(x)", "d[step] = model(x).item()"),
    ],
)
def test_the_statement_to_write_instead(statement: str, changed: str) -> None:
    """The method is called on what is added, and nothing else in the statement changes."""
    info = SimpleNamespace(raw_cell=f"{LOOP}{statement}")
    found = read_failed_code(FailedCell(info, 3), None, [], UserCode(SimpleNamespace()))
    assert with_method(found.growths[0], ".item()") == changed
