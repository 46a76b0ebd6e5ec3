"""The journal: watched runs that took long, in files that outlast the page and the kernel.

Kernels write it, and kernels, the server and the command line read it. Start reading at
:mod:`gpuwidget.journal.records`.
"""
