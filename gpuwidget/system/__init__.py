"""Processes and limits of this host.

Only ``processes.py`` uses psutil; ``host_limits.py`` reads processor and shared-memory limits.
"""
