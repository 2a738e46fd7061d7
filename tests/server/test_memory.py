"""What is kept free of weights and KV cache, by release: SGLang's own arithmetic on a GPU of round size."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import CPU, GpuModel
from runtime.server.memory import GpuDefaults, gpu_defaults
from runtime.server.releases import NEWEST, RELEASES, release_named
from runtime.server.resolve import resolve
from tests.server.servers import (
    H200,
    LLAMA4,
    NEXT,
    QWEN,
    QWEN35,
    R1,
    VERSIONS,
    changed_in,
    checkpoint,
    server,
)

MIB = 100_000  # a fraction's three digits are then hundreds of MiB
ROUND = GpuModel("round", "sm90", MIB, None, "")
QWEN3_VL = checkpoint("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe")


def _reserved(model: dict[str, Any], flags: dict[str, Any]) -> dict[str, int]:
    """MiB that are not static, by release."""
    found = []
    for version in VERSIONS:
        asked = Asked(**{"model_path": "models/m", **flags})
        release = release_named(version).release
        fraction = resolve(asked, Checkpoint(model), None, ROUND, release, {}).mem_fraction_static
        found.append(round((1 - fraction) * MIB))
    return changed_in(found)


# 512 + 1.5 a token of the chunk + 1024 a 8 ranks + 2 a decode graph + 8 a prefill graph
BIG = {"tp_size": 8, "chunked_prefill_size": 20000}


@pytest.mark.parametrize(
    ("flags", "mib"),
    [
        ({}, {"12": 13900}),
        (BIG, {"12": 33200}),
        ({**BIG, "chunked_prefill_size": 100}, {"12": 10200}),
        # no chunk: the longest prefill
        ({**BIG, "chunked_prefill_size": -1}, {"12": 27100}),
        ({**BIG, "chunked_prefill_size": 0, "max_prefill_tokens": 30000}, {"12": 47600}),
        ({**BIG, "cuda_graph_max_bs": 5000}, {"12": 42200}),
        ({**BIG, "cuda_graph_max_bs": 5000, "disable_decode_cuda_graph": True}, {"12": 42200, "15": 32200}),
        ({**BIG, "cuda_graph_max_bs": 5000, "disable_prefill_cuda_graph": True}, {"12": 41500}),
        ({**BIG, "pp_size": 8}, {"12": 39700, "15": 40400, "19": 39700}),
        # a group of attention: 3 MiB a decode graph and rank, 4.5 above 300 of them
        (
            {**BIG, "enable_dp_attention": True, "dp_size": 8, "cuda_graph_max_bs": 300},
            {"12": 39300, "17": 40000},
        ),
        (
            {**BIG, "enable_dp_attention": True, "dp_size": 8, "cuda_graph_max_bs": 301},
            {"12": 43000, "17": 43600},
        ),
        (
            {**BIG, "enable_dp_attention": True, "cuda_graph_max_bs": 300},
            {"12": 33000, "17": 33700, "22": 32800},
        ),
        ({**BIG, "attn_dp_size": 8, "cuda_graph_max_bs": 300}, {"12": 39300, "17": 40000}),
        ({**BIG, "moe_a2a_backend": "deepep"}, {"12": 32600, "15": 34600, "17": 35900}),
        (
            {**BIG, "moe_a2a_backend": "deepep", "disable_decode_cuda_graph": True},
            {"12": 32600, "15": 31500, "17": 32900},
        ),
        ({**BIG, "disaggregation_mode": "prefill"}, {"12": 32600, "15": 31500, "16": 32200}),
        (
            {**BIG, "disaggregation_mode": "prefill", "moe_a2a_backend": "deepep"},
            {"12": 32600, "15": 31500, "17": 32900},
        ),
        (
            {**BIG, "disaggregation_mode": "prefill", "enable_dp_attention": True, "dp_size": 8},
            {"12": 51000, "15": 31500, "17": 32200},
        ),
        ({**BIG, "disaggregation_mode": "decode"}, {"12": 32600, "15": 10200}),
        ({**BIG, "disaggregation_mode": "decode", "max_running_requests": 10000}, {"12": 32600, "15": 17600}),
        ({**BIG, "disaggregation_mode": "decode", "cuda_graph_max_bs": 5000}, {"12": 41500, "15": 19000}),
        (
            {
                **BIG,
                "disaggregation_mode": "decode",
                "max_running_requests": 5000,
                "speculative_algorithm": "EAGLE",
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4,
            },
            {"12": 36700, "14": 32600},
        ),
        ({**BIG, "speculative_algorithm": "NGRAM"}, {"12": 33200}),
        ({"speculative_algorithm": "NGRAM", "max_running_requests": 9}, {"12": 13900, "22": 13400}),
    ],
)
def test_what_a_release_reserves(flags: dict[str, Any], mib: dict[str, int]) -> None:
    assert _reserved(QWEN, {"moe_runner_backend": "triton", **flags}) == mib


def _usual(fraction: float) -> int:
    """Of what is left, an encoder of Muse Spark's size leaves 0.8 * 0.95."""
    return round((1 - fraction * 0.76) * MIB)


