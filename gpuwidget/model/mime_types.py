"""The types of gpuwidget's outputs in a notebook."""

MIME_TYPE = "application/vnd.gpuwidget.report+json"
"""A run's report."""
CARD_MIME_TYPE = "application/vnd.gpuwidget.card+json"
"""Tells the labextension that an output without a report is a card; its value is empty."""
