"""Attention kernels and their caches. srt/arg_groups/attention_hook.py, kv_cache_hook.py, overrides.py

Until 0.5.19, srt/server_args.py.
"""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.checks.row import Refusal, at_least, under
from runtime.server.choices import Choices
from runtime.server.sparse_kernels import takes_glms_kernel
from runtime.server.traits import is_disaggregated, is_mla, is_sparse

_FP4 = ("nvfp4", "fp4_mx_block16", "fp4_e2m1")
_FP4_MLA, _FP4_FA4_MHA = ("flashinfer", "trtllm_mla"), ("triton", "torch_native", "flex_attention")
_FP4_DRAFTS = (None, "EAGLE", "EAGLE3", "NGRAM")


def _fp4_backends(c: Choices) -> tuple[str, ...]:
    if not is_mla(c):
        return (*_FP4_FA4_MHA, "trtllm_mha") if used_backends(c)[0] != "fa4" else _FP4_FA4_MHA
    return (*_FP4_MLA, "cutlass_mla") if c.release.has_cutlass_mla else _FP4_MLA


def _is_fp4_elsewhere(c: Choices) -> bool:
    prefill, decode = used_backends(c)
    if prefill not in (decode, "fa4"):
        return False
    named = decode if prefill == "fa4" else c.attention_backend
    flashmla = named == "flashmla" and is_mla(c) and prefill != "fa4" and c.kv_cache_dtype == "fp4_e2m1"
    return named not in _fp4_backends(c) and not flashmla


def _is_native(c: Choices) -> bool:
    """Its scales lie as the kernel wants them."""
    return c.kv_cache_dtype == "nvfp4" and c.gpu.major == 10 and "trtllm_mha" in used_backends(c)


def _names(c: Choices, backend: str) -> bool:
    return backend in (c.attention_backend, c.decode_attention_backend)


_NATIVE = (
    Refusal(
        lambda c: c.speculative_algorithm not in _FP4_DRAFTS,
        "[kv_cache_dtype] does not go with [speculative_algorithm]",
    ),
    Refusal(
        lambda c: c.speculative_algorithm == "NGRAM" and c.speculative_ngram_max_bfs_breadth != 1,
        "[kv_cache_dtype] does not go with [speculative_ngram_max_bfs_breadth]",
        "--speculative-ngram-max-bfs-breadth 1",
    ),
    Refusal(
        lambda c: (
            c.speculative_algorithm not in (None, "NGRAM")
            and c.asked.speculative_draft_attention_backend not in (None, "trtllm_mha")
        ),
        "[kv_cache_dtype] does not go with [speculative_draft_attention_backend]",
    ),
    Refusal(is_disaggregated, "[kv_cache_dtype] does not go with [disaggregation_mode]"),
    Refusal(
        lambda c: c.enable_hierarchical_cache or c.enable_lmcache,
        "[kv_cache_dtype] does not go with a cache on the host",
    ),
)


def _beside_sinks(kernel: str) -> Refusal:
    return Refusal(
        lambda c: c.model.learns_sinks and getattr(c, kernel) not in (None, "flashmla_sparse"),
        f"attention sinks beside an indexer are for flashmla_sparse, and not for [{kernel}]",
        since=(0, 5, 20),
    )


_BEFORE_FP8 = ("sm80", "sm86", "sm87")
_SPARSE = (
    Refusal(
        lambda c: "triton" in (c.dsa_prefill_backend, c.dsa_decode_backend) and not takes_glms_kernel(c),
        "sparse attention on triton is for ROCm",
    ),
    Refusal(
        lambda c: (
            c.kv_cache_dtype == "fp8_e4m3" and "tilelang" in (c.dsa_prefill_backend, c.dsa_decode_backend)
        ),
        "sparse attention on tilelang has no fp8 cache on this GPU",
        "--kv-cache-dtype bfloat16",
        since=(0, 5, 17),
        until=(0, 5, 22),
    ),
    Refusal(
        lambda c: (
            c.kv_cache_dtype == "fp8_e4m3"
            and "tilelang" in (c.dsa_prefill_backend, c.dsa_decode_backend)
            and (c.dsa_prefill_backend != c.dsa_decode_backend or c.dcp_size > 1 or c.enable_hisparse)
        ),
        "sparse attention on tilelang wants both phases alike over an fp8 cache",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: (
            c.kv_cache_dtype == "fp8_e4m3"
            and c.dsa_prefill_backend == "tilelang"
            and (c.gpu.major < 8 or c.gpu.arch in _BEFORE_FP8)
        ),
        "sparse attention on tilelang has no fp8 cache on this GPU",
        "--kv-cache-dtype bfloat16",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.model.learns_sinks and c.kv_cache_dtype not in ("auto", "bf16", "bfloat16"),
        "attention sinks beside an indexer want a wide cache, [kv_cache_dtype]",
        "--kv-cache-dtype bfloat16",
        since=(0, 5, 20),
    ),
    *(_beside_sinks(name) for name in ("dsa_prefill_backend", "dsa_decode_backend")),
    Refusal(
        lambda c: c.enable_prefill_cp and c.disaggregation_mode == "decode",
        "[enable_prefill_cp] does not go with [disaggregation_mode]",
    ),
)