MUSE = checkpoint("MuseSparkForConditionalGeneration", "llama", vision_config={"num_hidden_layers": 99})


@pytest.mark.parametrize(
    ("flags", "mib"),
    [
        # 1536 + 1024 a 8 ranks, to three digits, + 8192 for the encoder, however large; what is captured
        # comes out of the rest
        ({}, 9892),
        ({"tp_size": 8}, 10792),
        ({"tp_size": 8, "cuda_graph_max_bs": 5000}, 10792),
        ({"language_only": True}, 1700),
        ({"enable_multimodal": False}, 1700),
        ({"disaggregation_mode": "prefill"}, 9892),
        ({"disaggregation_mode": "prefill", "disable_decode_cuda_graph": True}, 9892),
        ({"disaggregation_mode": "decode"}, 1700),
        ({"disaggregation_mode": "decode", "disable_prefill_cuda_graph": True}, 1700),
        ({"enable_unified_memory": True, "attention_backend": "triton"}, _usual(0.861)),
        # Decodes that share contexts are sized as usual: 512 + 1.5 * 8192 + 1024 + 2 * 512
        ({"tp_size": 8, "dcp_size": 2}, _usual(0.852)),
        # ... as is whatever runs without graphs, or a prefill that none was captured for
        ({"disable_cuda_graph": True}, _usual(0.871)),
        ({"tp_size": 8, "pp_size": 2}, _usual(0.841)),
        ({"chunked_prefill_size": -1}, _usual(0.743)),
        ({"chunked_prefill_size": 8192, "cuda_graph_max_bs_prefill": 4096}, _usual(0.862)),
        ({"enable_memory_saver": True}, _usual(0.861)),
    ],
)
def test_muse_sparks_cache_takes_what_its_start_leaves(flags: dict[str, Any], mib: int) -> None:
    asked = changed(Asked(), {"model_path": "models/m", **flags})
    found = resolve(asked, Checkpoint(MUSE), None, ROUND, NEWEST, {}).mem_fraction_static
    assert round((1 - found) * MIB) == mib


def test_one_pool_of_a_muse_spark_behind_windows_is_sized_after_capture() -> None:
    model = Checkpoint({**MUSE, "text_config": {"layer_types": ["sliding_attention", "full_attention"]}})
    unified = {"model_path": "models/m", "enable_unified_memory": True, "attention_backend": "triton"}
    asked = changed(Asked(), unified)
    assert resolve(asked, model, None, ROUND, NEWEST, {}).mem_fraction_static == 0.983 - 0.08192


def test_an_encoder_of_which_a_muse_spark_tells_nothing_is_large() -> None:
    told, none = ({**MUSE, "vision_config": section} for section in ({"num_hidden_layers": 50}, None))
    asked = Asked(model_path="models/m", disable_cuda_graph=True)
    found = [
        resolve(asked, Checkpoint(one), None, ROUND, NEWEST, {}).mem_fraction_static for one in (told, none)
    ]
    assert found[0] == found[1] == 0.871 * 0.76


