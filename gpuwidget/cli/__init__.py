"""The ``gpuwidget`` command: the table of all GPUs, and subcommands such as ``record`` and ``doctor``.

Start reading at ``main.py``. ``commands/`` has one module per subcommand.
"""
