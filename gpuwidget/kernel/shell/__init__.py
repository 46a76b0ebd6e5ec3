"""Interfaces to IPython and the user's code: running cells, output slots, interrupts, source lines and names.

Nothing in this package measures anything. Start with ``running_cells.py`` and ``user_code.py``.
"""
