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
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizing import kv_bytes_per_token
from tests.memory.checkpoints import DATA, checkpoints, published_config
from tests.memory.rank_bytes import bytes_by_kind, bytes_of
from tests.oracle.held import sizes_of
from tests.sweeps import taken

META = torch.device("meta")
HELD = json.loads((DATA / "sglang_weights.json").read_text())
PUBLISHED = {one.name: one for one in checkpoints()}
CONFIGS = {one.name: one.config for one in checkpoints() if one.name in HELD}


@pytest.mark.parametrize(("name", "place"), taken((name, place) for name in CONFIGS for place in HELD[name]))
def test_a_rank_holds_as_many_bytes_as_sglangs_own_model(name: str, place: str) -> None:
    tp, ep, dp = sizes_of(place)
    layout = ParallelConfig(tp=tp, ep=ep, dp=dp, enable_dp_attention=dp > 1)
    model, comm = Checkpoint(CONFIGS[name]).model_config(), VirtualCommunicator(layout, tp - 1)
    tower = EncoderWeights(model.encoder.weights if model.encoder else (), comm, torch.bfloat16, META)
    if place == next(iter(HELD[name])):
        held = bytes_of(Decoder(model, RuntimeConfig(), comm, META, range(model.num_layers)))
    else:
        held = bytes_by_kind(model, RuntimeConfig(), comm)
    assert [held, bytes_of(tower)] == HELD[name][place]


# A rank of DP attention, by SGLang's classes told --enable-dp-lm-head.
@pytest.mark.parametrize(
    ("name", "tp", "dp", "held"),
    [
        ("Qwen/Qwen3-30B-A3B", 8, 8, 10329944064),
        ("Qwen/Qwen3-30B-A3B", 8, 2, 8037494784),
        ("Qwen/Qwen3-32B", 2, 2, 40358422528),
    ],
)
def test_a_group_of_ranks_holds_a_head_of_its_own_where_it_is_asked_for(
    name: str, tp: int, dp: int, held: int
) -> None:
    config = published_config(name)
    layout = ParallelConfig(tp=tp, dp=dp, enable_dp_attention=True)
    model, comm = Checkpoint(config).model_config(), VirtualCommunicator(layout, tp - 1)
    rank = Decoder(model, RuntimeConfig(head_over="a group"), comm, META, range(model.num_layers))
    assert sum(one.nbytes for one in rank.parameters()) == held


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


def _model(name: str) -> ModelConfig:
    return Checkpoint(PUBLISHED[name].config, PUBLISHED[name].modelopt_file or {}).model_config()


# Its parameters at --moe-dense-tp-size 1, the last of eight ranks: layers without experts are whole.
@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("deepseek-ai/DeepSeek-R1", {(1, 8): 96983473632, (1, 2): 87724068576, (8, 8): 96983473632}),
        ("zai-org/GLM-4.5-Air", {(1, 8): 36903721472, (1, 2): 28447015424, (8, 8): 36903721472}),
    ],
)
def test_a_rank_has_mlps_whole_where_they_are_not_split(name: str, held: dict[tuple[int, int], int]) -> None:
    model = _model(name)
    for (ep, dp), size in held.items():
        comm = VirtualCommunicator(ParallelConfig(tp=8, ep=ep, dp=dp, enable_dp_attention=True), 7)
        runtime = RuntimeConfig(whole_dense_mlps=True)
        rank = Decoder(model, runtime, comm, META, range(model.num_layers))
        assert sum(one.nbytes for one in rank.parameters()) == size


# Its parameters on a B200 at tp, ep and attention-DP of eight, by flashinfer_cutlass; and without the gather.
@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("nvidia/DeepSeek-R1-0528-NVFP4", (61327256664, 60070046808)),
        ("nvidia/GLM-4.6-NVFP4", (36564746640, 35531264400)),
    ],
)
def test_a_rank_has_shared_experts_whole_where_rows_are_gathered_in_nvfp4(
    name: str, held: tuple[int, int]
) -> None:
    model = _model(name)
    comm = VirtualCommunicator(ParallelConfig(tp=8, ep=8, dp=8, enable_dp_attention=True), 7)
    for gathers, size in zip((True, False), held, strict=True):
        runtime = RuntimeConfig(served_by="flashinfer_cutlass", sm_major=10, gathers_nvfp4=gathers)
        rank = Decoder(model, runtime, comm, META, range(model.num_layers))
        assert sum(one.nbytes for one in rank.parameters()) == size


def test_every_checkpoint_that_is_recorded_is_compared() -> None:
    assert HELD.keys() - CONFIGS.keys() == {"source"}


def test_afmoes_layers_behind_windows_keep_all_tokens() -> None:
    """It is none of is_hybrid_swa_model of srt/configs/model_config.py."""
    model = Checkpoint(CONFIGS["arcee-ai/Trinity-Mini"]).model_config()
    each = 2 * 4 * 128 * 2
    assert kv_bytes_per_token(model, ParallelConfig(), "bfloat16", range(32)) == 32 * each
    assert kv_bytes_per_token(model, ParallelConfig(tp=8), "bfloat16", range(32)) == 32 * each // 4
