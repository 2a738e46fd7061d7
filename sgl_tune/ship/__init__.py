"""Move caches and stores as one file: pack, check, send, fetch, unpack."""
