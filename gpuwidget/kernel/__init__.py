"""The notebook's side: magics, live chart and card."""
