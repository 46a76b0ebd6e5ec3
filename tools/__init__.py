"""Tools of the Makefile's targets; not part of the package."""
