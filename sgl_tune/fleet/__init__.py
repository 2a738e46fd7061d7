"""Judge many nodes at once: what each of them holds, and what its next start does with that."""
