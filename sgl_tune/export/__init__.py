"""A cache of SGLang's, written where FlashInfer's managed store and vLLM look for theirs."""
