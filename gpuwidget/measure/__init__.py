"""One measured run: from a stream of samples and torch's counters to a report."""
