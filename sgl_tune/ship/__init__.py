"""Caches and stores as one file that arrives usable: packed, checked, unpacked."""
