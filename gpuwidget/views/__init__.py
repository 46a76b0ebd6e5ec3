"""Reports, comparisons, memory holders, out-of-memory cards and diagnoses as text and as static HTML.

Start with ``card.py``, the card of a watched cell. Nothing here samples or runs anything.
"""
