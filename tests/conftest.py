"""For all tests: no choice of the developer's own shell decides what they see."""

from __future__ import annotations

import os

from gpuwidget.sources import SOURCE_VARIABLE

os.environ.pop(SOURCE_VARIABLE, None)
