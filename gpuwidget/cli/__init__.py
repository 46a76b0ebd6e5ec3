"""The ``gpuwidget`` command: the table of all GPUs, recording, the doctor and the example notebooks.

Start reading at ``main.py``.
"""
