"""Which cell, line and variable holds torch's memory.

Start with ``memory_holders.py`` (``gpuwidget.holders()``); ``cell_memory.py`` records which cell
allocated each block.
"""
