"""The other caches of a start, as data: one reader per store, and where they lie."""
