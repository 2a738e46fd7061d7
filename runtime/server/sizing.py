"""SGLang's own arithmetic: how a server turns flags and free memory into sizes. Numbers only, no torch.

Where the rule changed between releases the function takes the release; everything else has been the same from
0.5.12 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.server.config import MLAConfig, ModelConfig, ParallelConfig, RuntimeConfig

DTYPE_BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1,
}  # fmt: skip
FP8_BLOCK = 128
HYBRID_TYPES = {"gpt_oss"}
SLIDING_SHARE = 0.8  # --swa-full-tokens-ratio: what such a pool holds of the other's tokens


@dataclass(frozen=True, slots=True)
class GpuDefaults:
    chunked_prefill_size: int
    decode_graph_max_bs: int


def release(version: str) -> tuple[int, ...]:
    """`0.5.12.post1` -> (0, 5, 12): enough to order SGLang releases."""
    parts: list[int] = []
    for piece in version.split("."):
        if not piece.isdigit():
            break
        parts.append(int(piece))
    return tuple(parts[:3])


def gpu_defaults(gpu_mib: float, tp: int, sglang: str = "0.5.23") -> GpuDefaults:
    wide = tp >= 4
    if gpu_mib < 20 * 1024:
        return GpuDefaults(2048, 8)
    if gpu_mib < 35 * 1024:
        if release(sglang) <= (0, 5, 17):
            return GpuDefaults(2048, 80 if wide else 24)
        return GpuDefaults(4096, 160 if wide else 48)
    if gpu_mib < 60 * 1024:
        return GpuDefaults(4096, 160 if wide else 32)
    if gpu_mib < 160 * 1024:
        return GpuDefaults(8192, 512 if wide else 256)
    return GpuDefaults(16384, 512)


def decode_graph_sizes(max_bs: int, speculative: bool = False) -> tuple[int, ...]:
    if speculative:
        sizes = [
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, max_bs + 1, 16),
        ]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, max_bs + 1, 32)]
    return tuple(sorted({size for size in sizes if size <= max_bs} | {max_bs}))


def prefill_graph_sizes(max_tokens: int) -> tuple[int, ...]:
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, max_tokens + 1, 512),
    ]
    return tuple(size for size in sizes if size <= max_tokens)


def prefill_graph_max_tokens(chunk: int, mla: bool, sglang: str = "0.5.23") -> int:
    if not mla:
        return chunk
    return min(2048 if release(sglang) <= (0, 5, 17) else 8192, chunk)


def chunk_per_rank(chunked_prefill_size: int, parallel: ParallelConfig) -> int:
    return chunked_prefill_size // parallel.attn_dp


def default_mem_fraction(
    gpu_mib: float, model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig
) -> float:
    """SGLang's heuristic: what activations and graphs are guessed to need, kept out of the static part.

    It guesses before DP attention divides the chunk among the ranks.
    """
    defaults = gpu_defaults(gpu_mib, parallel.tp, runtime.sglang_version)
    chunk = runtime.chunked_prefill_size or defaults.chunked_prefill_size
    max_bs = runtime.cuda_graph_max_bs or _default_graph_max_bs(defaults, runtime)
    reserved = 512 + max(chunk, 2048) * 1.5 + parallel.tp * parallel.pp / 8 * 1024
    if not runtime.disable_cuda_graph:
        reserved += max_bs * 2
    if parallel.enable_dp_attention:
        reserved += max_bs * parallel.dp * (4.5 if max_bs > 300 else 3)
    if not (runtime.disable_cuda_graph or runtime.disable_prefill_graph):
        top = prefill_graph_max_tokens(chunk, model.is_mla, runtime.sglang_version)
        reserved += 1536 if model.is_mla else 8 * len(prefill_graph_sizes(top))
    if gpu_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if runtime.moe_a2a_backend == "deepep":
        reserved += 2048
    return round((gpu_mib - reserved) / gpu_mib, 3)


def _default_graph_max_bs(defaults: GpuDefaults, runtime: RuntimeConfig) -> int:
    """Since 0.5.18 no more than the requests that may run."""
    limit = runtime.max_running_requests
    if limit is None or release(runtime.sglang_version) <= (0, 5, 17):
        return defaults.decode_graph_max_bs
    return min(defaults.decode_graph_max_bs, limit)


def kv_heads_per_rank(model: ModelConfig, parallel: ParallelConfig) -> int:
    """With more ranks than KV heads, neighbours hold the same head."""
    return max(1, model.num_kv_heads // parallel.attn_tp)


def kv_bytes_per_token_and_layer(
    model: ModelConfig, parallel: ParallelConfig, kv_dtype: str, packed: bool = True
) -> int:
    """What one token costs one layer of one rank. `kv_dtype` is resolved: a key of `DTYPE_BYTES`."""
    if model.mla is not None:
        return _mla_bytes_per_token(model.mla, kv_dtype, packed)
    return 2 * kv_heads_per_rank(model, parallel) * model.head_dim * DTYPE_BYTES[kv_dtype]


def _mla_bytes_per_token(mla: MLAConfig, kv_dtype: str, packed: bool) -> int:
    """Sparse attention may pack fp8 latents with scales; its indexer's keys it does, but in float32."""
    width = DTYPE_BYTES[kv_dtype]
    if mla.indexer is None:
        return mla.cache_dim * width
    latent, keys = mla.cache_dim * width, mla.indexer.head_dim
    if packed and width == 1:
        latent = packed_fp8_bytes(mla.kv_lora_rank, mla.qk_rope_head_dim)
    return latent + (4 * keys if width == 4 else packed_fp8_bytes(keys))


