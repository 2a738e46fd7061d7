"""The other caches of a start, as data: a reader a store, and where they lie."""
