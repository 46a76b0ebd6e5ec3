"""The part of gpuwidget that runs in a notebook's kernel: magics, live chart and card."""