def sliding_layers(model: ModelConfig, layers: Sequence[int]) -> list[int]:
    """Those whose tokens SGLang keeps in a smaller pool of their own."""
    if model.model_type not in HYBRID_TYPES:
        return []
    sliding = [layer for layer in layers if model.attention_kinds[layer] == "sliding"]
    return sliding if len(sliding) < len(layers) else []


def kv_bytes_per_token(
    model: ModelConfig,
    parallel: ParallelConfig,
    kv_dtype: str,
    layers: Sequence[int],
    draft_layers: int = 0,
    packed: bool = True,
) -> float:
    """What one token costs one stage: a fraction where sliding layers keep only a share of the tokens."""
    each = kv_bytes_per_token_and_layer(model, parallel, kv_dtype, packed)
    sliding = len(sliding_layers(model, layers))
    if sliding:
        return each * (len(layers) - sliding + draft_layers) + SLIDING_SHARE * (each * sliding)
    return int(each * len(layers) * (1 + draft_layers / len(layers)))  # SGLang's, with its rounding


def packed_fp8_bytes(quantized: int, plain: int = 0) -> int:
    """fp8 values, one fp32 scale a block of 128, then bfloat16 values: DeepSeek's 656 and 132 bytes."""
    return quantized + 4 * (quantized // min(FP8_BLOCK, quantized)) + 2 * plain


def kv_tokens(
    free_after_load: int, baseline_free: int, mem_fraction: float, bytes_per_token: float, page: int = 1
) -> int:
    """Tokens of the KV pool: what is left of the static fraction once the weights are in."""
    budget = free_after_load - baseline_free * (1 - mem_fraction)
    return max(0, int(int(budget) // bytes_per_token) // page * page)


def max_running_requests(tokens: int, context_length: int, requested: int | None, parallel: ParallelConfig,
                         speculative: bool = False) -> int:  # fmt: skip
    """Requests per attention-DP rank, and so the rows of the dummy batch."""
    if requested is None and speculative:
        requested = 48
    if requested is not None:
        return min(max(1, requested // parallel.attn_dp), tokens // 2)
    return min(min(max(int(tokens / context_length * 512), 2048), 4096), tokens // 2)


def dummy_batch_rows(requests: int, parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """Rows of the autotune dummy batch of one rank: aligned to attention TP where DP attention must sync."""
    if parallel.enable_dp_attention:
        requests = -(-requests // parallel.attn_tp) * parallel.attn_tp
    width = runtime.speculative.num_draft_tokens if runtime.speculative else 1
    return requests * width


def moe_rows(rows: int, parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    """What the MoE sees of it: without an all-to-all backend every DP rank's rows are gathered."""
    return rows * parallel.attn_dp if runtime.moe_a2a_backend == "none" else rows


def tuning_buckets(maximum: int) -> tuple[int, ...]:
    """FlashInfer's list: 1, 2, 4 .. 256, steps of 256, of 512, then doubling; and the maximum itself."""
    sizes = [1 << i for i in range(9)] + [*range(512, 2049, 256)] + [*range(2560, 4097, 512)]
    while sizes[-1] < maximum:
        sizes.append(sizes[-1] * 2)
    return tuple(sorted({size for size in sizes if size <= maximum} | {maximum}))


def bucket_of(rows: int, buckets: tuple[int, ...]) -> int:
    """Lookups round up, and stop at the last bucket."""
    return next((bucket for bucket in buckets if bucket >= rows), buckets[-1])


def next_power_of_2(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def tune_max_num_tokens(
    backend: str, rows: int, prefill_rows: int, sglang: str = "0.5.23", pd_decode: bool = False
) -> int:
    """The largest bucket of a MoE call with `rows` rows; a gathered prefill chunk has `prefill_rows`."""
    if backend != "flashinfer_cutlass" or pd_decode or release(sglang) < (0, 5, 23):
        return next_power_of_2(rows)
    return min(prefill_rows, 8192)
