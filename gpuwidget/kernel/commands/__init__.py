"""The subcommands of ``%gpu``, and the Python functions that do the same.

``subcommands.py`` has the table of the subcommands; the module ``NAME_command.py`` runs one.
"""
