"""Plan, launch, write, prove: the caches of a whole deployment from whatever devices are here."""
