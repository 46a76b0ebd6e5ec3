"""Sampling profiler for the thread that runs a cell. It measures time and GPU activity per line.

Start with ``sampling_profiler.py``. ``line_profile.py`` turns the sample counts into the report's entries.
docs/developers/profiler.md explains the method and its measurement errors.
"""
