"""Whether the workspace of an all-to-all holds what a rank may send. srt/arg_groups/moe_hook.py,
mega_moe_hook.py (before, server_args.py)."""

from __future__ import annotations

from runtime.server.bounds import is_number, is_set
from runtime.server.checks.row import Refusal, under
from runtime.server.choices import Choices
from runtime.server.deepep import UNSET_TOKENS, DeepEP, configs_of

FLASHINFER = "SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
MORI = "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
PPLX = "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DEEPEP = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DEEPEP_2 = "SGLANG_DEEPEP_V2_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
MEGAMOE = "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK"
DEEPEP_IN_BF16 = "SGLANG_DEEPEP_BF16_DISPATCH"
ENVIRONMENT = (FLASHINFER, MORI, PPLX, DEEPEP, DEEPEP_IN_BF16, DEEPEP_2, MEGAMOE)
_UNSET = {
    FLASHINFER: 1024, MORI: 4096, PPLX: 128, DEEPEP: UNSET_TOKENS, DEEPEP_2: 128, MEGAMOE: 8192,
}  # fmt: skip
_FLASHINFER_LEAST = 4096
# Whose experts no other kernel can run once they are laid out for the mega kernel.
_BOUND_TO_MEGAMOE = frozenset({
    "DeepseekV4ForCausalLM", "InternS2PreviewForConditionalGeneration", "MellumForCausalLM",
    "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Qwen3NextForCausalLM",
    "Qwen3VLMoeForConditionalGeneration", "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration",
})  # fmt: skip


def capacity(c: Choices, variable: str) -> int:
    told = c.environ.get(variable, "").strip()
    return int(told) if is_number(told) else _UNSET[variable]


def told_dispatch_tokens(c: Choices) -> int | None:
    """A rank's room in FlashInfer's workspace, where it does not follow from the chunk."""
    if c.moe_a2a_backend != "flashinfer":
        return None
    if c.release.dispatch_tokens_by_ranks:
        return capacity(c, FLASHINFER) * c.ep_size
    return int(told) if is_number(told := c.environ.get(FLASHINFER, "").strip()) else None


def told_deepep(c: Choices) -> DeepEP | None:
    if c.moe_a2a_backend != "deepep":
        return None
    told = c.deepep_config or ""
    configs = configs_of(told) if told else None
    return DeepEP(
        mode=c.deepep_mode,
        tokens=capacity(c, DEEPEP),
        in_bf16=is_set(c.environ.get(DEEPEP_IN_BF16)) or c.deepep_dispatcher_output_dtype == "bf16",
        configs=configs,
        unread=told if told and configs is None else None,
    )


def _width(c: Choices) -> int:
    return (c.speculative_num_draft_tokens or 1) if c.speculative_algorithm else 1


