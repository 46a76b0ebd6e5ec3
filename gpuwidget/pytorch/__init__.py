"""The torch that the user has imported: allocator, devices, switches and hooks. Nothing here imports it.

Start with ``cuda_state.py``; only this package and ``heap/`` handle torch's objects.
"""
