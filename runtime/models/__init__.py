"""One decoder for every supported family: its parts follow from the config."""