def prefill_buffer(c: Choices) -> int:
    """Tokens of it, none without chunks; dynamic ones grow: max_prefill_buffer_tokens of srt."""
    chunk = max(0, c.chunked_prefill_size)
    if c.enable_dynamic_chunking and c.pp_size > 1 and chunk:
        return max(chunk, c.max_prefill_tokens, -(-chunk * 5 // 4))
    return chunk


def _decode_graph(c: Choices) -> int:
    """Tokens of the largest one, of a rank."""
    if c.disaggregation_mode == "prefill" or not c.decode.is_on:
        return 0
    requests: int = c.decode.max_bs or 0
    if c.max_running_requests is not None:
        requests = min(requests, max(1, c.max_running_requests // c.attn_dp_size))
    return requests * _width(c)


def _flashinfer_sends(c: Choices) -> int:
    prefill = 0
    if c.disaggregation_mode != "decode":
        prefill = max(prefill_buffer(c), (c.prefill.max_bs or 0) if c.prefill.is_on else 0)
    return max(prefill, _decode_graph(c))


def _flashinfer_holds(c: Choices) -> int:
    told = FLASHINFER in c.environ
    return capacity(c, FLASHINFER) if told else max(prefill_buffer(c), _FLASHINFER_LEAST)


def _cutedsl_sends(c: Choices) -> int:
    compiled = c.prefill.backend == "tc_piecewise"
    prefill = max(c.max_prefill_tokens, (c.prefill.max_bs or 0) if compiled else 0)
    return max(prefill, (c.decode.max_bs or 0) * _width(c))


def _deepep_prefill(c: Choices) -> int:
    return prefill_buffer(c) or int(c.max_prefill_tokens)


def _scattered(c: Choices, tokens: int) -> int:
    return -(-tokens // max(1, c.tp_size // c.attn_dp_size))


def _megamoe_prefill(c: Choices) -> int:
    """The chunk was shared among attention-DP groups already, and is shared again."""
    if c.enable_prefill_cp:
        return int(-(-c.chunked_prefill_size // c.attn_cp_size))
    ranks = max(1, c.tp_size // c.attn_dp_size // c.attn_cp_size)
    return int(-(-(c.chunked_prefill_size // c.attn_dp_size) // ranks) * ranks)


def _megamoe_decode(c: Choices) -> int:
    requests: int = c.decode.max_bs or 0
    if c.max_running_requests is not None:
        ranks = max(1, c.tp_size // c.attn_dp_size)
        requests = min(requests, -(-(c.max_running_requests // c.attn_dp_size) // ranks) * ranks)
    return requests * _width(c)


def _is_bound_to_megamoe(c: Choices) -> bool:
    nvfp4 = c.quantization in ("modelopt_fp4", "minimax_m3_nvfp4") or c.model_quantization == "modelopt_fp4"
    return c.model.architecture in _BOUND_TO_MEGAMOE or nvfp4


_MEGAMOE = (
    Refusal(
        lambda c: c.disaggregation_mode != "prefill" and _megamoe_decode(c) > capacity(c, MEGAMOE),
        f"[moe_a2a_backend]: a decode step is more than {MEGAMOE} holds",
        f"raise {MEGAMOE}",
    ),
    Refusal(
        lambda c: (
            c.disaggregation_mode != "decode"
            and not (c.pp_size > 1 and c.enable_dynamic_chunking)
            and (c.chunked_prefill_size <= 0 or _megamoe_prefill(c) > capacity(c, MEGAMOE))
        ),
        f"[chunked_prefill_size]: a chunk is more than {MEGAMOE} holds",
        f"raise {MEGAMOE}, or lower --chunked-prefill-size",
    ),
)

ROWS = (
    Refusal(
        lambda c: c.moe_a2a_backend == "flashinfer" and _flashinfer_sends(c) > _flashinfer_holds(c),
        f"[moe_a2a_backend]: a rank's tokens are more than {FLASHINFER} holds",
        f"raise {FLASHINFER}, or lower --chunked-prefill-size or the largest CUDA graphs",
        since=(0, 5, 22),
    ),
    Refusal(
        lambda c: (
            c.moe_a2a_backend == "flashinfer"
            and c.moe_runner_backend == "flashinfer_cutedsl"
            and c.max_prefill_tokens > 0
            and c.disaggregation_mode != "decode"
            and _cutedsl_sends(c) > capacity(c, FLASHINFER) * c.ep_size
        ),
        f"[max_prefill_tokens]: more than {FLASHINFER} holds on all ranks",
        f"raise {FLASHINFER}, or lower --max-prefill-tokens",
        until=(0, 5, 22),
    ),
    Refusal(
        lambda c: (
            c.moe_a2a_backend == "mori"
            and c.disaggregation_mode != "decode"
            and c.chunked_prefill_size > capacity(c, MORI)
        ),
        f"[chunked_prefill_size]: more than {MORI} holds",
        f"raise {MORI}, or lower --chunked-prefill-size",
    ),
    Refusal(
        lambda c: (
            c.moe_a2a_backend == "pplx"
            and c.disaggregation_mode != "decode"
            and c.chunked_prefill_size > 0
            and max(c.chunked_prefill_size, c.cuda_graph_max_bs or 0) > capacity(c, PPLX)
        ),
        f"[chunked_prefill_size]: more than {PPLX} holds",
        f"raise {PPLX}, or lower --chunked-prefill-size",
    ),
    *under(
        lambda c: c.moe_a2a_backend == "deepep_v2",
        (
            Refusal(
                lambda c: c.disaggregation_mode != "decode" and _deepep_prefill(c) > capacity(c, DEEPEP_2),
                f"[chunked_prefill_size]: more than {DEEPEP_2} holds",
                f"raise {DEEPEP_2}",
                until=(0, 5, 21),
            ),
            Refusal(
                lambda c: (
                    c.disaggregation_mode != "decode"
                    and _scattered(c, _deepep_prefill(c)) > capacity(c, DEEPEP_2)
                ),
                f"[chunked_prefill_size]: more than {DEEPEP_2} holds",
                f"raise {DEEPEP_2}",
            ),
            Refusal(
                lambda c: _decode_graph(c) > capacity(c, DEEPEP_2),
                f"[moe_a2a_backend]: a decode graph is more than {DEEPEP_2} holds",
                f"raise {DEEPEP_2}",
            ),
        ),
    ),
    *under(
        lambda c: c.moe_a2a_backend == "megamoe" and c.model.architecture == "DeepseekV4ForCausalLM",
        tuple(_MEGAMOE[1:]),
        since=(0, 5, 17),
    ),
    *under(
        lambda c: c.moe_a2a_backend == "megamoe" and not c.encoder_only and _is_bound_to_megamoe(c),
        _MEGAMOE,
        since=(0, 5, 21),
    ),
)
