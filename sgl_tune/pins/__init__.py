"""A lock: the tactics and Triton configurations that every node of a deployment must have."""
