"""A diagnosis as static HTML, in the cards' style: whole without styles, in light and in dark."""

from __future__ import annotations

from html import escape

from gpuwidget.model.diagnosis import Check, Diagnosis
from gpuwidget.views.card_summary import clean
from gpuwidget.views.diagnosis_text import WORDS

_ROOT = "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif)"
_QUIET = "opacity:.75"
_LEFT = "text-align:left;vertical-align:top"
_ALERT = {"broken": "var(--jp-error-color1,#e5393f)", "warning": "var(--jp-warn-color0,#c77700)"}
_GOOD = "var(--jp-success-color1,#388e3c)"
_MOST = 600


def html(doctor: Diagnosis) -> str:
    """The summary, a row for each check, and what was read folded away."""
    edge = _ALERT.get(doctor.status, _GOOD)
    rows = "".join(_row(check) for check in doctor.links)
    return (
        f"<div style='{_ROOT};border-left:3px solid {edge};padding:2px 0 2px 12px'>"
        f"<div><b>{_text(doctor.summary)}</b></div>"
        "<div style='overflow-x:auto'><table cellpadding='4' style='margin:4px 0 0;text-align:left;"
        f"border-collapse:collapse;font-size:13px'><tbody>{rows}</tbody></table></div>{_evidence(doctor)}</div>"
    )


def _row(check: Check) -> str:
    colour = _ALERT.get(check.status)
    word = escape(WORDS[check.status])
    if colour is not None:
        word = f"<b style='color:{colour}'>{word}</b>"
    told = _text(check.found)
    if check.reason:
        told += f"<div>{_text(check.reason)}</div>"
    if check.remedy:
        told += f"<div><b>To do:</b> {_remedy(check.remedy, check.command)}</div>"
    quiet = f";{_QUIET}" if check.status == "skipped" else ""
    return (
        f"<tr style='background:none{quiet}'><td style='{_LEFT}'>{word}</td>"
        f"<th scope='row' style='{_LEFT};font-weight:600'>{escape(check.title)}</th>"
        f"<td style='{_LEFT};overflow-wrap:anywhere'>{told}</td></tr>"
    )


def _remedy(remedy: str, command: str | None) -> str:
    if not command or command not in remedy:
        return _text(remedy)
    before, _, after = remedy.partition(command)
    # Whole, whatever its length: a part of a command must not be copied for it.
    return f"{_text(before)} <code>{escape(clean(command, len(command)))}</code>{_text(after)}"


def _evidence(doctor: Diagnosis) -> str:
    lines = [("interpreter", doctor.python), *doctor.variables.items()]
    lines += [
        (f"{check.title}, {name}", value) for check in doctor.links for name, value in check.evidence.items()
    ]
    items = "".join(f"<div><b>{_text(name)}:</b> {_text(value)}</div>" for name, value in lines)
    return (
        f"<details style='{_QUIET};margin-top:4px'><summary>What was read</summary>"
        f"<div style='overflow-wrap:anywhere'>{items}</div></details>"
    )


def _text(text: str) -> str:
    return escape(clean(text, _MOST))
