"""The ways to a registry, a folder or an object store, and back."""
