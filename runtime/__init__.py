"""What one SGLang rank does between process start and ready. Imports torch where it computes, never sgl_tune."""
