"""What DeepSeek-V4 does not do. srt/arg_groups/deepseek_v4_hook.py (before, srt/server_args.py)."""

from __future__ import annotations

from runtime.server.checks.row import Refusal, under
from runtime.server.shown_layers import drafts_asked
from runtime.server.traits import is_disaggregated, shares_contexts

_ROWS = (
    Refusal(
        lambda c: c.asked.kv_cache_dtype not in ("auto", "fp8_e4m3"),
        "DeepSeek-V4 has no such cache: [kv_cache_dtype]",
        until=(0, 5, 14),
    ),
    Refusal(
        lambda c: c.asked.kv_cache_dtype not in ("auto", "fp8_e4m3", "bfloat16"),
        "DeepSeek-V4 has no such cache: [kv_cache_dtype]",
    ),
    Refusal(
        lambda c: drafts_asked(c) not in (None, "EAGLE", "DSPARK"),
        "DeepSeek-V4 does not go with [speculative_algorithm]",
        "EAGLE or DSPARK",
        since=(0, 5, 16),
    ),
    Refusal(
        lambda c: drafts_asked(c) not in (None, "EAGLE"),
        "DeepSeek-V4 does not go with [speculative_algorithm]",
        "EAGLE",
        until=(0, 5, 16),
    ),
    Refusal(
        lambda c: drafts_asked(c) == "EAGLE" and c.asked.speculative_eagle_topk != 1,
        "DeepSeek-V4 drafts with --speculative-eagle-topk 1",
    ),
    Refusal(
        lambda c: c.dsv4_attn_backend == "flashmla_mega",
        "[dsv4_attn_backend] does not run this model",
    ),
    Refusal(
        lambda c: (
            c.dsv4_attn_backend == "trtllm"
            and (
                c.gpu.major != 10
                or c.asked.kv_cache_dtype not in ("auto", "fp8_e4m3")
                or c.enable_hisparse
                or shares_contexts(c)
                or is_disaggregated(c)
                or c.chunked_prefill_size <= 0
            )
        ),
        "[dsv4_attn_backend] needs sm100, an fp8 cache and chunks, and no context parallelism or roles",
    ),
    Refusal(
        lambda c: is_disaggregated(c) and c.pp_size > 1,
        "DeepSeek-V4 does not go with [pp_size] and [disaggregation_mode]",
        until=(0, 5, 13),
    ),
)

ROWS = (
    *under(lambda c: c.model.architecture == "DeepseekV4ForCausalLM", _ROWS),
    Refusal(
        lambda c: c.enable_deepseek_v4_fp4_indexer and c.gpu.major not in (10, 12),
        "[enable_deepseek_v4_fp4_indexer] needs a Blackwell GPU",
        since=(0, 5, 17),
    ),
    Refusal(
        lambda c: c.enable_deepseek_v4_fp4_indexer and c.gpu.major != 10,
        "[enable_deepseek_v4_fp4_indexer] needs sm100",
        until=(0, 5, 17),
    ),
)
