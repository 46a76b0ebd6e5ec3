"""The version of the package and of its labextension."""

__version__ = "0.1.0"
