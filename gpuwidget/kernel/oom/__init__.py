"""The card under an out-of-memory error.

Start with ``handler.py``; ``context.py`` collects what is known while the error's frames still exist.
"""
