"""One decoder for every family: the layers that its config names, in the part that one rank holds."""
