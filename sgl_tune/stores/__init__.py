"""A start's other caches as data: where they lie, and one reader per kind of store."""
