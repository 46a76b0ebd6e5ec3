"""Processes and limits of this host.

Only ``processes.py`` uses psutil; ``host_limits.py`` reads limits of CPU cores and shared memory.
"""
