"""How caches lie on the disk: a reader per layout, and the search for caches."""
