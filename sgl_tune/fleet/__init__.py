"""Many nodes at once: what each of them holds, and what its next start makes of that."""
