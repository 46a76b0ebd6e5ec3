"""The figures gpuwidget holds itself to, measured side by side: ``python -m benchmarks``.

docs/benchmarks.md says how each is measured and what it leaves out.
"""
