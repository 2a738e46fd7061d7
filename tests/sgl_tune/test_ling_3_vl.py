"""Ling 3 VL: its text is Ling 3's, what its files say otherwise, and which of its servers end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.encoder import EncoderWeights
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from runtime.start.sglang_buffers import second_angles
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from tests.sgl_tune.ends import PUBLISHED

_FILES = json.loads(PUBLISHED.read_text())
VL, BLOCKS = _FILES["inclusionAI/Ling-3.0-flash-VL"], _FILES["a/ling-3.0-flash-vl-in-fp8-blocks"]
_LISTS = "modules_to_not_convert"
META = torch.device("meta")


def _text(**told: Any) -> dict[str, Any]:
    return {**VL, "text_config": {**VL["text_config"], **told}}


def _sees(**told: Any) -> dict[str, Any]:
    return {**VL, "vision_config": {**VL["vision_config"], **told}}


def _listing(*names: str) -> dict[str, Any]:
    return {**BLOCKS, "quantization_config": {**BLOCKS["quantization_config"], _LISTS: [*names]}}


def test_its_text_is_ling_3_whose_angles_begin_below_0() -> None:
    alone = {**VL["text_config"], "architectures": ["BailingMoeV3ForCausalLM"], "torch_dtype": "bfloat16"}
    seeing, text = model_config(VL), model_config(alone)
    found, plain = seeing.attention["full"], text.attention["full"]
    assert found.rope is not None and plain.rope is not None
    assert found.rope == replace(plain.rope, max_position=2 * plain.rope.max_position)
    assert replace(seeing, attention=text.attention, encoder=None) == text and not seeing.obstacles


def test_a_table_of_plain_angles_stays_beside_it_where_a_stage_attends() -> None:
    model, runtime = model_config(VL), RuntimeConfig(positions=999999)
    (table,) = second_angles(model, runtime, range(6), META)
    assert table.shape == (131072, 64) and second_angles(model, runtime, range(5), META) == []
    assert second_angles(replace(model, encoder=None), runtime, range(6), META) == []


# As SGLang 0.5.23's own class was asked.
@pytest.mark.parametrize(
    ("told", "tp", "is_whole", "held"),
    [
        ({"disable_merger_proj": False}, 1, False, 946109920),
        ({"disable_merger_proj": False}, 2, False, 492063088),
        ({"deepstack_visual_indexes": [8, 16]}, 1, False, 868534752),
        ({"deepstack_visual_indexes": [8, 16], "disable_merger_proj": None}, 2, False, 572341616),
        ({}, 8, True, 868497888),
    ],
)
def test_its_tower_has_as_many_bytes_as_sglangs_own(
    told: dict[str, Any], tp: int, is_whole: bool, held: int
) -> None:
    encoder = model_config(_sees(**told)).encoder
    assert encoder is not None
    comm = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
    weights = (encoder.whole() if is_whole else encoder).weights
    assert sum(one.nbytes for one in EncoderWeights(weights, comm, torch.bfloat16, META).parameters()) == held


def test_a_tower_of_which_nothing_is_told_is_qwens() -> None:
    encoder = model_config({**VL, "vision_config": None}).encoder
    assert encoder is not None
    comm = VirtualCommunicator(ParallelConfig(tp=8), 7)
    held = EncoderWeights(encoder.weights, comm, torch.bfloat16, META).parameters()
    assert sum(one.nbytes for one in held) == 148315676


def test_it_is_all_on_the_first_stage() -> None:
    encoder = model_config(VL).encoder
    assert encoder is not None and all(one.on_first_stage_alone for one in encoder.weights)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (_text(architectures=["BailingMoeV3VLForConditionalGeneration"]), "SGLang then keeps shared experts"),
        (_text(rope_scaling={"type": "default", "factor": 2.0}), "factor is 2.0: SGLang stretches by it"),
        (_text(rope_scaling={"type": "yarn", "factor": 2.0}), "rope_type is 'yarn'"),
        (_text(multi_gate=True), "multi_gate is True"),
        (_text(video_rope=False), "video_rope: SGLang has one in all of Ling 3 VL"),
        (_listing("model.layers.0.mlp.down_proj"), f"{_LISTS}: this runtime has all matrices in fp8 alike"),
        (_listing("linear_proj", "lm_head"), "no list means visual.blocks.0.attn.qkv_proj"),
        (_listing(), "no list means visual.blocks.0.attn.qkv_proj"),
    ],
)
def test_what_is_not_computed_is_named(told: dict[str, Any], said: str) -> None:
    assert any(said in one for one in model_config(told).obstacles)


def test_a_list_of_its_tower_is_known_by_either_name() -> None:
    for listed in (["visual"], ["model.visual", "model.linear_proj"]):
        assert not model_config(_listing(*listed)).obstacles


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({**VL, "mrope_section": [16, 24, 24]}, "SGLang ends, as its heads turn 64 values"),
        ({**VL, "mrope_section": 3}, "mrope_section is 3: SGLang has three of them"),
        ({**VL, "text_config": None}, "bailing_moe_v3_vl without a text_config"),
        ({**VL, "architectures": ["BailingMM2NativeForConditionalGeneration"]}, "names Bailing"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Checkpoint(told).model_config()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tp": 8}, None),
        ({"pp": 2}, "--pp beside images: each stage keeps a place for the tokens of all layers"),
        ({"sglang_version": "0.5.22"}, "releases before 0.5.23: there its routers are bfloat16"),
    ],
)
def test_which_servers_are_named(flags: dict[str, Any], said: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(VL))
    asked = ServerFlags(
        **{"model_path": str(tmp_path), "sglang_version": "0.5.23", "arch": "sm90", "tp": 4, **flags},
        moe_runner_backend="flashinfer_cutlass",
    )
    shape = resolve_deployment(asked, environ={}).shape
    assert (shape.model is not None) if said is None else said in str(shape.unknown)
