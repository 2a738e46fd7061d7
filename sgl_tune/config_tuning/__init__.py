"""Tune a server's Triton MoE configurations: what its start looks for, compiled, measured and written."""
