"""Sizes that follow from a server: pools, batches and matrices."""
