"""The sampling profiler of a cell's thread: where its time went, and what the GPU did on each line.

Start with ``sampling_profiler.py``; ``line_profile.py`` turns stack samples into the report's entries.
"""
