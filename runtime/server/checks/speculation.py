"""Drafts and what they do not go with. srt/arg_groups/speculative_hook.py (before, srt/server_args.py)."""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.checks.row import Refusal, above, apart, at_least, needs, under
from runtime.server.choices import Choices
from runtime.server.speculation import adapts
from runtime.server.traits import has_adapters, has_dp_attention

_EAGLES = ("EAGLE", "EAGLE3")
_MIXED = (*_EAGLES, "DFLASH", "DSPARK")
_CAPTURED = ("EAGLE3", "DFLASH", "DSPARK")


def _thresholds(c: Choices) -> bool:
    return bool(c.speculative_accept_threshold_single != 1 or c.speculative_accept_threshold_acc != 1)


def _rejects(c: Choices) -> bool:
    """Only EAGLE's own worker looks at the flag."""
    return bool(c.speculative_use_rejection_sampling and c.speculative_algorithm in (*_EAGLES, "STANDALONE"))


def _layer_ids(c: Choices) -> list[int]:
    return list(c.return_aux_hidden_state_layer_ids or ())


_REJECTION = (
    Refusal(
        lambda c: c.speculative_algorithm not in _EAGLES,
        "[speculative_use_rejection_sampling] does not go with [speculative_algorithm]",
    ),
    Refusal(
        lambda c: c.speculative_eagle_topk != 1,
        "[speculative_use_rejection_sampling] does not go with [speculative_eagle_topk]",
        "--speculative-eagle-topk 1",
    ),
    Refusal(
        lambda c: c.enable_deterministic_inference,
        "[speculative_use_rejection_sampling] does not go with [enable_deterministic_inference]",
        until=(0, 5, 23),
    ),
    Refusal(_thresholds, "[speculative_use_rejection_sampling] does not go with thresholds of acceptance"),
    Refusal(
        lambda c: c.enable_multi_layer_eagle,
        "[speculative_use_rejection_sampling] does not go with [enable_multi_layer_eagle]",
        until=(0, 5, 16),
    ),
)
_NGRAM_CORPUS = (
    above(0, "speculative_ngram_external_sam_budget"),
    above(0, "speculative_ngram_external_corpus_max_tokens"),
    Refusal(
        lambda c: c.speculative_ngram_external_sam_budget > c.speculative_num_draft_tokens - 1,
        "[speculative_ngram_external_sam_budget]: below [speculative_num_draft_tokens] is possible",
    ),
)
_DFLASH = (
    above(0, "speculative_draft_window_size"),
    above(0, "speculative_dflash_block_size"),
    Refusal(
        lambda c: (
            None not in (c.speculative_dflash_block_size, c.asked.speculative_num_draft_tokens)
            and c.asked.speculative_num_draft_tokens != c.speculative_dflash_block_size
        ),
        "[speculative_dflash_block_size] is not [speculative_num_draft_tokens]",
        "give one of the two",
    ),
    Refusal(
        lambda c: (
            c.speculative_draft_window_size is not None
            and c.speculative_draft_window_size < c.speculative_num_draft_tokens
        ),
        "[speculative_draft_window_size] is less than [speculative_num_draft_tokens]",
    ),
    Refusal(
        lambda c: has_dp_attention(c) and c.attn_cp_size != 1,
        "DFLASH with DP attention does not go with [attn_cp_size]",
    ),
)
_DSPARK = (
    above(0, "speculative_dspark_block_size"),
    Refusal(
        lambda c: c.speculative_num_draft_tokens < 2,
        "[speculative_num_draft_tokens]: DSPARK drafts at least 2",
    ),
    Refusal(
        lambda c: has_dp_attention(c) and not c.enable_dp_lm_head,
        "DSPARK with DP attention needs --enable-dp-lm-head",
    ),
    Refusal(
        lambda c: has_dp_attention(c) and c.attn_cp_size > 1,
        "DSPARK with DP attention does not go with [attn_cp_size]",
    ),
    Refusal(
        lambda c: has_dp_attention(c) and c.moe_a2a_backend != "none",
        "DSPARK with DP attention does not go with [moe_a2a_backend]",
        until=(0, 5, 18),
    ),
    Refusal(
        lambda c: has_dp_attention(c) and c.moe_a2a_backend not in ("none", "megamoe", "mori"),
        "DSPARK with DP attention does not go with [moe_a2a_backend]",
    ),
    Refusal(
        lambda c: (
            has_dp_attention(c) and c.asked.speculative_moe_a2a_backend not in (None, c.moe_a2a_backend)
        ),
        "DSPARK with DP attention: [speculative_moe_a2a_backend] is not [moe_a2a_backend]",
    ),
)
_UNO = (
    needs("speculative_algorithm", "uno_lora_path"),
    apart("speculative_algorithm", "enable_deterministic_inference"),
    apart("speculative_algorithm", "enable_strict_thinking"),
    apart("speculative_algorithm", "speculative_use_rejection_sampling"),
    Refusal(has_adapters, "UNO does not go with LoRA adapters"),
    Refusal(lambda c: set(used_backends(c)) != {"fa3"}, "UNO needs attention backend fa3"),
)
_AUXILIARY = (
    Refusal(
        lambda c: str(c.asked.speculative_algorithm).upper() not in _CAPTURED,
        "[enable_return_aux_hidden_states] needs --speculative-algorithm EAGLE3, DFLASH or DSPARK",
    ),
    apart("enable_return_aux_hidden_states", "speculative_draft_model_path"),
    Refusal(lambda c: c.pp_size != 1, "[enable_return_aux_hidden_states] does not go with [pp_size]"),
    Refusal(
        lambda c: str(c.asked.speculative_algorithm).upper() != "EAGLE3" and not _layer_ids(c),
        "[enable_return_aux_hidden_states] needs --return-aux-hidden-state-layer-ids",
    ),
    Refusal(
        lambda c: any(one < 0 for one in _layer_ids(c)) or len(set(_layer_ids(c))) < len(_layer_ids(c)),
        "[return_aux_hidden_state_layer_ids]: a layer's number is at least 0, and named once",
    ),
)

