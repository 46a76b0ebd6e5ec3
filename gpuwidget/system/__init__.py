"""Processes and limits of this host.

``processes.py`` is the one home of psutil; ``host_limits.py`` reads processor and shared-memory limits.
"""
