"""Which attention kernels prefill and decode run on, and the page size they ask for."""

from __future__ import annotations

from runtime.server.choices import Choices


def settle_attention(c: Choices) -> None:
    if c.attention_backend is None:
        c.settle("this model on this GPU", attention_backend=_default(c))
    both = c.attention_backend
    c.settle(
        "the attention backend",
        prefill_attention_backend=c.prefill_attention_backend or both,
        decode_attention_backend=c.decode_attention_backend or both,
    )


def settle_page_size(c: Choices) -> None:
    if c.page_size is None:
        sparse = c.model.is_sparse
        c.settle("sparse attention" if sparse else "the default", page_size=64 if sparse else 1)


def _default(c: Choices) -> str:
    model, major = c.model, c.gpu.major
    if model.is_sparse:
        return "dsa"
    if major == 9:
        return "fa3"
    if model.is_mla:
        return "trtllm_mla" if major == 10 else "triton"
    if major == 10:
        return "trtllm_mha"
    return "triton" if model.has_attention_sinks else "flashinfer"