ROWS = (
    Refusal(
        lambda c: used_backends(c)[0] == "trtllm_mha" and c.gpu.major != 10 and c.attn_cp_size > 1,
        "attention backend trtllm_mha on this GPU does not go with [attn_cp_size]",
    ),
    Refusal(
        lambda c: c.asked.prefill_attention_backend == "cutedsl_mla",
        "[prefill_attention_backend] only decodes",
        "--decode-attention-backend cutedsl_mla",
    ),
    Refusal(
        lambda c: _names(c, "cutedsl_mla") and c.gpu.major != 10,
        "attention backend cutedsl_mla needs sm100",
    ),
    Refusal(
        lambda c: (
            _names(c, "cutedsl_mla")
            and c.asked.kv_cache_dtype not in ("fp8_e4m3", "bf16", "bfloat16", "auto")
        ),
        "[kv_cache_dtype] does not go with attention backend cutedsl_mla",
        since=(0, 5, 13),
    ),
    Refusal(
        lambda c: _names(c, "tokenspeed_mla") and c.gpu.major not in (10, 12),
        "attention backend tokenspeed_mla needs a Blackwell GPU",
        until=(0, 5, 23),
    ),
    Refusal(
        lambda c: _names(c, "tokenspeed_mla") and c.asked.kv_cache_dtype != "fp8_e4m3",
        "attention backend tokenspeed_mla needs --kv-cache-dtype fp8_e4m3",
        until=(0, 5, 23),
    ),
    Refusal(
        lambda c: c.kv_cache_dtype == "mxfp8" and c.gpu.major not in (10, 11, 12),
        "[kv_cache_dtype] needs a Blackwell GPU",
    ),
    Refusal(
        lambda c: c.kv_cache_dtype == "nvfp4" and c.gpu.major not in (10, 12),
        "[kv_cache_dtype] needs sm100 or sm120",
        "--kv-cache-dtype fp4_mx_block16",
    ),
    Refusal(
        lambda c: c.kv_cache_dtype in _FP4 and c.enable_unified_memory,
        "[kv_cache_dtype] does not go with [enable_unified_memory]",
        since=(0, 5, 21),
    ),
    *under(_is_native, _NATIVE, since=(0, 5, 21)),
    Refusal(
        lambda c: c.kv_cache_dtype in _FP4 and _is_fp4_elsewhere(c),
        "[kv_cache_dtype] does not run on attention backend [attention_backend]",
    ),
    Refusal(
        lambda c: c.prefill_kv_cache_dequant_dtype != "auto" and c.kv_cache_dtype != "nvfp4",
        "[prefill_kv_cache_dequant_dtype] needs --kv-cache-dtype nvfp4",
    ),
    *under(is_sparse, _SPARSE),
    Refusal(
        lambda c: c.enable_dsa_cache_layer_split and not is_sparse(c),
        "[enable_dsa_cache_layer_split] is for models with sparse attention",
    ),
    Refusal(
        lambda c: (
            c.enable_dsa_cache_layer_split
            and (
                c.disaggregation_mode != "prefill"
                or not c.enable_prefill_cp
                or c.cp_strategy != "interleave"
                or c.disaggregation_transfer_backend not in ("mooncake", "mooncake_tcp")
                or c.pp_size > 1
            )
        ),
        "[enable_dsa_cache_layer_split] needs --disaggregation-mode prefill over mooncake,"
        " --enable-prefill-cp, --cp-strategy interleave and no pipeline",
    ),
    Refusal(
        lambda c: (
            c.chunked_prefill_size > 0
            and c.disaggregation_mode != "decode"
            and c.chunked_prefill_size % c.page_size
        ),
        "[page_size] does not divide [chunked_prefill_size]",
    ),
    Refusal(
        lambda c: c.disable_cuda_graph_padding and c.enable_torch_compile,
        "[disable_cuda_graph_padding] does not go with [enable_torch_compile]",
        "leave one of the two out",
    ),
    at_least(1, "cuda_graph_prefill_max_context"),
    Refusal(
        lambda c: (
            c.cuda_graph_prefill_max_context is not None
            and -(-c.cuda_graph_prefill_max_context // c.page_size) * c.page_size
            > (c.context_length or c.model.context_length)
        ),
        "[cuda_graph_prefill_max_context] is more than the model's context",
    ),
    Refusal(
        lambda c: c.ple_offload_embedding and (c.cpu_offload_gb > 0 or c.offload_group_size > 0),
        "[ple_offload_embedding] does not go with other offloading",
    ),
)
