"""One command a file: parse, one call, hand the result to the sink."""
