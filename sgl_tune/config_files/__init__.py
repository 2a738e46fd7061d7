"""SGLang's files of Triton configurations: their names, read as SGLang reads them, and a root of them."""
