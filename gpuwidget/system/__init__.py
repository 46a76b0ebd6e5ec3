"""Processes and limits of this host.

Only ``processes.py`` uses psutil; ``host_limits.py`` reads limits of CPU cores and shared memory,
``cgroups.py`` the memory of control groups, ``kernel_log.py`` lines of the kernel's log, and ``slurm.py`` the
Slurm job.
"""
