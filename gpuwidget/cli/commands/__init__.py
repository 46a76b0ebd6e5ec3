"""The subcommands of ``gpuwidget``, one per module. ``cli/main.py`` lists them."""
