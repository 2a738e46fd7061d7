"""Experts and their all-to-alls. srt/arg_groups/moe_hook.py, parallel_hook.py (before, server_args.py)."""

from __future__ import annotations

from runtime.server.architectures import GLM_5_NEXT, MIMO_V2
from runtime.server.checks.row import Refusal, above, under
from runtime.server.choices import Choices
from runtime.server.expert_weights import has_nvfp4_experts
from runtime.server.traits import has_dp_attention

_MEGAMOE_FIRST = frozenset({
    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM",
    "Glm4MoeForCausalLM", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM", "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
})  # fmt: skip
_MEGAMOE_NEXT = _MEGAMOE_FIRST | {"GlmMoeDsaForCausalLM"}
_MEGAMOE_NOW = _MEGAMOE_NEXT | {
    "BeamForCausalLM", "KimiK3ForConditionalGeneration", "KimiK3LinearForCausalLM",
}  # fmt: skip
_ELASTIC = ("elasticity_aware", "elasticity_aware_hierarchical", "auto")
_DEEPEP_2_FIRST = frozenset({"DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM", "Qwen3MoeForCausalLM"})
_DEEPEP_2_NEXT = _DEEPEP_2_FIRST | GLM_5_NEXT
_DEEPEP_2_NOW = _DEEPEP_2_NEXT | MIMO_V2 | {"GlmMoeDsaForCausalLM"}


def _is_scaled(c: Choices) -> bool:
    return None not in (c.elastic_ep_backend, c.max_ep_size) and c.max_ep_size > c.tp_size


def _overlaps(c: Choices) -> bool:
    return bool(c.enable_two_batch_overlap or c.enable_single_batch_overlap)


_MEGAMOE_A2A = (
    Refusal(
        lambda c: c.model.architecture not in _MEGAMOE_FIRST,
        "[moe_a2a_backend] does not run this model",
        until=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.model.architecture not in _MEGAMOE_NEXT,
        "[moe_a2a_backend] does not run this model",
        until=(0, 5, 23),
    ),
    Refusal(
        lambda c: c.model.architecture not in _MEGAMOE_NOW,
        "[moe_a2a_backend] does not run this model",
    ),
    Refusal(
        lambda c: c.quantization not in ("mxfp8", "modelopt_fp4") and not has_nvfp4_experts(c.model),
        "[moe_a2a_backend] does not take [quantization]",
        "mxfp8 or modelopt_fp4",
    ),
)
_DEEPEP_2 = (
    Refusal(
        lambda c: c.model.architecture not in _DEEPEP_2_FIRST,
        "[moe_a2a_backend] does not run this model",
        until=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.model.architecture not in _DEEPEP_2_NEXT,
        "[moe_a2a_backend] does not run this model",
        until=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.model.architecture not in _DEEPEP_2_NOW,
        "[moe_a2a_backend] does not run this model",
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in (None, "NGRAM") and c.speculative_moe_a2a_backend is None,
        "[moe_a2a_backend] does not draft",
        "another --speculative-moe-a2a-backend",
    ),
    Refusal(_overlaps, "[moe_a2a_backend] does not overlap batches"),
    Refusal(lambda c: c.enforce_shared_experts_fusion, "[moe_a2a_backend] fuses no shared experts"),
    Refusal(
        lambda c: c.deepep_v2_mode == "direct" and c.nnodes > 1,
        "[deepep_v2_mode] does not go with [nnodes]",
        "--deepep-v2-mode hybrid",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: c.enable_deterministic_inference,
        "[moe_a2a_backend] does not go with [enable_deterministic_inference]",
        until=(0, 5, 21),
    ),
)
_PPLX = (
    Refusal(lambda c: c.deepep_mode == "normal", "[moe_a2a_backend] does not go with [deepep_mode]"),
    Refusal(
        lambda c: not has_dp_attention(c) or c.attn_dp_size < 2,
        "[moe_a2a_backend] needs DP attention in at least 2 groups",
    ),
)
_ELASTIC_EP = (
    Refusal(
        lambda c: c.enable_eplb and c.eplb_algorithm not in _ELASTIC,
        "[elastic_ep_backend] does not go with [eplb_algorithm]",
    ),
    Refusal(lambda c: c.pp_size != 1, "[elastic_ep_backend] does not go with [pp_size]"),
)


