"""What follows from a server: sizes of pools, batches and matrices."""
