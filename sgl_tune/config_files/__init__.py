"""SGLang's files of Triton configurations: named, read as its loader reads them, and gathered in a root."""
