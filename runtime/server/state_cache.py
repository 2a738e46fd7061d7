"""How layers with a recurrent state share prefixes: `extra_buffer` keeps states while batches overlap,
`no_buffer` does without, at the price of pages and overlap."""

from __future__ import annotations

from runtime.server.architectures import INKLING
from runtime.server.choices import Choices, is_on
from runtime.server.errors import ConfigError
from runtime.server.recurrent import StateRules
from runtime.server.traits import is_hybrid

EXTRA = ("extra_buffer", "extra_buffer_lazy")
STATE_SHARE = 0.9
_OVERLAP = "states without an extra buffer"


def keeps_states_now(c: Choices) -> bool:
    """As far as it is settled: `auto` is not."""
    return not c.disable_radix_cache and _strategy(c) in EXTRA


_DTYPES = ("float32", "float16", "bfloat16")
_OWN, _SECOND = 3, 2  # states of a request, and of one that is tracked while batches overlap
_UNLOCKS, _CONV_DTYPE, _DTYPE = (
    *("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "SGLANG_MAMBA_CONV_DTYPE", "SGLANG_MAMBA_SSM_DTYPE"),
)
ENVIRONMENT = (_UNLOCKS, _CONV_DTYPE, _DTYPE)


def state_rules(c: Choices) -> StateRules:
    share = c.mamba_full_memory_ratio
    return StateRules(
        slots=c.max_mamba_cache_size,
        share=STATE_SHARE if share is None else share,
        slots_each=_slots_each(c),
        tracked=_tracked(c),
        keeps_prefixes=not c.disable_radix_cache,
        extra_buffer=keeps_states_now(c),
        drafts=c.release.prefill_states != "none" or c.disaggregation_mode != "prefill",
        verifies=c.release.prefill_states == "kept" or c.disaggregation_mode != "prefill",
        conv_dtype=_known(c.environ.get(_CONV_DTYPE)) or "bfloat16",
        recurrent_dtype=_known(c.mamba_ssm_dtype or c.environ.get(_DTYPE))
        or _known(c.model.get("mamba_ssm_dtype"))
        or "float32",
    )


def _slots_each(c: Choices) -> int:
    if c.disable_radix_cache:
        return 1
    unlocks = c.release.may_unlock_states and is_on(c.environ.get(_UNLOCKS))
    if not keeps_states_now(c):
        return _OWN
    return _OWN - unlocks + (1 if _strategy(c) == EXTRA[1] else _tracked(c))


def _tracked(c: Choices) -> int:
    if not keeps_states_now(c):
        return 0
    overlaps = not c.disable_overlap_schedule and c.pp_size == 1  # stages never do, in any release
    return _SECOND if overlaps else 1


def _known(dtype: object) -> str | None:
    return dtype if isinstance(dtype, str) and dtype in _DTYPES else None


def settle_state_cache(c: Choices) -> None:
    decode = c.linear_attn_decode_backend or c.linear_attn_backend
    if decode == "flashinfer" and c.gpu.major >= 10 and c.mamba_ssm_dtype != "bfloat16":
        raise ConfigError(
            "linear attention decodes on flashinfer with bfloat16 states only",
            tries=({"mamba_ssm_dtype": "bfloat16"}, "linear_attn_decode_backend", "linear_attn_backend"),
        )
    if not is_hybrid(c):
        if c.release.wants_states_to_keep and keeps_states_now(c):
            raise ConfigError(f"--mamba-radix-cache-strategy {_strategy(c)}: this model has no states")
    elif not c.release.settles_state_cache:
        _old(c)
    elif not c.disable_radix_cache and not _is_unchecked(c):
        _settle(c)


def _is_unchecked(c: Choices) -> bool:
    """Inkling's strategy is its family's, and looked at by nobody before it is asked for at all."""
    return c.model.architecture in INKLING and not c.release.wants_states_to_keep


def _strategy(c: Choices) -> str:
    if c.release.settles_state_cache:
        return str(c.mamba_radix_cache_strategy)
    asked = c.mamba_scheduler_strategy
    return "no_buffer" if asked == "auto" or c.disaggregation_mode == "decode" else str(asked)


def _settle(c: Choices) -> None:
    possible = c.model.architecture in c.release.state_keepers and c.linear_attn_backend == "triton"
    if c.mamba_radix_cache_strategy == "auto":
        wanted = not c.disable_overlap_schedule or (c.page_size or 0) > 1
        c.settle(
            "the state cache", mamba_radix_cache_strategy=EXTRA[0] if wanted and possible else "no_buffer"
        )
        if not (wanted and possible):
            c.settle(_OVERLAP, disable_overlap_schedule=True)
    if c.mamba_radix_cache_strategy in EXTRA:
        _check_extra(c, possible)
    elif (
        c.page_size not in (1, None) or not c.disable_overlap_schedule or c.attention_backend == "trtllm_mha"
    ):
        raise ConfigError(
            "--mamba-radix-cache-strategy no_buffer: needs --page-size 1, --disable-overlap-schedule and "
            "another --attention-backend than trtllm_mha",
            tries=({"disable_radix_cache": True}, "mamba_radix_cache_strategy", "attention_backend"),
        )


def _check_extra(c: Choices, possible: bool) -> None:
    if not possible:
        raise ConfigError(
            f"{c.model.architecture} cannot keep states in an extra buffer",
            tries=("mamba_scheduler_strategy", "mamba_radix_cache_strategy"),
        )
    every = c.mamba_track_interval
    if (c.speculative_num_draft_tokens or 0) > every:
        raise ConfigError(f"{c.speculative_num_draft_tokens} draft tokens: states are kept every {every}")
    if c.page_size is not None and every % c.page_size:
        raise ConfigError(f"--page-size {c.page_size} does not divide the {every} tokens between kept states")


def _old(c: Choices) -> None:
    """Before the strategy was settled by itself: `auto` is no_buffer."""
    if c.model.architecture in c.release.stateless_prefixes:
        c.settle("this model's prefixes are not kept", disable_radix_cache=True)
    elif _strategy(c) in EXTRA:
        if c.disable_radix_cache:
            raise ConfigError(
                "extra_buffer does not go with --disable-radix-cache",
                tries=("mamba_scheduler_strategy", "disable_radix_cache"),
            )
        _check_extra(c, c.model.architecture in c.release.state_keepers)
    elif not c.disable_radix_cache:
        if c.speculative_algorithm is not None:
            raise ConfigError(
                "speculation with states and no extra buffer does not go with a radix cache",
                tries=({"disable_radix_cache": True}, "speculative_algorithm"),
            )
        if c.page_size is not None:
            c.settle(_OVERLAP, page_size=1)
        if c.attention_backend == "trtllm_mha":
            c.settle(_OVERLAP, disable_radix_cache=True)
        else:
            c.settle(_OVERLAP, disable_overlap_schedule=True)
