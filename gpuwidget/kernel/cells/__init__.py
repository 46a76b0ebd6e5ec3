"""Watching cells: options, one run per cell, its card, and waiting for free memory.

Start with ``watched_cells.py`` (``%%gpuwatch``) and ``watch_api.py`` (``gpuwidget.watch()``).
"""
