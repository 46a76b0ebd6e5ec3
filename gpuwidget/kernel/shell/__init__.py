"""IPython and the user's code: cell names, sources, variables, output slots and running cells.

Start with ``user_code.py`` and ``running_cells.py``; nothing here measures.
"""
