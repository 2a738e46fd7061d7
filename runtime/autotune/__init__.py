"""FlashInfer's autotuner, taken hold of: SGLang's context, a search shared by ranks, a clock for CPUs."""
