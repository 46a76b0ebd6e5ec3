"""Watch cells: parse the options, measure each cell as a run, show its card, and wait for free memory.

Start with ``watched_cells.py`` (``%%gpuwatch``) and ``watch_api.py`` (``gpuwidget.watch()``).
"""
