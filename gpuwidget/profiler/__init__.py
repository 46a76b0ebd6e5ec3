"""The sampling profiler of the thread that runs a cell: time per line, and GPU activity per line.

Start with ``sampling_profiler.py``; ``line_profile.py`` turns the sample counts into the report's entries.
docs/profiler.md explains the model and its errors.
"""
