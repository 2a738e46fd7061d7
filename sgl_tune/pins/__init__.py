"""A lock: which tactics and Triton configurations every node of a deployment must have."""
