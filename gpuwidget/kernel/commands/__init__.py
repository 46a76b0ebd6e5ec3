"""The subcommands of ``%gpu`` and the Python functions beside them.

``subcommands.py`` lists them.
"""
