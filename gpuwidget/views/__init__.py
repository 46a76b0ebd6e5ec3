"""Reports, comparisons, memory holders, out-of-memory cards and diagnoses as text and as static HTML.

Start with ``card.py``, the card of a watched cell. The modules of this package only format data: they neither
sample GPUs nor run user code.
"""
