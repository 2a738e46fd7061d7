"""Our use of FlashInfer's autotuner: SGLang's context, a search shared by ranks, a clock for CPUs."""
