"""The card under an out-of-memory error.

Start with ``handler.py``; ``context.py`` collects the facts while the error's frames still exist.
"""
