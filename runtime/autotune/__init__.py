"""FlashInfer's autotuner, taken hold of: SGLang's context around it, a search shared by ranks, a clock for CPUs."""
