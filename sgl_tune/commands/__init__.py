"""One file per command. Each parses options, makes one call and passes the result to `Output`."""
