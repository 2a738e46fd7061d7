"""Attention kernels and pages, of every family, GPU and release that SGLang treats apart."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.errors import ConfigError
from tests.server.servers import (
    B200,
    GLM5,
    GPT_OSS,
    H100,
    H200,
    LATENT,
    LLAMA,
    LLAMA4,
    NEMOTRON,
    NEXT,
    PRO,
    QWEN,
    QWEN35,
    R1,
    V32,
    VERSIONS,
    changed_in,
    checkpoint,
    server,
)

STEP = checkpoint("Step3p5ForCausalLM", "step3p5")
GEMMA4 = checkpoint("Gemma4ForCausalLM", "gemma4_text")
MIMO = checkpoint("MiMoV2FlashForCausalLM", "llama", head_dim=192, v_head_dim=128)
M3 = checkpoint("MiniMaxM3SparseForCausalLM", "llama")
MOSS = checkpoint("MossVLForConditionalGeneration", "moss_vl")
IQUEST = checkpoint("IQuestQ1ForCausalLM", "iquest_q1")
K3 = checkpoint("KimiK3ForConditionalGeneration", "kimi_k3", **LATENT)
V4 = checkpoint("DeepseekV4ForCausalLM", "deepseek_v4")
LONGCAT = checkpoint("LongcatFlashForCausalLM", "longcat_flash", index_topk=9, **LATENT)
FALCON = checkpoint("FalconH1ForCausalLM", "falcon_h1")
LFM2 = checkpoint("Lfm2ForCausalLM", "lfm2")
OLMO = checkpoint("Olmo2ForCausalLM", "olmo2")
EXAONE = checkpoint("Exaone4ForCausalLM", "exaone4", sliding_window_pattern="LLLG")
QWEN3_VL = checkpoint("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe")
UNTOLD_EXAONE = checkpoint("ExaoneMoEForCausalLM", "exaone_moe")  # whose class has a pattern of its own
BEAM = checkpoint("BeamForCausalLM", "beam")
WIDE = {**QWEN, "head_dim": 192, "v_head_dim": 128}
DRAFT = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "speculative_draft_model_path": "m",
}
PLAIN = {"moe_runner_backend": "triton"}


def _by_release(model: dict[str, Any], gpu: str, versions: tuple[str, ...] = VERSIONS, **flags: Any) -> Any:
    """`backend page`, or what was refused, by release."""

    def found(version: str) -> str:
        try:
            one = server(model, gpu, version, **{**PLAIN, **flags})
        except ConfigError:
            return "refused"
        return f"{one.attention_backend} {one.page_size}"

    return changed_in([found(version) for version in versions], versions)


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "found"),
    [
        (QWEN, H100, {}, {"12": "fa3 1"}),
        (QWEN, B200, {}, {"12": "trtllm_mha 64"}),
        (QWEN, PRO, {}, {"12": "flashinfer 1"}),
        (QWEN, "L40S", {}, {"12": "flashinfer 1"}),
        (R1, H100, {"tp_size": 8}, {"12": "fa3 1"}),
        (R1, B200, {"tp_size": 8}, {"12": "trtllm_mla 64"}),
        (R1, PRO, {"tp_size": 8}, {"12": "triton 1"}),
        (R1, B200, {"prefill_attention_backend": "triton"}, {"12": "triton/flashinfer 1"}),
        (V32, H100, {}, {"12": "nsa 64", "13": "dsa 64"}),
        (GLM5, B200, {"page_size": 32}, {"12": "nsa 64", "13": "dsa 64"}),
        (V32, H100, {"attention_backend": "fa3", "page_size": 1}, {"12": "fa3 64"}),
        ({**V32, "index_kpool": 2}, H100, {}, {"12": "nsa 64", "13": "dsa 64", "22": "dsa 128"}),
        ({**V32, "index_topk": None}, H100, {}, {"12": "fa3 1"}),
        (LONGCAT, H100, {}, {"12": "fa3 1", "16": "dsa 64"}),
        (V4, H100, {"page_size": 1}, {"12": "dsv4 256"}),
        (GPT_OSS, H100, {}, {"12": "fa3 1"}),
        (GPT_OSS, B200, {}, {"12": "trtllm_mha 64"}),
        (GPT_OSS, PRO, {}, {"12": "triton 1"}),
        (GPT_OSS, H100, {"attention_backend": "flashinfer"}, {"12": "refused"}),
        (GPT_OSS, H100, {"prefill_attention_backend": "fa3"}, {"12": "refused"}),
        (LLAMA4, H100, {}, {"12": "fa3 1"}),
        (LLAMA4, PRO, {}, {"12": "triton 1"}),
        (LLAMA4, B200, {}, {"12": "trtllm_mha 64"}),
        (LLAMA4, H100, {"attention_backend": "flashinfer"}, {"12": "refused"}),
        (STEP, B200, {}, {"12": "trtllm_mha 64", "13": "fa4 1", "15": "fa4 128"}),
        (STEP, PRO, {}, {"12": "flashinfer 1", "13": "fa4 1"}),
        (STEP, H100, {}, {"12": "fa3 1"}),
        (GEMMA4, B200, {}, {"12": "triton 1", "13": "trtllm_mha 64"}),
        (GEMMA4, H100, {}, {"12": "triton 1"}),
        (GEMMA4, H100, {"attention_backend": "fa3"}, {"12": "refused"}),
        (GEMMA4, B200, {"attention_backend": "fa4"}, {"12": "refused", "22": "fa4 128"}),
        (MIMO, B200, {}, {"12": "trtllm_mha 64", "15": "fa4 128"}),
        (MIMO, PRO, {}, {"12": "flashinfer 1"}),
        ({**MIMO, "add_swa_attention_sink_bias": True}, PRO, {}, {"12": "triton 1"}),
        ({**MIMO, "add_full_attention_sink_bias": True}, PRO, {}, {"12": "triton 1"}),
        (MOSS, H100, {}, {"12": "flashinfer/fa3 1"}),
        (MOSS, H100, {"attention_backend": "fa3"}, {"12": "refused"}),
        (MOSS, H100, {"prefill_attention_backend": "flashinfer"}, {"12": "flashinfer/fa3 1"}),
        (IQUEST, B200, {}, {"12": "refused", "21": "fa3 1"}),
        (IQUEST, H100, {"decode_attention_backend": "triton"}, {"12": "refused"}),
        (K3, B200, {}, {"12": "refused", "17": "trtllm_mla 64"}),
        (K3, B200, {"attention_backend": "triton"}, {"12": "refused", "17": "triton 1"}),
        (M3, H100, {}, {"12": "fa3 1", "16": "fa3 128"}),
        (M3, B200, {}, {"12": "trtllm_mha 64", "16": "fa4 128"}),
        (
            M3,
            B200,
            {"kv_cache_dtype": "fp8_e4m3"},
            {"12": "trtllm_mha 64", "16": "fa4 128", "17": "trtllm_mha 128"},
        ),
        (OLMO, "L40S", {}, {"12": "fa3 1"}),
        (OLMO, B200, {}, {"12": "trtllm_mha 64"}),
        (EXAONE, H100, {}, {"12": "refused", "22": "fa3 1"}),
        (EXAONE, H100, {"attention_backend": "triton"}, {"12": "triton 1"}),
        (UNTOLD_EXAONE, H100, {}, {"12": "refused", "22": "fa3 1"}),
        ({**EXAONE, "sliding_window_pattern": None}, "L40S", {}, {"12": "flashinfer 1"}),
        (FALCON, B200, {}, {"12": "triton 1"}),
        (FALCON, H100, {}, {"12": "fa3 1"}),
        (LFM2, B200, {}, {"12": "flashinfer 1"}),
        (NEMOTRON, B200, {}, {"12": "flashinfer 1", "19": "trtllm_mha 64"}),
        (NEMOTRON, PRO, {}, {"12": "flashinfer 1"}),
        (NEMOTRON, H100, {"attention_backend": "triton"}, {"12": "refused", "19": "triton 1"}),
        (
            NEMOTRON,
            B200,
            {**DRAFT, "disable_radix_cache": True},
            {"12": "flashinfer 1", "19": "trtllm_mha 64"},
        ),
        (NEMOTRON, PRO, {**DRAFT, "disable_radix_cache": True}, {"12": "flashinfer 1", "19": "triton 1"}),
        (NEXT, B200, {}, {"12": "triton 1"}),
        (NEXT, B200, {"disable_radix_cache": True}, {"12": "trtllm_mha 64"}),
        (
            NEXT,
            B200,
            {"disable_radix_cache": True, "page_size": 32},
            {"12": "trtllm_mha 32", "14": "trtllm_mha 64"},
        ),
        (QWEN35, B200, {"page_size": 64}, {"12": "triton 1"}),
        (NEXT, H100, {"page_size": 64}, {"12": "fa3 1", "14": "fa3 64"}),
        (QWEN3_VL, H200, {}, {"12": "fa3 1", "20": "fa3/flashinfer 1"}),
        (QWEN3_VL, "L40S", {}, {"12": "flashinfer 1"}),
        (WIDE, B200, {}, {"12": "trtllm_mha 64", "17": "fa4 128"}),
    ],
)
def test_what_a_family_runs_on(model: dict[str, Any], gpu: str, flags: dict[str, Any], found: Any) -> None:
    assert _by_release(model, gpu, **flags) == found


@pytest.mark.parametrize(
    ("gpu", "flags", "found"),
    [
        (H100, {**DRAFT}, {"12": "fa3 1"}),
        (H100, {**DRAFT, "page_size": 16}, {"12": "flashinfer 16"}),
        (H100, {**DRAFT, "speculative_eagle_topk": 4}, {"12": "flashinfer 1"}),
        (B200, {**DRAFT}, {"12": "trtllm_mha 64"}),
        (B200, {"speculative_algorithm": "NGRAM"}, {"12": "flashinfer 1"}),
        (H100, {"speculative_algorithm": "NGRAM"}, {"12": "fa3 1"}),
        (
            B200,
            {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "m"},
            {"12": "flashinfer 1"},
        ),
        (
            B200,
            {**DRAFT, "attention_backend": "triton", "speculative_draft_attention_backend": "trtllm_mha"},
            {"12": "triton 1", "17": "triton 64"},
        ),
    ],
)
def test_what_a_draft_leaves(gpu: str, flags: dict[str, Any], found: Any) -> None:
    assert _by_release(LLAMA, gpu, **flags) == found


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "found"),
    [
        (
            QWEN,
            H100,
            {"prefill_attention_backend": "triton", "decode_attention_backend": "triton"},
            {"12": "triton 1"},
        ),
        (
            QWEN,
            H100,
            {
                "attention_backend": "fa3",
                "prefill_attention_backend": "triton",
                "decode_attention_backend": "triton",
            },
            {"12": "triton 1"},
        ),
        (QWEN, H100, {"decode_attention_backend": "flashmla", "page_size": 16}, {"12": "fa3/flashmla 64"}),
        (QWEN, H100, {"prefill_attention_backend": "flashmla"}, {"12": "flashmla/fa3 1"}),
        (R1, B200, {"attention_backend": "cutlass_mla"}, {"12": "cutlass_mla 128", "20": "cutlass_mla 1"}),
        (R1, B200, {"page_size": 32}, {"12": "trtllm_mla 32"}),
        (R1, B200, {"page_size": 16}, {"12": "trtllm_mla 64"}),
        (R1, PRO, {"attention_backend": "trtllm_mla"}, {"12": "trtllm_mla 64"}),
        (R1, H100, {"attention_backend": "trtllm_mla"}, {"12": "refused"}),
        (R1, B200, {"kv_cache_dtype": "fp8_e5m2"}, {"12": "refused"}),
        (R1, B200, {"kv_cache_dtype": "bfloat16"}, {"12": "refused"}),
        (R1, B200, {"kv_cache_dtype": "fp4_e2m1"}, {"12": "trtllm_mla 64", "21": "refused"}),
        (R1, B200, {"kv_cache_dtype": "bf16"}, {"12": "trtllm_mla 64"}),
        (
            R1,
            B200,
            {"decode_attention_backend": "tokenspeed_mla", "kv_cache_dtype": "fp8_e4m3"},
            {"12": "flashinfer/tokenspeed_mla 64", "23": "trtllm_mla/cutedsl_mla 64"},
        ),
        (
            R1,
            B200,
            {"decode_attention_backend": "tokenspeed_mla"},
            {"12": "refused", "23": "trtllm_mla/cutedsl_mla 64"},
        ),
        (QWEN, B200, {"page_size": 16}, {"12": "trtllm_mha 16"}),
        (QWEN, B200, {"page_size": 32}, {"12": "trtllm_mha 32"}),
        (QWEN, B200, {"page_size": 128}, {"12": "trtllm_mha 64", "17": "trtllm_mha 128"}),
        (QWEN, B200, {"page_size": 256}, {"12": "trtllm_mha 64"}),
        (QWEN, H100, {"attention_backend": "trtllm_mha"}, {"12": "refused", "19": "trtllm_mha 64"}),
        (QWEN, PRO, {"attention_backend": "trtllm_mha"}, {"12": "refused", "19": "trtllm_mha 64"}),
        (QWEN, PRO, {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"}, {"12": "refused"}),
        (
            QWEN,
            H100,
            {"attention_backend": "trtllm_mha", "kv_cache_dtype": "fp8_e4m3"},
            {"12": "refused", "19": "trtllm_mha 64"},
        ),
        (QWEN, PRO, {"decode_attention_backend": "trtllm_mha"}, {"12": "flashinfer/trtllm_mha 64"}),
        (QWEN, "L40S", {"decode_attention_backend": "trtllm_mha"}, {"12": "refused"}),
        (QWEN, H100, {"attention_backend": "fa3", "kv_cache_dtype": "fp8_e5m2"}, {"12": "triton 1"}),
        (
            QWEN,
            H100,
            {"prefill_attention_backend": "fa3", "kv_cache_dtype": "fp8_e5m2"},
            {"12": "fa3/triton 1"},
        ),
        (QWEN, H100, {"attention_backend": "hpc_ops"}, {"12": "hpc_ops 1", "17": "hpc_ops 64"}),
        (
            QWEN,
            B200,
            {"prefill_attention_backend": "fa4", "decode_attention_backend": "triton"},
            {"12": "fa4/triton 128"},
        ),
        (QWEN, B200, {"attention_backend": "fa4"}, {"12": "fa4 1", "15": "fa4 128"}),
        (R1, B200, {"attention_backend": "fa4"}, {"12": "fa4 1"}),
        (QWEN, PRO, {"attention_backend": "fa4"}, {"12": "fa4 1"}),
        (QWEN, H100, {"page_size": 20, "chunked_prefill_size": 4000}, {"12": "fa3 20"}),
    ],
)
def test_what_a_backend_asks_of_pages(
    model: dict[str, Any], gpu: str, flags: dict[str, Any], found: Any
) -> None:
    assert _by_release(model, gpu, **flags) == found


def test_cutedsl_only_decodes() -> None:
    flags = {"decode_attention_backend": "cutedsl_mla", "page_size": 1, **PLAIN}
    found = server(R1, B200, "0.5.20", **flags)
    assert (found.attention_backend, found.page_size) == ("trtllm_mla/cutedsl_mla", 64)


@pytest.mark.parametrize(
    ("model", "backends"),
    [
        (GPT_OSS, ("triton", "trtllm_mha", "fa3", "fa4", "aiter", "ascend", "intel_amx", "intel_xpu")),
        (LLAMA4, ("fa3", "aiter", "triton", "ascend", "trtllm_mha", "intel_xpu")),
        (GEMMA4, ("trtllm_mha", "triton", "fa4", "intel_xpu", "aiter")),
    ],
)
def test_backends_that_a_family_may_be_given(model: dict[str, Any], backends: tuple[str, ...]) -> None:
    for backend in backends:
        assert server(model, B200, attention_backend=backend, **PLAIN).attention_backend == backend
    for backend in {"flashinfer", "flex_attention", "torch_native", "fa4", "intel_amx"}.difference(backends):
        with pytest.raises(ConfigError, match=f"does not run on attention backend {backend}"):
            server(model, B200, attention_backend=backend, **PLAIN)


@pytest.mark.parametrize("backend", ["trtllm_mla", "tokenspeed_mla", "cutedsl_mla"])
def test_mla_kernels_of_blackwell_take_pages_of_32_or_64(backend: str) -> None:
    flags = {"decode_attention_backend": backend, "kv_cache_dtype": "fp8_e4m3", **PLAIN}
    pages = [server(R1, B200, "0.5.20", page_size=page, **flags).page_size for page in (16, 32, 64, 128)]
    assert pages == [64, 32, 64, 64]


def test_fa4_pages_are_not_for_branching_drafts() -> None:
    branching = {**DRAFT, "speculative_eagle_topk": 2, "attention_backend": "fa4", **PLAIN}
    assert server(LLAMA, B200, **branching).page_size == 1
    assert server(LLAMA, B200, **{**DRAFT, "attention_backend": "fa4"}).page_size == 128


@pytest.mark.parametrize("backend", ["torch_native", "flex_attention"])
def test_what_is_not_captured(backend: str) -> None:
    found, before = (server(LLAMA, version=one, attention_backend=backend) for one in ("0.5.14", "0.5.13"))
    assert found.decode_graphs == () == found.prefill_graphs
    assert before.decode_graphs == () != before.prefill_graphs


def test_a_page_of_nothing() -> None:
    with pytest.raises(ConfigError, match="--page-size is 0"):
        server(LLAMA, page_size=0)


def test_flex_attention_does_not_speculate() -> None:
    with pytest.raises(ConfigError, match="flex_attention"):
        server(LLAMA, attention_backend="flex_attention", speculative_algorithm="NGRAM")


@pytest.mark.parametrize(
    ("model", "flags", "found"),
    [
        (QWEN, {}, {"12": "fa3/flashinfer 1", "14": "fa3 1"}),
        (GPT_OSS, {}, {"12": "fa3/triton 1", "14": "fa3 1"}),
        (R1, {}, {"12": "fa3/triton 1", "14": "fa3 1"}),
        (QWEN, {"hicache_io_backend": "direct"}, {"12": "fa3 1"}),
        (QWEN, {"hicache_mem_layout": "page_first_direct"}, {"12": "fa3 1"}),
        (QWEN, {"decode_attention_backend": "fa3"}, {"12": "fa3 1"}),
        (QWEN, {"attention_backend": "triton"}, {"12": "triton 1"}),
    ],
)
def test_decoding_from_a_hierarchical_cache(model: dict[str, Any], flags: dict[str, Any], found: Any) -> None:
    assert _by_release(model, H100, enable_hierarchical_cache=True, **flags) == found


def test_one_backend_named_for_both_phases_counts_as_the_attention_backend() -> None:
    both = {"prefill_attention_backend": "torch_native", "decode_attention_backend": "torch_native"}
    assert server(LLAMA, H200, **both).decode_graphs == (), "torch_native is not captured"
    assert server(LLAMA, H200, prefill_attention_backend="torch_native").decode_graphs


def test_a_nemotron_h_with_a_draft_keeps_its_states_though_batches_do_not_overlap() -> None:
    """Without them trtllm_mha could not share prefixes, and the server would be refused."""
    found = server(NEMOTRON, B200, speculative_algorithm="EAGLE", disable_overlap_schedule=True, page_size=1)
    assert (found.attention_backend, found.page_size) == ("trtllm_mha", 64)


@pytest.mark.parametrize(
    "architecture", ["Exaone4ForCausalLM", "ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"]
)
def test_exaones_windows_run_on_fa3_where_others_do_not(architecture: str) -> None:
    plain, windowed = (
        checkpoint(architecture, "llama", **more) for more in ({}, {"sliding_window_pattern": "LG"})
    )
    for gpu in ("A100 80GB", "RTX PRO 6000"):
        assert (server(plain, gpu).attention_backend, server(windowed, gpu).attention_backend) == (
            "flashinfer",
            "fa3",
        )


@pytest.mark.parametrize(
    ("gpu", "runs"), [(H100, "trtllm_mha"), (B200, "trtllm_mha"), ("L40S", "flashinfer")]
)
def test_beam_runs_on_trtllm_mha_and_its_pages(gpu: str, runs: str) -> None:
    found = server(BEAM, gpu)
    assert (found.attention_backend, found.page_size) == (runs, 64 if runs == "trtllm_mha" else 1)


@pytest.mark.parametrize(
    ("pool", "page"), [(1, 64), (4, 256), (None, 64), (0, None), (-1, None), ("2", None)]
)
def test_pools_of_a_sparse_index_make_longer_pages_since_0_5_22(pool: object, page: int | None) -> None:
    pooled = {**V32, "index_kpool": pool}
    assert server(pooled, H100, "0.5.21").page_size == 64
    if page is None:
        with pytest.raises(ConfigError, match="index_kpool"):
            server(pooled, H100, "0.5.22")
    else:
        assert server(pooled, H100, "0.5.22").page_size == page
