"""The layers of a decoder, sharded by rank; kernels allocate alike on every device."""
