"""Which CUDA graphs are captured, of which sizes, and since when: SGLang's own answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from runtime.server import graph_backends
from runtime.server.errors import ConfigError
from runtime.server.graphs import decode_graph_sizes, prefill_graph_sizes
from runtime.server.releases import RELEASES
from tests.server import asking
from tests.server.servers import (
    B200,
    GLM5,
    H100,
    H200,
    LLAMA,
    LLAMA4,
    NEMOTRON,
    NEXT,
    QWEN,
    QWEN35,
    R1,
    V32,
    VERSIONS,
    changed_in,
    checkpoint,
    server,
)

KIMI25 = checkpoint("KimiK25ForConditionalGeneration", "kimi_k25", text_config={"kv_lora_rank": 512})
KDA = checkpoint("BailingMoeV3ForCausalLM", "bailing_hybrid", linear_attn_config={"kda_layers": [1]})
SDAR = {**QWEN, "architectures": ["SDARMoeForCausalLM"]}
DEEPEP = {"tp_size": 8, "moe_a2a_backend": "deepep"}


def _largest(sizes: tuple[int, ...]) -> int:
    return sizes[-1] if sizes else 0


def _by_release(phase: str, model: dict[str, Any], gpu: str = H200, **flags: Any) -> dict[str, int]:
    found = [getattr(server(model, gpu, version, **flags), f"{phase}_graphs") for version in VERSIONS]
    return changed_in([_largest(sizes) for sizes in found])


def test_decode_sizes() -> None:
    assert decode_graph_sizes(21) == (1, 2, 4, 8, 12, 16, 21)
    assert decode_graph_sizes(300)[-4:] == (256, 272, 288, 300)
    assert decode_graph_sizes(544)[-3:] == (496, 512, 544)
    assert len(decode_graph_sizes(256)) == 36 and len(decode_graph_sizes(512)) == 52


def test_decode_sizes_of_drafted_tokens_are_denser() -> None:
    assert decode_graph_sizes(12, speculative=True) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
    assert decode_graph_sizes(80, speculative=True)[-10:] == (32, 40, 44, 48, 52, 56, 60, 64, 72, 80)
    assert decode_graph_sizes(290, speculative=True)[-4:] == (256, 272, 288, 290)


def test_without_padding_every_size_is_captured() -> None:
    assert decode_graph_sizes(5, padded=False) == (1, 2, 3, 4, 5)
    assert server(QWEN, cuda_graph_max_bs_decode=9, disable_cuda_graph_padding=True).decode_graphs == tuple(
        range(1, 10)
    )


@pytest.mark.parametrize(
    ("architecture", "since"),
    [
        ("InternS2MobiusForConditionalGeneration", 18),
        ("KimiK3ForConditionalGeneration", 18),
        ("MuseGlimmerForConditionalGeneration", 18),
        ("PaddleOCRVLForConditionalGeneration", 19),
        ("Qwen4ExpForConditionalGeneration", 22),
        ("MuseSparkForConditionalGeneration", 23),
    ],
)
def test_multimodal_models_that_are_captured(architecture: str, since: int) -> None:
    seeing = checkpoint(architecture, "llama")
    assert server(seeing, version=f"0.5.{since - 1}").prefill_graphs == ()
    assert server(seeing, version=f"0.5.{since}").prefill_graphs


def test_deepep_takes_rows_by_eight_since_0_5_17() -> None:
    asked = {**DEEPEP, "cuda_graph_backend_prefill": "breakable", "cuda_graph_bs_prefill": (4, 12, 16)}
    sizes = [server(QWEN, version=version, **asked).prefill_graphs for version in VERSIONS[3:]]
    assert sizes == [(4, 12, 16)] * 2 + [(8, 16)] * 7


def test_rows_by_eight_are_of_breakable_graphs_behind_deepep_alone() -> None:
    asked: dict[str, Any] = {"tp_size": 8, "cuda_graph_bs_prefill": (4, 12, 16)}
    breakable = {**asked, "cuda_graph_backend_prefill": "breakable"}
    assert server(QWEN, version="0.5.23", **breakable).prefill_graphs == (4, 12, 16)
    compiled = {**asked, "cuda_graph_backend_prefill": "tc_piecewise", "moe_a2a_backend": "deepep"}
    assert server(QWEN, version="0.5.18", **compiled).prefill_graphs == (4, 12, 16)


def test_deepseek_vl_2_says_whether_it_has_mla() -> None:
    vl = {**R1, "architectures": ["DeepseekVL2ForCausalLM"]}
    largest = {
        said: _largest(
            server({**vl, "use_mla": said}, version="0.5.14", enable_multimodal=False).prefill_graphs
        )
        for said in (True, False)
    }
    assert largest == {True: 2048, False: 8192}


def test_a_text_config_tells_delta_attention_too() -> None:
    nested = {"max_position_embeddings": 32768, "linear_attn_config": {"kda_layers": [1]}}
    plain = checkpoint("BailingMoeV3ForCausalLM", "bailing_hybrid")
    assert _largest(server(plain, enable_multimodal=False).prefill_graphs) == 8192
    assert server({**plain, "text_config": nested}, enable_multimodal=False).prefill_graphs == ()


def test_glms_delta_attention_is_captured_since_0_5_22() -> None:
    glm = checkpoint("Glm5NextForConditionalGeneration", "glm5_next", linear_attn_config={"kda_layers": [1]})
    largest = [_largest(server(glm, version=version).prefill_graphs) for version in VERSIONS[8:]]
    assert largest == [0, 0, 2048, 8192]


def test_prefill_sizes() -> None:
    assert prefill_graph_sizes(48) == (4, 8, 12, 16, 20, 24, 28, 32, 48)
    assert prefill_graph_sizes(300)[-3:] == (240, 256, 288), "the largest is not added"
    assert prefill_graph_sizes(1300)[-4:] == (896, 960, 1024, 1280)
    assert prefill_graph_sizes(5200)[-4:] == (3840, 4096, 4608, 5120)
    assert len(prefill_graph_sizes(8192)) == 58 and prefill_graph_sizes(-1) == ()


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "largest"),
    [
        (QWEN, H200, {}, {"12": 8192}),
        (QWEN, B200, {"tp_size": 4, "moe_runner_backend": "triton"}, {"12": 16384}),
        # Experts whose routing torch.compile cannot see
        (QWEN, B200, {"moe_runner_backend": "flashinfer_trtllm"}, {"12": 0, "13": 16384}),
        (GLM5, H200, {"tp_size": 8}, {"12": 0, "13": 2048, "15": 0, "17": 2048, "23": 8192}),
        (R1, H200, {"tp_size": 8}, {"12": 2048, "15": 0, "18": 2048, "23": 8192}),
        (
            R1,
            H200,
            {"tp_size": 8, "chunked_prefill_size": 1024},
            {"12": 2048, "15": 0, "18": 2048, "23": 1024},
        ),
        (R1, B200, {"tp_size": 8, "moe_runner_backend": "triton"}, {"12": 2048, "15": 0}),
        (KIMI25, H200, {"tp_size": 8}, {"12": 0, "16": 2048, "23": 8192}),
        (QWEN35, H200, {}, {"12": 0, "16": 8192}),
        (LLAMA4, H200, {}, {"12": 8192}),
        (LLAMA4, H200, {"enable_multimodal": True}, {"12": 0}),
        (NEXT, H200, {}, {"12": 0, "15": 8192}),
        (NEMOTRON, H200, {}, {"12": 8192, "17": 0, "18": 8192}),
        (KDA, H200, {}, {"12": 2048, "15": 0, "18": 2048, "20": 0}),
        (QWEN, H200, {"pp_size": 2}, {"12": 0, "15": 8192, "19": 0}),
        (QWEN, H200, {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}, {"12": 0, "17": 4096}),
        (QWEN, H200, {"enable_dp_attention": True}, {"12": 0, "17": 8192}),
        (QWEN, H200, {"enable_lora": True, "lora_paths": ("a",)}, {"12": 0, "17": 8192}),
        (QWEN, H200, {"lora_paths": ("a",)}, {"12": 0, "17": 8192}),
        (QWEN, H200, {"attn_cp_size": 2, "tp_size": 2}, {"12": 0}),
        (QWEN, H200, {"dcp_size": 2}, {"12": 8192, "16": 0}),
        (QWEN, H200, {**DEEPEP, "enable_two_batch_overlap": True}, {"12": 0}),
        (QWEN, H200, DEEPEP, {"12": 0, "17": 2048}),
        (QWEN, H200, {"tp_size": 8, "moe_a2a_backend": "mooncake"}, {"12": 0}),
        (QWEN, H200, {"disaggregation_mode": "prefill"}, {"12": 0, "16": 8192}),
        (QWEN, H200, {"disaggregation_mode": "decode"}, {"12": 0, "15": 8192, "16": 0}),
        *(
            (QWEN, H200, {flag: True}, {"12": 0, "15": 8192})
            for flag in (
                "enable_torch_compile",
                "enable_hierarchical_cache",
                "enable_deterministic_inference",
                "enable_symm_mem",
                "debug_cuda_graph",
            )
        ),
        (QWEN, H200, {"cpu_offload_gb": 2}, {"12": 0, "15": 8192}),
        (QWEN, H200, {"load_format": "gguf"}, {"12": 0, "15": 8192}),
        (QWEN, H200, {"model_path": "m.gguf"}, {"12": 0, "15": 8192}),
        (SDAR, H200, {"dllm_algorithm": "LowConfidence"}, {"12": 0, "15": 8192}),
        (QWEN, H200, {"expert_distribution_recorder_mode": "stat"}, {"12": 0, "15": 8192}),
        (QWEN, H200, {"context_length": 5000}, {"12": 8192, "13": 4608, "17": 8192}),
        (
            QWEN,
            H200,
            {"context_length": 5000, "cuda_graph_max_bs_prefill": 6000},
            {"12": 5632, "13": 4608, "17": 5632},
        ),
        (QWEN, H200, {"max_total_tokens": 1500}, {"12": 1280}),
        (QWEN, H200, {"model_path": "meta/Llama-2-7b"}, {"12": 4096}),
        (QWEN, H200, {"chunked_prefill_size": -1}, {"12": 0}),
        (LLAMA, B200, {"pp_size": 2, "cuda_graph_backend_prefill": "breakable"}, {"12": 16384, "19": 8192}),
        (
            LLAMA,
            B200,
            {"pp_size": 2, "cuda_graph_backend_prefill": "breakable", "cuda_graph_max_bs_prefill": 9216},
            {"12": 9216},
        ),
        (QWEN, H200, {"cuda_graph_backend_prefill": "breakable", "enable_torch_compile": True}, {"12": 8192}),
        (QWEN, H200, {"disable_cuda_graph": True}, {"12": 8192, "14": 0}),
        (QWEN, H200, {"disable_prefill_cuda_graph": True}, {"12": 0}),
        (QWEN, H200, {"attention_backend": "torch_native"}, {"12": 8192, "14": 0}),
        (QWEN, H200, {**DEEPEP, "deepep_mode": "normal"}, {"12": 0}),
    ],
)
def test_the_largest_prefill_graph_of_each_release(
    model: dict[str, Any], gpu: str, flags: dict[str, Any], largest: dict[str, int]
) -> None:
    assert _by_release("prefill", model, gpu, **flags) == largest


@pytest.mark.parametrize(
    ("flags", "largest"),
    [
        ({}, {"12": 256}),
        ({"tp_size": 4}, {"12": 512}),
        ({"max_running_requests": 100}, {"12": 256, "22": 100}),
        ({"max_running_requests": 400}, {"12": 256}),
        ({"max_running_requests": 100, "cuda_graph_max_bs": 200}, {"12": 200}),
        ({"cuda_graph_max_bs_decode": 9}, {"12": 9}),
        ({"cuda_graph_bs_decode": (5, 50, 3), "cuda_graph_max_bs_decode": 9}, {"12": 50}),
        ({"disable_cuda_graph": True}, {"12": 0}),
        ({"disable_decode_cuda_graph": True}, {"12": 0}),
        ({"disable_prefill_cuda_graph": True}, {"12": 256}),
        ({"cuda_graph_backend_decode": "disabled"}, {"12": 0}),
        ({"cuda_graph_config": {"decode": {"max_bs": 7}}}, {"12": 7}),
        ({"cuda_graph_config": {"decode": {"backend": "disabled"}}, "cuda_graph_max_bs": 9}, {"12": 0}),
        ({"disaggregation_mode": "prefill"}, {"12": 256, "13": 0}),
        ({"disaggregation_mode": "prefill", "disable_piecewise_cuda_graph": True}, {"12": 0}),
        ({"disaggregation_mode": "prefill", "cuda_graph_backend_decode": "full"}, {"12": 256}),
        ({"disaggregation_mode": "decode"}, {"12": 256}),
        ({"attention_backend": "flex_attention"}, {"12": 0}),
        ({**DEEPEP, "deepep_mode": "normal"}, {"12": 0}),
        ({**DEEPEP, "deepep_mode": "low_latency"}, {"12": 512}),
    ],
)
def test_the_largest_decode_graph_of_each_release(flags: dict[str, Any], largest: dict[str, int]) -> None:
    assert _by_release("decode", QWEN, **flags) == largest


def test_the_old_switch_is_about_decode_alone() -> None:
    old = server(QWEN, version="0.5.13", disable_cuda_graph=True, chunked_prefill_size=16384)
    assert (old.decode_graphs, _largest(old.prefill_graphs)) == ((), 16384)
    assert (
        old.mem_fraction_static
        == server(QWEN, version="0.5.13", chunked_prefill_size=16384).mem_fraction_static
    )


def test_a_captured_prefill_that_is_enforced_is_kept() -> None:
    kept = server(QWEN, version="0.5.13", enforce_piecewise_cuda_graph=True, pp_size=2)
    assert _largest(kept.prefill_graphs) == 8192
    both = server(
        QWEN, version="0.5.13", enforce_piecewise_cuda_graph=True, disable_piecewise_cuda_graph=True
    )
    assert _largest(both.prefill_graphs) == 8192


@pytest.mark.parametrize("flag", ["debug_tensor_dump_output_folder", "msprobe_dump_config"])
def test_what_dumps_tensors_replays_no_graphs_and_keeps_their_room(flag: str) -> None:
    for version in VERSIONS:
        found, usual = server(QWEN, version=version, **{flag: "/tmp/x"}), server(QWEN, version=version)
        assert found.decode_graphs == () and found.mem_fraction_static == usual.mem_fraction_static
        old = version in ("0.5.12", "0.5.13")  # whose switch is about decodes alone
        assert found.prefill_graphs == (usual.prefill_graphs if old else ())
    assert found.why["decode_graphs"] == f"--{flag.replace('_', '-')}"


def test_deepep_takes_rows_by_eight() -> None:
    assert server(QWEN, **DEEPEP).prefill_graphs[:6] == (8, 16, 24, 32, 48, 64)
    asked = server(QWEN, **DEEPEP, cuda_graph_bs_prefill=(60, 9, 33, 8))
    assert asked.prefill_graphs == (8, 16, 40, 64)
    assert server(QWEN, **DEEPEP, cuda_graph_bs_prefill=(16, 8)).prefill_graphs == (8, 16)
    assert server(QWEN, **DEEPEP, cuda_graph_max_bs_prefill=20).prefill_graphs == (8, 16, 24)


def test_a_divided_chunk_regenerates_the_prefill_graphs_that_nobody_asked_for() -> None:
    dp = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}
    assert _largest(server(QWEN, **dp).prefill_graphs) == 2048
    assert _largest(server(QWEN, **dp, cuda_graph_max_bs_prefill=4096).prefill_graphs) == 4096
    assert server(QWEN, **dp, cuda_graph_bs_prefill=(4096, 60)).prefill_graphs == (60, 4096)
    kept = server(QWEN, **dp, version="0.5.15", cuda_graph_backend_prefill="breakable")
    assert _largest(kept.prefill_graphs) == 8192


def test_trtllm_mla_turns_prefill_graphs_off_unless_they_were_asked_for() -> None:
    r1 = {"tp_size": 8, "moe_runner_backend": "triton"}
    assert server(R1, B200, **r1).prefill_graphs == ()
    assert server(R1, B200, **r1, cuda_graph_backend_prefill="breakable").prefill_graphs
    assert server(R1, B200, **r1, prefill_attention_backend="flashinfer").prefill_graphs
    assert server(V32, B200, **r1).prefill_graphs, "sparse attention is another backend"


def test_a_listed_conflict_has_a_rule_and_a_rule_a_release() -> None:
    listed = {name for one in RELEASES for name in (*one.compiled_off_with, *one.breakable_off_with)}
    assert listed == set(graph_backends.CONFLICTS)


def test_why_says_what_turned_graphs_off() -> None:
    assert server(QWEN, pp_size=2).why["prefill_graphs"] == "no prefill graphs with pipeline parallelism"
    assert (
        server(QWEN, disaggregation_mode="prefill").why["decode_graphs"] == "a server that only does prefill"
    )


@pytest.mark.parametrize(
    "flags",
    [
        {"cuda_graph_bs": ()},
        {"cuda_graph_bs_prefill": (4, 0)},
        {"cuda_graph_bs_prefill": (4, "8")},
        {"cuda_graph_max_bs_prefill": 0},
        {"cuda_graph_config": {"decode": []}},
        {"cuda_graph_config": {"decode": {"max_bs": "9"}}},
        {"cuda_graph_config": {"prefill": {"bs": 9}}},
        {"cuda_graph_config": {"prefill": {"backend": None, "bs": [True]}}},
    ],
)
def test_sizes_that_are_none(flags: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="graph"):
        server(LLAMA, H100, **flags)


@pytest.mark.parametrize(
    ("flag", "backend", "found"),
    [
        ("decode", "tc_piecewise", {"12": "kept", "22": "refused"}),
        ("decode", "eager", {"12": "refused"}),
        ("prefill", "tc_piecewise", {"12": "kept", "22": "refused"}),
        ("prefill", "full", {"12": "refused", "15": "kept"}),
    ],
)
def test_a_backend_that_a_release_does_not_have(flag: str, backend: str, found: dict[str, str]) -> None:
    def kept(version: str) -> str:
        try:
            return server(LLAMA, version=version, **{f"cuda_graph_backend_{flag}": backend}) and "kept"
        except ConfigError:
            return "refused"

    assert changed_in([kept(version) for version in VERSIONS]) == found


def test_unified_memory_has_no_prefill_graphs_in_0_5_19() -> None:
    pages = {"enable_unified_memory": True}
    assert server(LLAMA, H200, "0.5.19", others=pages).prefill_graphs == ()
    assert server(LLAMA, H200, "0.5.20", others=pages).prefill_graphs


@pytest.mark.parametrize("family", ["kimi_k3", "mobius"])
def test_language_models_of_kimi_k3_and_mobius_are_captured_since_0_5_18(family: str) -> None:
    assert asking.server(family, 17).prefill_graphs == ()
    assert asking.server(family, 18).prefill_graphs


def test_the_sizes_between_which_steps_grow() -> None:
    """A step, and the last size before a larger one: of decode batches, of drafted ones, of prefills."""

    def edges(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
        steps = [(after - before, before) for before, after in pairwise(sizes)]
        return [last for last, (step, _) in pairwise([*steps, (0, 0)]) if last[0] != step]

    assert edges(decode_graph_sizes(640)) == [(1, 1), (2, 2), (4, 12), (8, 248), (16, 496), (32, 608)]
    drafted = [(1, 7), (2, 30), (8, 32), (4, 60), (8, 248), (16, 624)]
    assert edges(decode_graph_sizes(640, speculative=True)) == drafted
    assert edges(decode_graph_sizes(9, padded=False)) == [(1, 8)]
    steps = [(4, 28), (16, 240), (32, 480), (64, 960), (256, 3840), (512, 7680)]
    assert edges(prefill_graph_sizes(8200)) == steps
    assert prefill_graph_sizes(8192)[-1] == 8192 and prefill_graph_sizes(8191)[-1] == 7680
    assert decode_graph_sizes(8)[-3:] == (2, 4, 8) and decode_graph_sizes(0) == (0,)
