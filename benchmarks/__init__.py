"""Benchmarks of gpuwidget against its limits and its peers: ``python -m benchmarks``.

docs/benchmarks.md describes how each is measured and what it leaves out.
"""
