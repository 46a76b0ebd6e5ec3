"""Show a card that explains an out-of-memory error below its traceback.

Start with ``handler.py``; ``context.py`` collects the facts while the error's frames still exist.
"""
