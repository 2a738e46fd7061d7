"""Judges a missing compiled module by its source, as its release ships it."""
