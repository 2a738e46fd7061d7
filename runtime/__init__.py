"""What one SGLang rank does between process start and ready. It never imports sgl_tune."""
