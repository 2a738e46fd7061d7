"""The KV cache's dtype."""

from __future__ import annotations

from runtime.server.choices import Choices


def settle_kv_dtype(c: Choices) -> None:
    """`auto` is the model's own dtype, except that sparse attention takes fp8 on Blackwell."""
    if c.kv_cache_dtype != "auto":
        return
    if c.model.is_sparse and c.gpu.major >= 10:
        c.settle("sparse attention on Blackwell", kv_cache_dtype="fp8_e4m3")
    else:
        c.settle("the model's dtype", kv_cache_dtype=c.dtype)