@pytest.mark.parametrize(
    ("gpu", "requests", "known"),
    [
        (GpuModel("g", "sm90", 61440, None, ""), 400, True),
        (GpuModel("g", "sm90", 61439, None, ""), 400, False),
        (GpuModel("g", "sm100", 200_000, None, ""), 600, False),
        (GpuModel("g", "sm89", 100_000, None, ""), 400, False),
    ],
)
def test_qwen3_vls_graphs_grow_on_large_hoppers_alone(gpu: GpuModel, requests: int, known: bool) -> None:
    asked = Asked(model_path="m", max_running_requests=requests)
    usual = gpu_defaults(gpu.memory_mib, 1, RELEASES[9]).decode_graph_max_bs
    found = resolve(asked, Checkpoint(QWEN3_VL), None, gpu, RELEASES[9], {})
    assert found.decode_graphs[-1] == (requests if known else usual)


def test_deepep_reserves_for_breakable_prefill_graphs_alone() -> None:
    deepep = {"tp_size": 8, "moe_a2a_backend": "deepep", "chunked_prefill_size": 20032}
    full, breakable = (
        server(
            QWEN, "B200", **deepep, cuda_graph_bs_prefill=(8,), cuda_graph_backend_prefill=backend
        ).mem_fraction_static
        for backend in ("full", "breakable")
    )
    assert (full, breakable) == (0.811, 0.805), "1024 MiB of 183359"


def test_mla_reserves_for_its_prefill_graphs_at_once() -> None:
    assert _reserved(R1, {**BIG, "moe_runner_backend": "triton"}) == {"12": 34100, "15": 32600, "18": 34100}


def test_before_0_5_14_a_draft_had_memory_of_its_own() -> None:
    flags = {**BIG, "moe_runner_backend": "triton", "disable_radix_cache": True}
    draft = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "models/m"}
    apart = {**draft, "speculative_algorithm": "STANDALONE"}
    assert _reserved(QWEN, {**flags, **draft}) == {"12": 37300, "14": 33200}
    assert _reserved(QWEN, {**flags, **apart}) == {"12": 39400, "14": 33200}


@pytest.mark.parametrize(
    ("mib", "tp", "chunk", "graphs", "since_20"),
    [
        (20479, 8, 2048, 8, None),
        (20480, 3, 2048, 24, GpuDefaults(4096, 48)),
        (20480, 4, 2048, 80, GpuDefaults(4096, 160)),
        (35839, 1, 2048, 24, GpuDefaults(4096, 48)),
        (35840, 3, 4096, 32, None),
        (61439, 4, 4096, 160, None),
        (61440, 3, 8192, 256, None),
        (163839, 4, 8192, 512, None),
        (163840, 1, 16384, 512, None),
        (0, 8, 4096, 160, None),
    ],
)
def test_defaults_by_the_gpus_memory(
    mib: int, tp: int, chunk: int, graphs: int, since_20: GpuDefaults | None
) -> None:
    assert gpu_defaults(mib, tp, RELEASES[7]) == GpuDefaults(chunk, graphs)
    assert gpu_defaults(mib, tp, RELEASES[8]) == (since_20 or GpuDefaults(chunk, graphs))


@pytest.mark.parametrize(("mib", "fraction"), [(61440, 0.875), (61441, 0.833)])
def test_large_gpus_keep_ten_gib_free(mib: int, fraction: float) -> None:
    flags = Asked(model_path="m", chunked_prefill_size=4096, cuda_graph_max_bs=256)
    gpu = GpuModel("g", "sm90", mib, None, "")
    assert resolve(flags, Checkpoint(QWEN), None, gpu, NEWEST).mem_fraction_static == fraction


def test_without_a_gpu() -> None:
    found = [
        resolve(Asked(model_path="m"), Checkpoint(QWEN), None, CPU, one).mem_fraction_static
        for one in RELEASES
    ]
    assert changed_in(found) == {"12": 0.88, "20": 0.95}


