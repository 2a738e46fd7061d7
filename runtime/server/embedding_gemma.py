"""EmbeddingGemma's servers: handle_model_capability_adjustments of srt/arg_groups/model_hook.py, before in
server_args.py.

It is a Gemma 3 by its file, whose tokens see those behind them, too: SGLang knows it by that.
"""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.checkpoint import Checkpoint
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.graph_backends import BREAKABLE
from runtime.server.graphs import prefill_graph_sizes
from runtime.server.releases import Release

_SEEN = "EmbeddingGemma's prompts, which see all of themselves"
_GRAPH_TOP = 16384
_KEEPING_NOTHING, _MAJORS = (None, "fa3", "fa4"), (9, 10)
_KV_OTHERWISE = ("nvfp4", "fp4_mx_block16", "fp4_e2m1", "mxfp8")


def is_embedding_gemma(model: Checkpoint, release: Release) -> bool:
    told = model.text.get("model_type"), model.text.get("use_bidirectional_attention")
    return release.embedding_gemma != "unknown" and told[0] == "gemma3_text" and bool(told[1])


def settle_embedding_gemma(c: Choices) -> None:
    """Prompts are whole, no prefix is kept, and prefills are captured for eight of the longest."""
    if not is_embedding_gemma(c.model, c.release):
        return
    c.settle(_SEEN, chunked_prefill_size=-1, disable_radix_cache=True)
    if _keeps_nothing(c):
        _check_pool(c)
        c.settle(
            "EmbeddingGemma asks FlashAttention for no keys of before", prefill_only_disable_kv_cache=True
        )
    c.disable(c.decode, _SEEN)
    if c.prefill.is_on:
        c.prefill.backend = BREAKABLE
        _enlarge(c)


def _keeps_nothing(c: Choices) -> bool:
    """Whatever a release then attends with: it asks the flags first, and later what became of them."""
    asked = c.asked.prefill_attention_backend or c.asked.attention_backend
    backend = asked if c.release.embedding_gemma == "by flags" else used_backends(c)[0]
    return c.gpu.major in _MAJORS and backend in _KEEPING_NOTHING


def _check_pool(c: Choices) -> None:
    """validate_prefill_only_disable_kv_cache_args, once more."""
    for name in ("enable_prefill_cp", "enable_hisparse"):
        if getattr(c, name):
            raise ConfigError(f"--{name.replace('_', '-')}: EmbeddingGemma keeps no tokens", tries=(name,))
    if c.attn_cp_size > 1:
        raise ConfigError("--attn-cp-size: EmbeddingGemma keeps no tokens", tries=("attn_cp_size",))
    if c.kv_cache_dtype in _KV_OTHERWISE:
        raise ConfigError(
            f"--kv-cache-dtype {c.kv_cache_dtype}: EmbeddingGemma keeps no tokens", tries=("kv_cache_dtype",)
        )


def _enlarge(c: Choices) -> None:
    """What nobody asked for."""
    if "max_bs" in c.prefill.locked:
        return
    context = c.model.context_length if c.context_length is None else c.context_length
    c.prefill.max_bs = max(c.prefill.max_bs or 0, context, _GRAPH_TOP)
    c.prefill.limit = "as large as eight of EmbeddingGemma's longest prompts"
    if "sizes" not in c.prefill.locked:
        c.prefill.sizes = prefill_graph_sizes(c.prefill.max_bs)
