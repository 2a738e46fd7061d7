"""The layers of a decoder, each in one rank's part. Kernels allocate the same on every device."""
