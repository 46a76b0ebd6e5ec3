"""The mark of gpuwidget's outputs in a saved notebook, and how to remove these outputs from a notebook.

Most outputs consist of text and HTML, which many programs produce. So gpuwidget marks its outputs in their
metadata, which front ends save with the notebook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from gpuwidget.model.mime_types import CARD_MIME_TYPE, MIME_TYPE
from gpuwidget.views.styles import FONT

_MARK = "gpuwidget"
_HTML_START = f"<div style='{FONT}"
"""The start of the views' HTML. It identifies outputs whose metadata a front end has dropped."""
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
_CSS_CLASS = "gpuwidget-"
"""The start of the CSS classes that live charts and dashboards have."""
_REFERENCE = re.compile(r"IPY_MODEL_(\S+)")
_VIEWS = (MIME_TYPE, CARD_MIME_TYPE, "text/html", "text/plain", _WIDGET_VIEW)
"""The MIME types of gpuwidget's views."""


class Removed(NamedTuple):
    """How much was removed from a notebook."""

    outputs: int
    cells: int
    """The number of cells from which outputs were removed."""
    widgets: int
    """The number of widgets whose saved state was removed."""


def output_metadata() -> dict[str, Any]:
    return {_MARK: True}


def remove_outputs(notebook: MutableMapping[str, Any]) -> Removed:
    """Remove gpuwidget's outputs and the saved state of its widgets from a notebook (nbformat 4), in place.

    Anything that does not have the expected form is left unchanged.
    """
    states = _widget_states(notebook)
    models = _own_models(states)
    outputs = cells = 0
    for cell in _dicts(notebook.get("cells")):
        removed = _remove_from(cell, models)
        outputs += removed
        cells += removed > 0
    for identity in models:
        del states[identity]
    for state in states.values():
        # An Output widget captures outputs in its own state.
        outputs += _remove_from(_dict(_dict(state).get("state")), models)
    if models and not states:
        _drop_widget_states(notebook)
    return Removed(outputs, cells, len(models))


def _remove_from(holder: MutableMapping[str, Any], models: frozenset[str]) -> int:
    """Remove gpuwidget's outputs from ``holder["outputs"]``, and return how many there were."""
    outputs = holder.get("outputs")
    if not isinstance(outputs, (list, tuple)):
        return 0
    kept = []
    removed = 0
    for output in outputs:
        own = _own_types(_dict(output), models)
        if own is None:
            kept.append(output)
            continue
        removed += 1
        rest = {name: value for name, value in _dict(output.get("data")).items() if name not in own}
        if rest:
            output["data"] = rest
            kept.append(output)
    if removed:
        holder["outputs"] = kept
    return removed


def _own_types(output: Mapping[str, Any], models: frozenset[str]) -> tuple[str, ...] | None:
    """Return the MIME types of an output that gpuwidget made; None if it made none of them."""
    data = _dict(output.get("data"))
    if _dict(output.get("metadata")).get(_MARK) is True:
        return tuple(data)
    if (
        MIME_TYPE in data
        or _text(data.get("text/html")).startswith(_HTML_START)
        or _text(_dict(data.get(_WIDGET_VIEW)).get("model_id")) in models
    ):
        return _VIEWS
    return None


# -- widgets -------------------------------------------------------------------------------------------------


def _widget_states(notebook: Mapping[str, Any]) -> Any:
    """Return the saved state of the notebook's widgets, a dictionary by model id."""
    widgets = _dict(_dict(notebook.get("metadata")).get("widgets"))
    return _dict(_dict(widgets.get(_WIDGET_STATE)).get("state"))


def _drop_widget_states(notebook: Mapping[str, Any]) -> None:
    """Remove the empty state of a notebook without widgets, which Jupyter does not save either."""
    metadata = _dict(notebook.get("metadata"))
    widgets = _dict(metadata.get("widgets"))
    del widgets[_WIDGET_STATE]
    if not widgets:
        del metadata["widgets"]


def _own_models(states: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of the widgets of live charts and dashboards.

    A chart or a dashboard contains its other widgets. One that a widget of the user contains as well stays.
    """
    roots = {
        identity for identity, model in states.items() if _has_own_class(_dict(_dict(model).get("state")))
    }
    own = _reachable(states, roots)
    of_user = [identity for identity in states if identity not in own]
    shared = {identity for model in of_user for identity in _references(states[model])} - roots
    return frozenset(own - (_reachable(states, shared) - roots))


def _has_own_class(state: Mapping[str, Any]) -> bool:
    """Return whether a widget, or the HTML that it shows, has one of gpuwidget's classes.

    If a program such as nbclient misses the message with which a chart is created, only the HTML is saved.
    """
    classes = state.get("_dom_classes")
    if isinstance(classes, (list, tuple)) and any(str(name).startswith(_CSS_CLASS) for name in classes):
        return True
    return f'class="{_CSS_CLASS}' in _text(state.get("value"))


def _reachable(states: Mapping[str, Any], start: set[str]) -> set[str]:
    """Return the ids in ``start`` and those of all widgets that they refer to, directly or indirectly."""
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        identity = waiting.pop()
        if identity in states and identity not in found:
            found.add(identity)
            waiting += _references(states[identity])
    return found


def _references(value: Any) -> Iterator[str]:
    """Yield the ids of the widgets to which a widget's state refers."""
    if isinstance(value, str):
        match = _REFERENCE.fullmatch(value)
        if match is not None:
            yield match[1]
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)


# -- JSON of unknown form --------------------------------------------------------------------------------


def _dict(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, (list, tuple)) else []


def _text(value: Any) -> str:
    """Return a text, which notebooks store as a string or as a list of lines."""
    if isinstance(value, (list, tuple)):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""