def test_a_chunk_is_shared_by_the_attention_groups() -> None:
    dp = {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}
    assert server(QWEN, **dp).chunked_prefill_size == 2048
    assert server(QWEN, **dp, chunked_prefill_size=-1).chunked_prefill_size == -1
    assert server(QWEN, tp_size=8, attn_dp_size=8).chunked_prefill_size == 1024
    assert server(QWEN, tp_size=8, dp_size=4).chunked_prefill_size == 8192, "replicas share nothing"


def test_an_encoder_runs_in_what_is_left_free() -> None:
    plain, seeing = server(NEXT).mem_fraction_static, server(QWEN35)
    assert seeing.mem_fraction_static == plain * (0.95 * 1.0), "`depth` is not looked at"
    assert server(QWEN35, language_only=True).mem_fraction_static == plain
    assert server(LLAMA4).mem_fraction_static == server(QWEN).mem_fraction_static, "text alone"


@pytest.mark.parametrize(
    ("layers", "width", "factor"),
    [
        (24, 1024, 0.95),
        (12, 1024, 0.95 * 1.05),
        (48, 1024, 0.95 * 0.9),
        (100, 5000, 0.95 * 0.8),
        (0, 9, 0.95 * 1.05),
    ],
)
def test_a_larger_encoder_needs_more(layers: int, width: int, factor: float) -> None:
    hf = {**QWEN35, "vision_config": {"num_hidden_layers": layers, "hidden_size": width}}
    assert server(hf).mem_fraction_static == server(NEXT).mem_fraction_static * factor


def test_minimax_m3s_encoder_counts_as_the_usual_one() -> None:
    """Its class keeps what describes the encoder a dict, where SGLang finds no attribute."""
    vision = {"num_hidden_layers": 32, "hidden_size": 1280}
    small, large = (
        server({**QWEN35, "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "vision_config": v})
        for v in ({}, vision)
    )
    assert small.mem_fraction_static == large.mem_fraction_static


def test_a_server_that_only_decodes_has_no_encoder_since_0_5_17() -> None:
    def ratio(version: str) -> float:
        flags = {"disaggregation_mode": "decode", "version": version}
        return server(QWEN35, **flags).mem_fraction_static / server(NEXT, **flags).mem_fraction_static

    assert [round(ratio(version), 3) for version in ("0.5.16", "0.5.17")] == [0.95, 1.0]


@pytest.mark.parametrize(
    ("flags", "largest"),
    [
        ({"max_running_requests": 400}, {"12": 256, "20": 400}),
        ({"max_running_requests": 512}, {"12": 256, "20": 512}),
        ({"max_running_requests": 513}, {"12": 256}),
        ({"max_running_requests": 400, "cuda_graph_max_bs": 99}, {"12": 99}),
        ({"max_running_requests": 400, "enable_multimodal": False}, {"12": 256}),
    ],
)
def test_qwen3_vl_decodes_all_its_requests_in_graphs(flags: dict[str, Any], largest: dict[str, int]) -> None:
    found = [server(QWEN3_VL, H200, version, **flags).decode_graphs[-1] for version in VERSIONS]
    assert changed_in(found) == largest


def test_what_was_asked_for_is_kept() -> None:
    asked = server(QWEN35, mem_fraction_static=0.77, chunked_prefill_size=3000)
    assert (asked.mem_fraction_static, asked.chunked_prefill_size) == (0.77, 3000)
    assert "mem_fraction_static" not in asked.why


@pytest.mark.parametrize("member", ["num_hidden_layers", "hidden_size"])
@pytest.mark.parametrize("value", ["24", True, -1, 1.5, [], float("inf")])
def test_an_encoder_of_no_size(member: str, value: object) -> None:
    with pytest.raises(ConfigError, match=member):
        server({**QWEN35, "vision_config": {member: value}})
    with pytest.raises(ConfigError, match="vision_config"):
        server({**QWEN35, "vision_config": value})


@pytest.mark.parametrize("share", [-0.1, 0.0, 1.0, 88.0])
def test_a_share_of_the_memory_is_between_none_and_all(share: float) -> None:
    with pytest.raises(ConfigError, match="--mem-fraction-static"):
        server(QWEN, mem_fraction_static=share)
