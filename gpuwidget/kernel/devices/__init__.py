"""The default torch device, torch's switches, and the GPUs that a kernel can use.

Start with ``default_device.py`` (``%gpu device``).
"""
