"""What a token of the KV cache costs, and how many there is room for: SGLang's own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.server.config import SLIDING_SHARE, ModelConfig
from runtime.server.errors import Unsupported
from runtime.server.layer_config import AttentionConfig, IndexerConfig, MLAConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.requests import MORE_TOKENS_THAN_ANY_POOL

DTYPE_BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1,
}  # fmt: skip
FP8_BLOCK = 128
PACKED = "nvfp4"  # of an indexer's keys: all keys and values are, too
_PACKED_PAGE, _PACKED_GROUP = 128, 16
_FP8_E4M3 = "fp8_e4m3"
HYBRID_TYPES = {
    *("gpt_oss", "mellum", "llama4_text", "step3p5", "mimo_v2_flash", "laguna", "gemma4_text"),
    *("granitemoe_swa", "dots3_note_text", "spark2_5", "muse_glimmer_text", "diffusion_gemma_text"),
    *("iquest_q1", "beam", "muse_spark_text", "granite_swa", "inkling_model"),
}


def kv_heads_per_rank(attention: AttentionConfig, parallel: ParallelConfig) -> int:
    """With more ranks than KV heads, neighbours hold the same head."""
    return max(1, attention.num_kv_heads // parallel.attn_tp)


def kv_bytes_per_token_and_layer(
    model: ModelConfig, parallel: ParallelConfig, kv_dtype: str, packed: bool = True
) -> int:
    """What one token costs one layer of one rank, where there are several kinds of layers, one of those that
    see everything. `kv_dtype` is resolved: a key of `DTYPE_BYTES`."""
    if model.compressed is not None:
        raise Unsupported("keys of groups of tokens have no bytes a token and layer")
    if model.mla is not None:
        return _mla_bytes_per_token(model.mla, kv_dtype, packed)
    return _bytes_per_token(model.main_attention, parallel, kv_dtype)


def _bytes_per_token(attention: AttentionConfig, parallel: ParallelConfig, kv_dtype: str) -> int:
    width = attention.head_dim + attention.value_width
    return kv_heads_per_rank(attention, parallel) * width * DTYPE_BYTES[kv_dtype]


def kv_bytes_behind(model: ModelConfig, parallel: ParallelConfig, kv_dtype: str) -> int:
    """Of a layer behind a window."""
    if model.mla is not None:
        return model.mla_of("sliding").cache_dim * DTYPE_BYTES[kv_dtype]
    return _bytes_per_token(model.attention["sliding"], parallel, kv_dtype)


def _mla_bytes_per_token(mla: MLAConfig, kv_dtype: str, packed: bool) -> int:
    """Sparse attention may pack fp8 latents with scales."""
    width = DTYPE_BYTES[kv_dtype]
    if mla.indexer is not None and packed and width == 1:
        return packed_fp8_bytes(mla.kv_lora_rank, mla.qk_rope_head_dim) + _index_bytes(mla, kv_dtype)
    return mla.cache_dim * width + _index_bytes(mla, kv_dtype)


def _index_bytes(mla: MLAConfig, kv_dtype: str) -> int:
    """An indexer's keys are packed with scales, but in float32."""
    if mla.indexer is None:
        return 0
    keys, width = mla.indexer.head_dim, DTYPE_BYTES[kv_dtype]
    return -(-(4 * keys if width == 4 else packed_fp8_bytes(keys)) // mla.indexer.pool)


def kept_layers(model: ModelConfig, layers: Sequence[int]) -> list[int]:
    """Those with keys and values of every token, or with a place for them; what no layer is, is a place."""
    kept = [layer for layer in layers if model.idle_keys or model.keeps_tokens(layer)]
    times = model.rounds if model.idle_rounds else 1
    return [layer + turn * model.num_layers for turn in range(times) for layer in kept]


def latents_behind(model: ModelConfig, kept: Sequence[int]) -> dict[int, MLAConfig]:
    """Of those of these layers whose latents are kept as a window's."""
    if model.mla_behind is None:
        return {}
    return {layer: model.mla_behind for layer in kept if model.attention_kinds[layer] == "sliding"}


def sliding_layers(model: ModelConfig, layers: Sequence[int]) -> list[int]:
    """Those whose tokens SGLang keeps in a smaller pool of their own."""
    if model.model_type not in HYBRID_TYPES or not model.windows_apart:
        return []
    sliding = [layer for layer in layers if model.attention_kinds[layer] == "sliding"]
    return sliding if len(sliding) < len(layers) else []


def pooled_layers(model: ModelConfig, layers: Sequence[int], counts_next: bool) -> list[int]:
    """Those that a stage's pool is for: once of layers behind windows, and of those beside them, the first of
    the next stage, too. adjust_hybrid_swa_layer_ids of srt/model_executor, whose range is one too long."""
    following = layers[-1] + 1
    is_apart = model.model_type in HYBRID_TYPES and model.windows_apart
    more = counts_next and is_apart and following < model.num_layers
    return [*layers, following] if more else [*layers]


def windows_alone(model: ModelConfig, layers: Sequence[int]) -> bool:
    """Of a stage that has no other pool than one for layers behind a window."""
    if model.in_windows:
        return True
    kinds = {model.attention_kinds[layer] for layer in layers}
    return model.model_type in HYBRID_TYPES and model.windows_apart and kinds == {"sliding"}


def has_window_pool(model: ModelConfig) -> bool:
    return bool(sliding_layers(model, range(model.num_layers)))


def kv_bytes_per_token(
    model: ModelConfig,
    parallel: ParallelConfig,
    kv_dtype: str,
    layers: Sequence[int],
    draft_layers: int = 0,
    packed: bool = True,
    share: float = SLIDING_SHARE,
    index_dtype: str | None = None,
) -> float:
    """What one token costs one stage: a fraction where sliding layers keep only a `share` of the tokens.
    `index_dtype`: of keys of an indexer of blocks."""
    if index_dtype == PACKED:
        return len(layers) * sum(packed_page_bytes(model, parallel)) // _PACKED_PAGE
    kept, sliding = kept_layers(model, layers), len(sliding_layers(model, layers))
    if not kept:
        return 0
    each = kv_bytes_per_token_and_layer(model, parallel, kv_dtype, packed)
    if sliding:
        behind = kv_bytes_behind(model, parallel, kv_dtype)
        return each * (len(kept) - sliding + draft_layers) + share * (behind * sliding)
    if model.mla is None:  # all behind a window, perhaps, of a stage of its own
        each = _bytes_per_token(model.layer_attention(kept[0]), parallel, kv_dtype)
    elif len(latents_behind(model, kept)) == len(kept):
        each = kv_bytes_behind(model, parallel, kv_dtype)
    indexed = sum(block_key_widths(model, kept).values()) * DTYPE_BYTES[index_dtype or kv_dtype]
    sharing = sum(map(model.shares_choice, kept))
    if model.mla is not None and sharing:  # no layer of a draft's does
        return each * (len(kept) + draft_layers) - sharing * _index_bytes(model.mla, kv_dtype)
    # SGLang's, with its rounding
    return int((each * len(kept) + indexed) * (1 + draft_layers / len(kept))) + _pooled(model) * len(kept)


def pooled_indexer(model: ModelConfig) -> IndexerConfig | None:
    """Of layers whose groups of tokens have a key each, beside those of tokens."""
    return next((one.pools for one in model.attention.values() if one.pools is not None), None)


def _pooled(model: ModelConfig) -> int:
    """Of a token: srt/mem_cache/qsa_kv_pool.py, whose keys are bfloat16."""
    found = pooled_indexer(model)
    return 0 if found is None else 2 * found.head_dim // found.pool


def has_block_keys(model: ModelConfig) -> bool:
    return any(attention.blocks is not None for attention in model.attention.values())


def block_key_widths(model: ModelConfig, kept: Sequence[int]) -> dict[int, int]:
    """Of a token's key in the indexers of those of these layers that have one."""
    found = ((layer, model.layer_attention(layer).blocks) for layer in kept)
    return {layer: blocks.head_dim for layer, blocks in found if blocks is not None}


def packs_pages(model: ModelConfig, major: int) -> bool:
    """srt/mem_cache/minimax_m3_nvfp4_pool.py"""
    experts = model.quantized.experts
    is_one = experts is not None and experts.name == "nvfp4_beside_mxfp8"
    return is_one and has_block_keys(model) and major >= 10


def packed_page_bytes(model: ModelConfig, parallel: ParallelConfig) -> tuple[int, int]:
    """Of a layer's page: keys and values, each behind its scales, and an indexer's keys behind theirs. Each
    part is a multiple of 128."""
    attention, tokens = model.main_attention, _PACKED_PAGE
    heads = kv_heads_per_rank(attention, parallel)
    index = 0 if attention.blocks is None else attention.blocks.head_dim
    own, keys = (
        sum(-(-tokens * count * width // per // 128) * 128 for per in (2, _PACKED_GROUP))
        for count, width in ((heads, attention.head_dim), (1, index))
    )
    return 2 * own, keys


def block_key_dtype(
    dtype: str, kv_dtype: str, attention_backend: str, majors: Sequence[int], major: int
) -> str:
    """The cache's on GPUs of `majors` where that is e4m3, on Blackwell with one backend, else the model's:
    get_minimax_sparse_index_dtype of srt/mem_cache/memory_pool.py."""
    multiplies = major != 10 or attention_backend == "trtllm_mha"
    return kv_dtype if kv_dtype == _FP8_E4M3 and major in majors and multiplies else dtype


def packed_fp8_bytes(quantized: int, plain: int = 0) -> int:
    """fp8 values, one fp32 scale a block of 128, then bfloat16 values: DeepSeek's 656 and 132 bytes."""
    return quantized + 4 * (quantized // min(FP8_BLOCK, quantized)) + 2 * plain


def static_rest(free_after_load: int, baseline_free: int, mem_fraction: float) -> float:
    """Bytes that are left of the static fraction once the weights are in."""
    return free_after_load - baseline_free * (1 - mem_fraction)


def kv_tokens(rest: float, bytes_per_token: float, page: int) -> int:
    """Of the KV pool. A pipeline stage without any keys and values asks for no fewer than the others."""
    if not bytes_per_token:
        return MORE_TOKENS_THAN_ANY_POOL
    return max(0, int(int(rest) // bytes_per_token) // page * page)