def _attention_ranks(c: Choices) -> int:
    return int(c.tp_size // max(1, c.attn_dp_size))


_SCALED_REPLICAS = (
    Refusal(
        lambda c: c.max_ep_size % _attention_ranks(c),
        "[max_ep_size] is no multiple of the ranks that share attention",
    ),
    Refusal(
        lambda c: c.moe_dense_tp_size != 1,
        "[max_ep_size] with attention over several ranks needs --moe-dense-tp-size 1",
        "--moe-dense-tp-size 1",
    ),
)
_SCALED = (
    above(0, "elastic_ep_scale_timeout"),
    Refusal(lambda c: c.tokenizer_worker_num != 1, "[max_ep_size] with [tokenizer_worker_num]"),
    Refusal(lambda c: c.use_ray, "[max_ep_size] does not go with [use_ray]"),
    Refusal(lambda c: c.enable_elastic_expert_backup, "[max_ep_size] with [enable_elastic_expert_backup]"),
    Refusal(
        lambda c: c.ep_join_mode != "scale" and c.elastic_ep_initial_size not in (None, c.tp_size),
        "[elastic_ep_initial_size] is not [tp_size]",
    ),
    Refusal(
        lambda c: c.ep_join_mode == "scale"
        and (c.elastic_ep_initial_size is None or c.elastic_ep_initial_size > c.ep_join_rank_offset),
        "[ep_join_mode] needs --elastic-ep-initial-size, at most that of [ep_join_rank_offset]",
    ),
    Refusal(
        lambda c: c.ep_join_mode == "scale" and c.ep_join_rank_offset + c.tp_size > c.max_ep_size,
        "[ep_join_rank_offset] and [tp_size] are more than [max_ep_size]",
    ),
    Refusal(
        lambda c: c.load_balance_method not in ("round_robin", "auto")
        or (c.load_balance_method == "auto" and c.disaggregation_mode == "prefill"),
        "[max_ep_size] needs --load-balance-method round_robin",
    ),
    Refusal(lambda c: c.elastic_ep_backend != "mooncake", "[max_ep_size] with [elastic_ep_backend]"),
    Refusal(lambda c: c.decode.is_on or c.prefill.is_on, "[max_ep_size] goes without CUDA graphs",
            until=(0, 5, 21)),
    Refusal(lambda c: c.prefill.is_on, "[max_ep_size] goes without CUDA graphs of prefills",),
    Refusal(
        lambda c: c.decode.is_on and c.speculative_algorithm is not None,
        "[max_ep_size] with CUDA graphs does not go with [speculative_algorithm]",
    ),
    Refusal(lambda c: not has_dp_attention(c), "[max_ep_size] needs DP attention"),
    Refusal(lambda c: not c.enable_dp_lm_head, "[max_ep_size] needs --enable-dp-lm-head"),
    Refusal(lambda c: c.attn_cp_size != 1, "[max_ep_size] does not go with [attn_cp_size]"),
    Refusal(lambda c: c.ep_size != c.tp_size, "[max_ep_size]: [ep_size] is not [tp_size]"),
    Refusal(lambda c: c.attn_dp_size != c.tp_size, "[max_ep_size] needs as many attention-DP groups as"
            " [tp_size]", until=(0, 5, 23)),
    *under(lambda c: _attention_ranks(c) > 1, _SCALED_REPLICAS),
    Refusal(lambda c: c.moe_a2a_backend != "nixl", "[max_ep_size] needs --moe-a2a-backend nixl"),
)  # fmt: skip
_ELASTIC_ROWS = (
    *under(lambda c: c.elastic_ep_backend is not None, _ELASTIC_EP),
    Refusal(
        lambda c: c.elastic_ep_rejoin and c.elastic_ep_backend is None,
        "[elastic_ep_rejoin] needs --elastic-ep-backend",
    ),
    Refusal(
        lambda c: c.elastic_ep_rejoin and c.ep_join_mode not in (None, "recover"),
        "[elastic_ep_rejoin] does not go with [ep_join_mode]",
    ),
    Refusal(
        lambda c: c.ep_join_mode is not None and c.elastic_ep_backend is None,
        "[ep_join_mode] needs --elastic-ep-backend",
    ),
    Refusal(
        lambda c: c.ep_join_mode == "scale" and (c.node_rank != 1 or c.ep_join_rank_offset <= 0),
        "[ep_join_mode] needs --node-rank 1 and --elastic-ep-join-rank-offset above 0",
    ),
    Refusal(
        lambda c: c.ep_join_rank_offset and c.ep_join_mode != "scale",
        "[ep_join_rank_offset] needs --elastic-ep-join-mode scale",
    ),
    Refusal(
        lambda c: c.max_ep_size is not None and c.elastic_ep_backend is None,
        "[max_ep_size] needs --elastic-ep-backend",
    ),
    above(0, "max_ep_size"),
    Refusal(
        lambda c: c.elastic_ep_initial_size is not None and not _is_scaled(c),
        "[elastic_ep_initial_size] needs --elastic-ep-backend and --max-ep-size above [tp_size]",
    ),
    *under(_is_scaled, _SCALED),
)

ROWS = (
    *under(lambda c: c.moe_a2a_backend == "flashinfer_megamoe", _MEGAMOE_A2A),
    *under(lambda c: c.moe_a2a_backend == "deepep_v2", _DEEPEP_2),
    Refusal(
        lambda c: c.speculative_moe_a2a_backend == "deepep_v2",
        "[speculative_moe_a2a_backend] does not draft",
    ),
    *under(lambda c: c.moe_a2a_backend == "pplx", _PPLX),
    Refusal(
        lambda c: c.moe_a2a_backend == "megamoe" and _overlaps(c),
        "[moe_a2a_backend] does not overlap batches",
        since=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.moe_a2a_backend == "megamoe" and c.gpu.major not in (9, 10),
        "[moe_a2a_backend] needs sm90 or sm100",
        since=(0, 5, 21),
    ),
    Refusal(
        lambda c: (
            c.moe_runner_backend == "flashinfer_cutedsl"
            and c.moe_a2a_backend == "deepep"
            and c.quantization == "nvfp4_online"
        ),
        "[moe_a2a_backend] does not go with [quantization] on [moe_runner_backend]",
    ),
    Refusal(
        lambda c: c.enable_eplb and c.ep_size <= 1 and c.ep_join_mode != "scale",
        "[enable_eplb] needs expert parallelism",
        "--ep-size",
    ),
    Refusal(
        lambda c: c.moe_a2a_backend == "none" and c.ep_dispatch_algorithm in ("static", "lp"),
        "[ep_dispatch_algorithm] needs an all-to-all",
        "--ep-dispatch-algorithm dynamic",
        since=(0, 5, 17),
    ),
    Refusal(
        lambda c: c.enable_two_batch_overlap and c.moe_a2a_backend == "none",
        "[enable_two_batch_overlap] needs --moe-a2a-backend",
        until=(0, 5, 15),
    ),
    Refusal(
        lambda c: c.enable_two_batch_overlap and c.moe_a2a_backend == "none" and not has_dp_attention(c),
        "[enable_two_batch_overlap] needs --moe-a2a-backend, or DP attention",
    ),
    Refusal(
        lambda c: c.enable_two_batch_overlap and c.enforce_shared_experts_fusion,
        "[enable_two_batch_overlap] does not go with [enforce_shared_experts_fusion]",
        until=(0, 5, 14),
    ),
    *_ELASTIC_ROWS,
)
