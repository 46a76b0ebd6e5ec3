"""The subcommands of ``%gpu``, and the Python functions that do the same.

``subcommands.py`` lists the subcommands.
"""
