"""One command per file: parse, one call, hand the result to the sink."""