ROWS = (
    Refusal(
        lambda c: c.disaggregation_mode == "decode"
        and c.disaggregation_decode_enable_radix_cache
        and c.speculative_algorithm is not None,
        "[disaggregation_decode_enable_radix_cache] does not go with [speculative_algorithm]",
        until=(0, 5, 21),
    ),
    Refusal(
        lambda c: c.disaggregation_mode == "decode"
        and c.disaggregation_decode_enable_radix_cache
        and c.speculative_algorithm not in (None, "DSPARK"),
        "[disaggregation_decode_enable_radix_cache] does not go with [speculative_algorithm]",
        until=(0, 5, 23),
    ),
    Refusal(
        lambda c: c.disaggregation_mode == "decode"
        and c.disaggregation_decode_enable_radix_cache
        and c.speculative_algorithm not in (None, "DSPARK", *_EAGLES),
        "[disaggregation_decode_enable_radix_cache] does not go with [speculative_algorithm]",
    ),
    Refusal(
        lambda c: c.speculative_use_block_verification and c.speculative_algorithm not in _MIXED,
        "[speculative_use_block_verification] does not go with [speculative_algorithm]",
        "EAGLE, EAGLE3, NEXTN, DFLASH or DSPARK",

    ),
    Refusal(
        lambda c: (
            adapts(c)
            and c.speculative_adaptive_config is None
            and c.speculative_num_steps not in c.release.adaptive_steps
        ),
        "[speculative_num_steps]: it is none of the steps that [speculative_adaptive] goes to",
        "1, 3 or 7",
        since=(0, 5, 13),
    ),
    above(0, "speculative_draft_window_size", since=(0, 5, 13)),
    at_least(0, "speculative_draft_sink_size", ),
    Refusal(
        lambda c: c.speculative_draft_sink_size is not None and c.speculative_draft_window_size is None,
        "[speculative_draft_sink_size] needs --speculative-draft-window-size",

    ),
    Refusal(
        lambda c: c.speculative_skip_dp_mlp_sync and c.speculative_algorithm != "EAGLE",
        "[speculative_skip_dp_mlp_sync] needs --speculative-algorithm EAGLE",

    ),
    *under(_rejects, _REJECTION, ),
    *under(
        lambda c: c.speculative_algorithm == "NGRAM"
        and c.speculative_ngram_external_corpus_path is not None,
        _NGRAM_CORPUS,
    ),
    *under(lambda c: c.speculative_algorithm == "DFLASH", _DFLASH),
    *under(lambda c: c.speculative_algorithm == "DSPARK", _DSPARK),
    *under(lambda c: c.speculative_algorithm == "UNO", _UNO),
    needs("return_aux_hidden_state_layer_ids", "enable_return_aux_hidden_states", ),
    *under(lambda c: c.enable_return_aux_hidden_states, _AUXILIARY, ),
    Refusal(
        lambda c: c.decoupled_spec_role not in (None, "null")
        and None in (
            c.decoupled_spec_bind_endpoint, c.decoupled_spec_connect_endpoints, c.decoupled_spec_rank
        ),
        "[decoupled_spec_role] needs --decoupled-spec-bind-endpoint, --decoupled-spec-connect-endpoints "
        "and --decoupled-spec-rank",

    ),
)  # fmt: skip
