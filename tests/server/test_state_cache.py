"""Layers with a recurrent state: strategies, pages and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.recurrent import StateRules
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from tests.server.servers import B200, H200, LLAMA, NEXT, VERSIONS, changed_in, checkpoint, server

LFM2 = checkpoint("Lfm2ForCausalLM", "lfm2")
KIMI = checkpoint("KimiLinearForCausalLM", "kimi_linear", kv_lora_rank=512)
BAILING = checkpoint("BailingMoeV2_5ForCausalLM", "llama", kv_lora_rank=512)
GRANITE = checkpoint("GraniteMoeHybridForCausalLM", "granitemoehybrid", layer_types=["mamba", "attention"])
EXTRA = {"mamba_scheduler_strategy": "extra_buffer", "mamba_radix_cache_strategy": "extra_buffer"}
NONE = {"mamba_scheduler_strategy": "no_buffer", "mamba_radix_cache_strategy": "no_buffer"}
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_ngram_max_bfs_breadth": 1}


def _pages(model: dict[str, Any], gpu: str = H200, **flags: Any) -> dict[str, Any]:
    def page(version: str) -> int | str:
        try:
            return server(model, gpu, version, moe_runner_backend="triton", **flags).page_size
        except ConfigError:
            return "refused"

    return changed_in([page(version) for version in VERSIONS])


@pytest.mark.parametrize(
    ("model", "flags", "found"),
    [
        (NEXT, {}, {"12": 1}),
        (NEXT, {"page_size": 64}, {"12": 1, "14": 64}),
        (NEXT, {"page_size": 64, "disable_radix_cache": True}, {"12": 64}),
        (NEXT, {"page_size": 64, "disaggregation_mode": "decode"}, {"12": 64}),
        (NEXT, {"page_size": 64, "disable_overlap_schedule": True}, {"12": 1, "14": 64}),
        (NEXT, {"page_size": 64, "linear_attn_backend": "flashinfer"}, {"12": 1, "14": "refused"}),
        (NEXT, {**EXTRA, "page_size": 64}, {"12": 64}),
        (NEXT, {**EXTRA, "page_size": 96}, {"12": "refused"}),
        (NEXT, {**EXTRA, "page_size": 128, "mamba_track_interval": 256}, {"12": 128}),
        (NEXT, {**EXTRA, "disable_radix_cache": True}, {"12": "refused", "14": 1}),
        (NEXT, {**EXTRA, "linear_attn_backend": "flashinfer"}, {"12": 1, "14": "refused"}),
        (NEXT, {"linear_attn_decode_backend": "flashinfer"}, {"12": 1}),
        (NEXT, NONE, {"12": 1, "14": "refused"}),
        (NEXT, {**NONE, "disable_overlap_schedule": True}, {"12": 1}),
        (NEXT, {**NONE, "disable_overlap_schedule": True, "page_size": 64}, {"12": 1, "14": "refused"}),
        (NEXT, NGRAM, {"12": "refused", "14": 1}),
        (NEXT, {**NGRAM, "disable_radix_cache": True}, {"12": 1}),
        (NEXT, {**EXTRA, **NGRAM, "speculative_num_draft_tokens": 257}, {"12": "refused"}),
        (NEXT, {**EXTRA, **NGRAM, "speculative_num_draft_tokens": 256}, {"12": 1}),
        (LFM2, {"page_size": 16}, {"12": 1, "14": "refused"}),
        (LFM2, EXTRA, {"12": "refused"}),
        (KIMI, {"page_size": 16}, {"12": 16, "14": "refused", "16": 16}),
        (BAILING, {"page_size": 16}, {"12": 16, "13": 1, "14": 16}),
        (GRANITE, {"page_size": 16}, {"12": 1, "14": 16}),
        ({**GRANITE, "layer_types": ["attention"]}, {"page_size": 16}, {"12": 16}),
        (LLAMA, {**EXTRA, "page_size": 16}, {"12": 16, "21": "refused"}),
        (LLAMA, {**EXTRA, "disable_radix_cache": True}, {"12": 1}),
    ],
)
def test_pages_beside_states(model: dict[str, Any], flags: dict[str, Any], found: dict[str, Any]) -> None:
    assert _pages(model, **flags) == found


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (EXTRA, {"12": 64}),
        ({**EXTRA, "disable_radix_cache": True}, {"12": "refused", "14": 64}),
        ({"linear_attn_decode_backend": "flashinfer"}, {"12": "refused"}),
        ({"linear_attn_decode_backend": "flashinfer", "mamba_ssm_dtype": "bfloat16"}, {"12": 1}),
        ({"disaggregation_mode": "decode"}, {"12": 64}),
        ({**EXTRA, "disaggregation_mode": "decode"}, {"12": 64}),
        ({"disaggregation_mode": "decode", "disaggregation_decode_enable_radix_cache": True}, {"12": 1}),
        ({"attention_backend": "trtllm_mha"}, {"12": 64}),
        (
            {**NONE, "attention_backend": "trtllm_mha", "disable_overlap_schedule": True},
            {"12": 64, "14": "refused"},
        ),
    ],
)
def test_blackwell_pages_where_states_are_kept(flags: dict[str, Any], found: dict[str, Any]) -> None:
    assert _pages(NEXT, B200, **flags) == found


@pytest.mark.parametrize(("model", "versions"), [(KIMI, ("0.5.12", "0.5.13")), (BAILING, ("0.5.12",))])
def test_a_models_prefixes_were_not_kept_at_first(model: dict[str, Any], versions: tuple[str, ...]) -> None:
    for version in VERSIONS[:2]:
        why = server(model, H200, version, moe_runner_backend="triton").why
        kept = why.get("disable_radix_cache") != "this model's prefixes are not kept"
        assert kept == (version not in versions)


@pytest.mark.parametrize("value", ["mamba", [1], {"a": 1}])
def test_layers_that_are_no_names(value: object) -> None:
    with pytest.raises(ConfigError, match="layer_types"):
        server({**GRANITE, "layer_types": value})


def _states(version: str = "0.5.23", environ: dict[str, str] | None = None, **flags: Any) -> StateRules:
    model = {**NEXT, **flags.pop("model", {})}
    release = release_named(version).release
    rules = resolve(
        Asked(model_path="m", **flags), Checkpoint(model), None, find_gpu(H200), release, environ or {}
    ).states
    assert rules is not None
    return rules


@pytest.mark.parametrize(
    ("flags", "environ", "declared", "dtype"),
    [
        ({}, {}, {}, "float32"),
        ({}, {}, {"mamba_ssm_dtype": "bfloat16"}, "bfloat16"),
        ({}, {"SGLANG_MAMBA_SSM_DTYPE": "float16"}, {"mamba_ssm_dtype": "bfloat16"}, "float16"),
        (
            {"mamba_ssm_dtype": "bfloat16"},
            *({"SGLANG_MAMBA_SSM_DTYPE": "float16"}, {"mamba_ssm_dtype": "float32"}, "bfloat16"),
        ),
        ({}, {"SGLANG_MAMBA_SSM_DTYPE": "int8"}, {}, "float32"),
    ],
)
def test_a_states_dtype_is_asked_for_or_told_by_the_environment_or_the_model(
    flags: dict[str, Any], environ: dict[str, str], declared: dict[str, str], dtype: str
) -> None:
    rules = _states(environ=environ, model=declared, **flags)
    assert (rules.recurrent_dtype, rules.conv_dtype) == (dtype, "bfloat16")


@pytest.mark.parametrize(
    ("told", "dtype"), [("float16", "float16"), ("float32", "float32"), ("x", "bfloat16")]
)
def test_a_convolutions_dtype_is_the_environments(told: str, dtype: str) -> None:
    assert _states(environ={"SGLANG_MAMBA_CONV_DTYPE": told}).conv_dtype == dtype


def test_states_have_a_share_or_a_number() -> None:
    assert (_states().share, _states().slots) == (0.9, None)
    asked = _states(mamba_full_memory_ratio=0.5, max_mamba_cache_size=40)
    assert (asked.share, asked.slots) == (0.5, 40)


def test_prefixes_keep_states_unless_nothing_is_kept() -> None:
    assert _states().keeps_prefixes and not _states(disable_radix_cache=True).keeps_prefixes
    assert _states(disable_radix_cache=True).slots_each == 1


@pytest.mark.parametrize(
    ("flags", "environ", "each"),
    [
        (EXTRA, {}, 5),
        ({**EXTRA, "disable_overlap_schedule": True}, {}, 4),
        ({"mamba_radix_cache_strategy": "extra_buffer_lazy"}, {}, 4),
        ({**NONE, "disable_overlap_schedule": True}, {}, 3),
        (EXTRA, {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}, 4),
        (EXTRA, {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "0"}, 5),
    ],
)
def test_a_request_has_states_of_its_own_and_tracked_ones(
    flags: dict[str, Any], environ: dict[str, str], each: int
) -> None:
    assert _states(environ=environ, **flags).slots_each == each


def test_states_are_unlocked_while_decoding_since_0_5_17() -> None:
    unlocks = {"SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK": "1"}
    each = [_states(version, unlocks, **EXTRA).slots_each for version in VERSIONS]
    assert changed_in(each) == {"12": 5, "17": 4}


def test_a_prefill_server_kept_states_of_drafts_until_0_5_22() -> None:
    kept = [_states(version, disaggregation_mode="prefill").drafts for version in VERSIONS]
    assert changed_in(kept) == {"12": True, "22": False}
    assert all(_states(version).drafts for version in VERSIONS)


def test_a_server_that_only_decodes_keeps_no_prefixes_unless_it_is_asked_to() -> None:
    role: dict[str, Any] = {"disaggregation_mode": "decode"}
    assert not _states(**role).keeps_prefixes
    assert _states(**role, disaggregation_decode_enable_radix_cache=True).keeps_prefixes
    assert _states(disaggregation_mode="prefill").keeps_prefixes
