"""The memory of each startup phase: predicted without a GPU, measured on one, or read from a log."""
