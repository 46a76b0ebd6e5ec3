"""Watch cells: parse options, measure one run per cell, show its card, and wait for free memory.

Start with ``watched_cells.py`` (``%%gpuwatch``) and ``watch_api.py`` (``gpuwidget.watch()``).
"""
