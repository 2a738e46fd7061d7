"""MiniMax-M3.1 in nvfp4, as SGLang 0.5.23 was asked: what a server of it becomes, and which it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.errors import ConfigError
from runtime.server.shape import Server
from tests.oracle.compare import page, tally
from tests.oracle.ours import our_answer
from tests.oracle.published import published
from tests.oracle.record import MINIMAX_M3, read
from tests.server.asking import Checkpoint, server

M31 = Checkpoint(published()["MiniMaxAI/MiniMax-M3.1-NVFP4"].config)
TEXT = Checkpoint({**M31.hf, "architectures": ["MiniMaxM3SparseForCausalLM"]})
DRAFT = Checkpoint(published()["made-up/MiniMax-M3.1-DSpark"].config)
SMALL = {"tp_size": 8, "chunked_prefill_size": 1024, "cuda_graph_max_bs_decode": 64}
ROUTED = "flashinfer_trtllm_routed"


def _became(found: Server) -> tuple[object, ...]:
    backends = found.decode_attention_backend, found.moe_runner_backend, found.moe_a2a_backend
    return found.quantization, *backends, found.kv_cache_dtype, found.page_size, found.tunes


@pytest.mark.parametrize(
    ("gpu", "asked", "became"),
    [
        ("H200", {}, ("minimax_m3_nvfp4", "fa3", "marlin", "none", "fp8_e4m3", 128, False)),
        ("B200", {}, ("minimax_m3_nvfp4", "trtllm_mha", "deep_gemm", "megamoe", "fp8_e4m3", 128, True)),
        (
            "B200",
            {"moe_runner_backend": ROUTED},
            ("minimax_m3_nvfp4", "trtllm_mha", ROUTED, "none", "fp8_e4m3", 128, True),
        ),
        (
            "H200",
            {"kv_cache_dtype": "bfloat16"},
            ("minimax_m3_nvfp4", "fa3", "marlin", "none", "bfloat16", 128, False),
        ),
    ],
)
def test_what_a_server_of_it_becomes(gpu: str, asked: dict[str, Any], became: tuple[object, ...]) -> None:
    assert _became(server(M31, gpu=gpu, **SMALL, **asked)) == became


def test_a_release_before_takes_it_for_plain_mxfp8() -> None:
    found = server(M31, version=22, **SMALL)
    assert (found.quantization, found.moe_a2a_backend, found.page_size) == ("mxfp8", "none", 128)
    assert server(M31, quantization="mxfp8", **SMALL).model_quantization == "mxfp8"


@pytest.mark.parametrize(
    ("gpu", "asked", "said"),
    [
        ("B200", {"page_size": 64}, "has pages of 128"),
        ("H200", {"page_size": 64}, "has pages of 128"),
        ("B200", {"kv_cache_dtype": "bfloat16"}, "has fp8_e4m3 on sm100"),
        ("B200", {"moe_a2a_backend": "deepep"}, "has megamoe on sm100"),
        ("B200", {"speculative_algorithm": "EAGLE3"}, "drafts by DSPARK or DFLASH"),
        ("RTX PRO 6000", {}, "on sm120"),
    ],
)
def test_what_it_refuses(gpu: str, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        server(M31, gpu=gpu, **SMALL, **asked)


@pytest.mark.parametrize(
    ("model", "gpu", "algorithm", "asked", "said"),
    [
        (TEXT, "B200", "DSPARK", {}, "needs MiniMaxM3SparseForConditionalGeneration"),
        (M31, "H200", "DSPARK", {}, "needs a Blackwell GPU"),
        (M31, "B200", "DSPARK", {"pp_size": 2}, "has no pipeline stages"),
        (M31, "B200", "DFLASH", {"disaggregation_mode": "prefill"}, "does not prefill and decode apart"),
    ],
)
def test_where_it_drafts(
    model: Checkpoint, gpu: str, algorithm: str, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        server(model, gpu=gpu, draft=DRAFT, speculative_algorithm=algorithm, **SMALL, **asked)


@pytest.mark.parametrize(("algorithm", "tokens"), [("DSPARK", 7), ("DFLASH", 16)])
def test_a_draft_looks_ahead_as_far_as_its_checkpoint_says(algorithm: str, tokens: int) -> None:
    """dspark_block_size is DSpark's own."""
    found = server(M31, draft=DRAFT, speculative_algorithm=algorithm, **SMALL)
    assert found.speculative is not None and found.speculative.draft_tokens == tokens
    assert found.draft is not None
    assert ("PreTrainedConfig" in found.draft.key_parts) is (algorithm == "DSPARK")


def test_servers_are_what_sglang_was_asked() -> None:
    """Of MiniMax-M3, in mxfp8 and 3.1 in nvfp4, on five GPUs, and of 3.1 with drafts."""
    found = tally((command, our_answer(command), theirs) for command, theirs in read(MINIMAX_M3))
    assert found.both_answer > 200 and found.both_refuse > 100
    assert not any(found.apart.values()), "\n".join(page(found))
