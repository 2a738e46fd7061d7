"""What a rank holds of published checkpoints, beside what SGLang's own model class makes for it."""

from __future__ import annotations

import json

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel
from runtime.models.encoder import EncoderWeights
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizing import kv_bytes_per_token
from tests.memory.checkpoints import DATA, checkpoints
from tests.oracle.held import sizes_of

META = torch.device("meta")
HELD = json.loads((DATA / "sglang_weights.json").read_text())
CONFIGS = {one.name: one.config for one in checkpoints() if one.name in HELD}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name in CONFIGS for place in HELD[name]])
def test_a_rank_holds_as_many_bytes_as_sglangs_own_model(name: str, place: str) -> None:
    tp, ep, dp = sizes_of(place)
    layout = ParallelConfig(tp=tp, ep=ep, dp=dp, enable_dp_attention=dp > 1)
    model, comm = Checkpoint(CONFIGS[name]).model_config(), VirtualCommunicator(layout, tp - 1)
    parts: list[torch.nn.Module] = [Decoder(model, RuntimeConfig(), comm, META, range(model.num_layers))]
    tower = model.encoder.weights if model.encoder else ()
    parts.append(EncoderWeights(tower, comm, torch.bfloat16, META))
    assert [sum(one.nbytes for one in part.parameters()) for part in parts] == HELD[name][place]


# Its parameters, by longcat_flash_nextn.py: one layer of two, without experts, and tables of its own.
@pytest.mark.parametrize(("tp", "held"), [(1, 4006412288), (2, 2091712512), (8, 655687680)])
def test_a_rank_of_longcats_draft_holds_as_many_bytes_as_sglangs_own(tp: int, held: int) -> None:
    model = Checkpoint(CONFIGS["a/longcat-flash-chat-stretched-by-one"]).model_config()
    comm = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
    draft = DraftModel(model, RuntimeConfig(), comm, META)
    assert sum(one.nbytes for one in draft.parameters()) == held


# One of its layers in blocks of fp8, as SGLang makes it for an H200, without the scales of the cache.
@pytest.mark.parametrize(
    ("tp", "ep", "held"), [(2, 1, 11625715584), (8, 1, 2940108288), (16, 16, 1492507072)]
)
def test_a_rank_of_longcat_in_fp8_holds_as_many_bytes(tp: int, ep: int, held: int) -> None:
    section = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    told = {**CONFIGS["a/longcat-flash-chat-stretched-by-one"], "quantization_config": section}
    model = Checkpoint({**told, "num_layers": 1}).model_config()
    comm = VirtualCommunicator(ParallelConfig(tp=tp, ep=ep), tp - 1)
    rank = Decoder(model, RuntimeConfig(served_by="deep_gemm"), comm, META, range(model.num_layers))
    assert not model.obstacles and sum(one.nbytes for one in rank.parameters()) == held


def test_each_half_of_a_longcat_layer_keeps_latents() -> None:
    """num_attention_layers of srt/configs/model_config.py; a draft's layer is one."""
    model = Checkpoint(CONFIGS["a/longcat-flash-chat-stretched-by-one"]).model_config()
    layers, each = range(model.num_layers), (512 + 64) * 2
    assert kv_bytes_per_token(model, ParallelConfig(), "bfloat16", layers) == 56 * each
    assert kv_bytes_per_token(model, ParallelConfig(), "bfloat16", layers, draft_layers=1) == 57 * each


def test_every_checkpoint_that_is_recorded_is_compared() -> None:
    assert HELD.keys() - CONFIGS.keys() == {"source"}


def test_afmoes_layers_behind_windows_keep_all_tokens() -> None:
    """It is none of is_hybrid_swa_model of srt/configs/model_config.py."""
    model = Checkpoint(CONFIGS["arcee-ai/Trinity-Mini"]).model_config()
    each = 2 * 4 * 128 * 2
    assert kv_bytes_per_token(model, ParallelConfig(), "bfloat16", range(32)) == 32 * each
    assert kv_bytes_per_token(model, ParallelConfig(tp=8), "bfloat16", range(32)) == 32 * each // 4
