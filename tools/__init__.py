"""Programs that the Makefile and the package's build run; not part of the installed package."""
