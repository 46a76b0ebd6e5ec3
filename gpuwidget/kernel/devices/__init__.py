"""The default torch device, torch's switches, and the GPUs that this kernel can use.

Start with ``default_device.py`` (``%gpu device``).
"""
