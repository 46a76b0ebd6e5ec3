"""A preprocessor for nbconvert that removes gpuwidget's outputs from the converted notebook::

    jupyter nbconvert --to html --Exporter.preprocessors=gpuwidget.nbconvert.clean train.ipynb

nbconvert accepts a function, so this module does not need to import nbconvert.
"""

from __future__ import annotations

from typing import Any

from gpuwidget.views.saved_outputs import remove_outputs


def clean(notebook: Any, resources: Any) -> tuple[Any, Any]:
    """Return the notebook without gpuwidget's reports, cards and widgets, and the unchanged resources."""
    remove_outputs(notebook)
    return notebook, resources
