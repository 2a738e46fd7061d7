"""The families of the core, one file each: a config.json's fields, the layers they describe, and what servers
choose for them. No torch."""
