"""Send bundles to a registry, a folder or an object store, and fetch them."""
