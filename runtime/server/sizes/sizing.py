"""What a token of the KV cache costs, and how many tokens fit: SGLang's own arithmetic."""

from collections.abc import Sequence

from runtime.server.config import SLIDING_SHARE, ModelConfig
from runtime.server.layer_config import AttentionConfig, MLAConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.batches import MORE_TOKENS_THAN_ANY_POOL

DTYPE_BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1,
}  # fmt: skip
FP8_BLOCK = 128


def kv_heads_per_rank(attention: AttentionConfig, parallel: ParallelConfig) -> int:
    """Return the KV heads of a rank. With more ranks than heads, neighbours hold the same head."""
    return max(1, attention.num_kv_heads // parallel.attn_tp)


def kv_bytes_per_token_and_layer(
    model: ModelConfig, parallel: ParallelConfig, kv_dtype: str, packed: bool = True
) -> int:
    """Return what one token costs in one layer of one rank, without a window if there are several kinds.
    `kv_dtype` is resolved: a key of `DTYPE_BYTES`."""
    if model.mla is not None:
        return _mla_bytes_per_token(model.mla, kv_dtype, packed)
    return _bytes_per_token(model.main_attention, parallel, kv_dtype)


def _bytes_per_token(attention: AttentionConfig, parallel: ParallelConfig, kv_dtype: str) -> int:
    return kv_heads_per_rank(attention, parallel) * 2 * attention.head_dim * DTYPE_BYTES[kv_dtype]


def _mla_bytes_per_token(mla: MLAConfig, kv_dtype: str, packed: bool) -> int:
    """Return the bytes of latents and index keys. Sparse attention may pack fp8 latents with scales."""
    width = DTYPE_BYTES[kv_dtype]
    if mla.indexer is not None and packed and width == 1:
        return packed_fp8_bytes(mla.kv_lora_rank, mla.qk_rope_head_dim) + _index_bytes(mla, kv_dtype)
    return mla.cache_dim * width + _index_bytes(mla, kv_dtype)


def _index_bytes(mla: MLAConfig, kv_dtype: str) -> int:
    """Return the bytes of an indexer's key: packed fp8 with scales, or float32."""
    if mla.indexer is None:
        return 0
    keys, width = mla.indexer.head_dim, DTYPE_BYTES[kv_dtype]
    return 4 * keys if width == 4 else packed_fp8_bytes(keys)


def kept_layers(model: ModelConfig, layers: Sequence[int]) -> list[int]:
    """Return the layers that keep keys and values of every token."""
    return [layer for layer in layers if model.keeps_tokens(layer)]


def sliding_layers(model: ModelConfig, layers: Sequence[int]) -> list[int]:
    """Return the layers whose tokens SGLang keeps in a smaller pool of their own."""
    if not model.traits.window_pool:
        return []
    sliding = [layer for layer in layers if model.attention_kinds[layer] == "sliding"]
    return sliding if len(sliding) < len(layers) else []


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
) -> float:
    """Return what a token costs one stage: a fraction if sliding layers keep only a `share` of tokens."""
    kept, sliding = kept_layers(model, layers), len(sliding_layers(model, layers))
    if not kept:
        return 0
    each = kv_bytes_per_token_and_layer(model, parallel, kv_dtype, packed)
    if sliding:
        behind = _bytes_per_token(model.attention["sliding"], parallel, kv_dtype)
        return each * (len(kept) - sliding + draft_layers) + share * (behind * sliding)
    if model.mla is None:  # all behind a window, perhaps, of a stage of its own
        each = _bytes_per_token(model.layer_attention(kept[0]), parallel, kv_dtype)
    return each * (len(kept) + draft_layers)


def packed_fp8_bytes(quantized: int, plain: int = 0) -> int:
    """Bytes of fp8 values, one fp32 scale per block of 128, and bfloat16 values: DeepSeek's 656 and 132."""
    return quantized + 4 * (quantized // min(FP8_BLOCK, quantized)) + 2 * plain


def static_rest(free_after_load: int, baseline_free: int, mem_fraction: float) -> float:
    """Return the bytes of the static fraction that remain after the weights."""
    return free_after_load - baseline_free * (1 - mem_fraction)


def kv_tokens(rest: float, bytes_per_token: float, page: int) -> int:
    """Return the tokens of the KV pool. A stage without keys and values does not limit the other stages."""
    if not bytes_per_token:
        return MORE_TOKENS_THAN_ANY_POOL
    return max(0, int(int(rest) // bytes_per_token) // page * page)
