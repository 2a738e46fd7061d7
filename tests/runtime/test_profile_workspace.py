"""The memory that tuning a CUTLASS MoE takes and keeps, in a prediction that tunes nothing."""

import torch

from runtime.forward.logits_processor import autotune_dummy_run_mode
from runtime.moe.flashinfer_cutlass import FlashInferCutlassBackend, ProfiledShape, cutlass_moe
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, Vocabulary
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import ParallelConfig, rank_layout
from runtime.server.units import MIB
from tests.runtime.configs import runtime_config

GLM = ProfiledShape(experts=32, hidden=6144, intermediate=2048, top_k=8, weight_bytes=2, output_bytes=2)


def _meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _backend() -> FlashInferCutlassBackend:
    sizes = {"hidden_size": 6144, "intermediate_size": 12288, "max_position": 202752}
    experts = MoEConfig(num_experts=256, top_k=8, intermediate_size=2048)
    model = ModelConfig("glm_moe_dsa", vocabulary=Vocabulary(154880), moe=experts, **sizes)
    runtime = runtime_config(moe_runner_backend="flashinfer_cutlass", prefill_tokens=8192)
    return FlashInferCutlassBackend(model, runtime, rank_layout(ParallelConfig(tp=8, ep=8), 0))


def _layer(tokens: int) -> tuple[torch.Tensor, TopK, ExpertWeights]:
    topk = TopK(_meta(tokens, 8, dtype=torch.int32), _meta(tokens, 8), _meta(tokens, 256))
    return _meta(tokens, 6144), topk, ExpertWeights(_meta(32, 4096, 6144), _meta(32, 6144, 2048), 256)


def test_what_is_kept_and_what_a_call_takes_is_what_one_h200_measured() -> None:
    """4116 MiB above weights and inputs at 16384 tokens, tuned up to 8192."""
    x, topk, weights = _layer(16384)
    call = sum(cutlass_moe.meanwhile(x, topk, weights))
    scores = 32 * 16384 * 4
    assert round((GLM.bytes(2, 8192) + call + scores) / MIB) == 4116


def test_a_prediction_keeps_the_last_bucket_of_the_second_product() -> None:
    backend = _backend()
    with autotune_dummy_run_mode():
        backend.forward(*_layer(16384))
    assert backend._held is not None and backend._held.nbytes == GLM.bytes(2, 8192)


def test_one_layer_tunes_for_all() -> None:
    backend = _backend()
    with autotune_dummy_run_mode():
        backend.forward(*_layer(16384))
        held = backend._held
        backend.forward(*_layer(2048))
    assert backend._held is held
