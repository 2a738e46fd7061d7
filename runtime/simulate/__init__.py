"""A start without a GPU: torch's allocator, the tensors that would live in it, and what torch cannot see."""
