"""Write a cache of SGLang's where FlashInfer's managed store and vLLM look for theirs."""
