"""What SGLang chooses for flags that are not set, one file per choice."""
