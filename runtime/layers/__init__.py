"""The layers of a decoder, sharded by rank; kernels are opaque ops, so every device allocates alike."""
