"""Benchmarks that compare gpuwidget with its performance targets and with similar tools.

Run them with ``python -m benchmarks``. docs/developers/benchmarks.md describes how each benchmark measures
and what it does not cover.
"""
