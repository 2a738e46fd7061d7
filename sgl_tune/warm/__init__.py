"""Plan, launch, write, prove: tune the caches of a whole deployment on whatever devices are here."""
