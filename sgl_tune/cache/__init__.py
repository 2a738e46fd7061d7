"""The cache as data: records, layouts, verdicts. Nothing here imports torch."""
