"""Make the golden outputs that no test makes."""
