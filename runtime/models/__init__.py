"""The model families of the core, one file each: the fields of config.json, the layers that they describe,
and what SGLang's servers choose for the family. No torch."""
