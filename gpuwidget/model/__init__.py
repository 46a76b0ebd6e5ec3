"""The dataclasses that flow from the sources to every view. Imports no other package.

Start with ``samples.py`` (what a GPU reads) and ``report.py`` (what one run did).
"""
