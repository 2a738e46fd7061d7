"""What SGLang's start chooses where a flag is not set: one file per choice."""
