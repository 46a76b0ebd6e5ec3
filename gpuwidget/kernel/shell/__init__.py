"""IPython and the user's code: running cells, output slots, interrupts, user code and its names, references.

Start with ``running_cells.py`` and ``user_code.py``; nothing here measures.
"""
