"""The live chart of a watched cell and the inline dashboard, made of ipywidgets and bqplot.

Start with ``live_display.py`` (when the chart appears) and ``live_chart.py`` (its widgets);
``chart_libraries.py`` imports its libraries.
"""
