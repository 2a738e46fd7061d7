"""Which startup phase takes the memory: predicted without a GPU, measured on one, or read from a log."""
