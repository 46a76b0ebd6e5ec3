"""Attribute torch's memory to the cells and lines that allocated it, and to the variables that hold it.

Start with ``memory_holders.py`` (``gpuwidget.holders()``); ``cell_memory.py`` records which cell allocated
each block.
"""
