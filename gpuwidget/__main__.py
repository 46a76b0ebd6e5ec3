"""``python -m gpuwidget``."""

from __future__ import annotations

import sys

from gpuwidget.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
