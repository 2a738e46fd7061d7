"""What a start compiles, compiled before it."""
