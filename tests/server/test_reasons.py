"""Why a value is what it is: the rule on the branch that was taken, with what rules before it had made."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.gpus import find_gpu
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from tests.server.servers import B200, GPT_OSS, H200, LLAMA, NEXT, QWEN, QWEN35, R1, server

LARGE = "as large as a GPU of 143,771 MiB gets at tp 1"
CHUNK = "breakable, as large as a prefill chunk"
EAGER = {"disable_overlap_schedule": True}
NGRAM, E5M2 = {"speculative_algorithm": "NGRAM"}, {"kv_cache_dtype": "fp8_e5m2"}
CHAIN: dict[str, Any] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
TREE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 2,
    "speculative_num_draft_tokens": 4,
}


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "backend", "why"),
    [
        (QWEN, H200, {}, "fa3", "multi-head attention on sm90"),
        (QWEN, "A100 80GB", {}, "flashinfer", "multi-head attention on sm80"),
        (QWEN, H200, TREE, "flashinfer", "a draft with branches or pages"),
        (LLAMA, B200, NGRAM, "flashinfer", "a draft whose width is not settled yet"),
        (R1, H200, {}, "fa3", "latent attention on sm90"),
        (R1, B200, {}, "trtllm_mla", "DeepseekV3ForCausalLM on sm100"),
        (GPT_OSS, B200, {}, "trtllm_mha", "GptOssForCausalLM on sm100"),
        (NEXT, B200, EAGER, "triton", "Qwen3NextForCausalLM without pages on sm100"),
        (LLAMA, H200, {"enable_deterministic_inference": True}, "fa3", "deterministic inference"),
        (LLAMA, H200, E5M2, "triton", "multi-head attention on sm90: fa3; fa3 has no fp8_e5m2"),
    ],
)  # fmt: skip
def test_an_attention_backend_says_the_branch_that_chose_it(
    model: dict[str, Any], gpu: str, flags: dict[str, Any], backend: str, why: str
) -> None:
    found = server(model, gpu, **flags)
    assert (found.attention_backend, found.why["attention_backend"]) == (backend, why)


def test_a_value_that_two_rules_changed_says_what_the_first_had_made_of_it() -> None:
    shared = server(QWEN, H200, tp_size=8, dp_size=8, enable_dp_attention=True)
    assert (
        shared.why["chunked_prefill_size"] == "a GPU of 143,771 MiB: 8192; 8 groups of DP attention share it"
    )
    assert [reason.value for reason in shared.reasons["chunked_prefill_size"]] == [8192, 1024]


def test_what_is_kept_free_is_told_to_the_mib() -> None:
    found = server(QWEN, H200, tp_size=8)
    told = [part.rsplit(" ", 1)[1] for part in found.why["mem_fraction_static"].split(": ")[1].split(", ")]
    assert "kept free of 143,771 MiB: activations 12,800" in found.why["mem_fraction_static"]
    kept = sum(int(mib.replace(",", "")) for mib in told)
    assert round((143771 - kept) / 143771, 3) == found.mem_fraction_static


def test_a_large_gpu_keeps_the_least_free_and_an_encoder_its_share() -> None:
    assert (
        "the least on a large GPU 10,240"
        in server(LLAMA, H200, chunked_prefill_size=2048).why["mem_fraction_static"]
    )
    assert server(QWEN35, H200).why["mem_fraction_static"].endswith("; a multimodal model's encoder")


@pytest.mark.parametrize(
    ("flags", "decode", "prefill"),
    [
        ({}, LARGE, CHUNK),
        ({"cuda_graph_max_bs": 8}, "as asked", CHUNK),
        ({"max_running_requests": 4}, "as large as --max-running-requests", CHUNK),
        ({"disable_cuda_graph": True}, "--disable-cuda-graph", "--disable-cuda-graph"),
        ({"disable_prefill_cuda_graph": True}, LARGE, "as asked"),
        ({"pp_size": 2}, LARGE, "no prefill graphs with pipeline parallelism"),
    ],
)  # fmt: skip
def test_graphs_say_how_large_they_are_or_why_there_are_none(
    flags: dict[str, Any], decode: str, prefill: str
) -> None:
    found = server(QWEN, H200, **flags)
    assert (found.why["decode_graphs"], found.why["prefill_graphs"]) == (decode, prefill)


def test_what_was_asked_and_kept_has_no_reason() -> None:
    asked = {
        "page_size": 16,
        "attention_backend": "flashinfer",
        "dtype": "bfloat16",
        "chunked_prefill_size": 4096,
    }
    assert not set(asked) & set(server(QWEN, H200, **asked).why)


def test_requests_follow_from_memory_unless_they_were_asked_for() -> None:
    (why,) = server(QWEN).reasons["max_running_requests"]
    assert (why.value, why.rule) == (None, "the KV cache's room decides at the start")
    assert "max_running_requests" not in server(QWEN, max_running_requests=8).reasons


def test_the_context_is_the_models_unless_it_was_asked_for() -> None:
    (why,) = server(QWEN).reasons["context_length"]
    assert (why.value, why.rule) == (32768, "config.json")
    assert "context_length" not in server(QWEN, context_length=4096).reasons


@pytest.mark.parametrize(
    ("version", "environ", "fused", "rule"),
    [
        ("0.5.23", {}, False, "off unless the environment turns it on"),
        ("0.5.23", {"SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": "1"}, True, "the environment turns it on"),
        ("0.5.20", {}, True, "on unless the environment turns it off"),
        ("0.5.18", {"SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": "0"}, False, "the environment turns it off"),
        ("0.5.12", {}, True, "FlashInfer's own default"),
    ],
)
def test_a_fused_end_says_who_decided(version: str, environ: dict[str, str], fused: bool, rule: str) -> None:
    release = release_named(version).release
    found = resolve(Asked(model_path="m"), Checkpoint(QWEN), None, find_gpu(H200), release, environ)
    (why,) = found.reasons["fused_finalize"]
    assert (found.fused_finalize, why.value, why.rule) == (fused, fused, rule)


def test_the_dummy_batch_is_the_requests_of_a_rank_and_their_tokens() -> None:
    (alone,) = server(QWEN, max_running_requests=40).reasons["dummy_batch_rows"]
    assert (alone.value, alone.rule) == (40, "requests of a rank: 40")
    (drafted,) = server(QWEN, max_running_requests=40, **CHAIN).reasons["dummy_batch_rows"]
    assert (drafted.value, drafted.rule) == (160, "requests of a rank: 40, 4 tokens each")
    (most,) = server(QWEN).reasons["dummy_batch_rows"]
    assert (most.value, most.rule) == (4096, "the most that a rank runs: 4,096")


@pytest.mark.parametrize(
    ("version", "told", "value", "rule"),
    [
        (17, "1", True, "FlashInfer's own default"),
        (18, None, True, "on unless the environment turns it off"),
        (20, None, True, "on unless the environment turns it off"),
        (21, None, False, "off unless the environment turns it on"),
        (23, "1", True, "the environment turns it on"),
        (23, "0", False, "the environment turns it off"),
    ],
)
def test_who_says_whether_a_finish_is_fused(version: int, told: str | None, value: bool, rule: str) -> None:
    environ = {} if told is None else {"SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": told}
    release = release_named(f"0.5.{version}").release
    found = resolve(Asked(model_path="m"), Checkpoint(QWEN), None, find_gpu("H200"), release, environ)
    (reason,) = found.reasons["fused_finalize"]
    assert (reason.value, reason.rule) == (value, rule)
