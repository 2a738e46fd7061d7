"""How a checkpoint stores its matrices: which method each has, and the tensors that a server makes of it."""
