"""One decoder for every family: the layers that its config names, as one rank of a deployment holds them."""
