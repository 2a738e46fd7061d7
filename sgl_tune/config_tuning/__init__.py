"""A server's Triton MoE configurations, tuned: what its start looks for, compiled, measured and written."""
