"""Access to the torch that the user has imported: devices, allocator, peak counters, default device,
settings.

Nothing in this package imports torch or initializes CUDA. Start with ``cuda_state.py``. Only this package and
``heap/`` handle torch's objects.
"""
