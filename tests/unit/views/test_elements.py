"""Tests of the pieces of HTML that views share."""

from __future__ import annotations

import pytest

from gpuwidget.views.elements import with_code


@pytest.mark.parametrize(
    ("fix", "html"),
    [
        ("%gpu device cuda:1, or", "<code class='gpuwidget-insert'>%gpu device cuda:1</code>, or"),
        ("torch.x1.on = True, unless", "<code class='gpuwidget-insert'>torch.x1.on = True</code>, unless"),
        ("net.to('cuda')", "<code class='gpuwidget-insert'>net.to(&#x27;cuda&#x27;)</code>"),
        ("torch.where(m, a, b)", "<code class='gpuwidget-copy'>torch.where(m, a, b)</code>"),
        ("Try num_workers=8.", "Try <code class='gpuwidget-copy'>num_workers=8</code>"),
        ("Try num_workers=8. Or 4.", "Try <code class='gpuwidget-copy'>num_workers=8</code>. Or 4."),
        ("You have `num_workers=0`.", "You have <code>num_workers=0</code>."),
        ("Line 3 calls train.py:31 often.", "Line 3 calls <code>train.py:31</code> often."),
        ("Use .item() or nonzero()", "Use <code>.item()</code> or <code>nonzero()</code>"),
    ],
)
def test_the_code_of_a_fix(fix: str, html: str) -> None:
    """In a fix, code to put into a cell is marked for *Copy*, and a whole statement for *Insert cell* too.
    What the user has, and names of methods, are only code. A full stop at the end, which would follow a
    button, is left out."""
    assert with_code(fix, is_fix=True) == html
    assert "class" not in with_code(fix)
