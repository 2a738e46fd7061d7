"""A start without a GPU: torch's allocator, the tensors in it, and memory that torch does not count."""
