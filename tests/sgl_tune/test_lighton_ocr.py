"""LightOnOCR: what its file says in either of its names, and which of its servers end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.encoder import EncoderWeights
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

LIGHTON = json.loads(PUBLISHED.read_text())["lightonai/LightOnOCR-1B-1025"]
META = torch.device("meta")
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
OWN = {"model_type": "lighton_ocr"}
_PIXTRAL = {"model_type": "pixtral"}
_TEXT, _TOWER = 1192099840, 819195904


def _told(*left_out: str, text: Any = None, vision: Any = None, **whole: Any) -> dict[str, Any]:
    sections = {
        "text_config": {**LIGHTON["text_config"], **(text or {})},
        "vision_config": {**LIGHTON["vision_config"], **(vision or {})},
    }
    told = {**LIGHTON, **sections, **whole}
    return {name: value for name, value in told.items() if name not in left_out}


def _held(model: ModelConfig, tp: int = 1) -> list[int]:
    comm = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
    assert model.encoder is not None
    text = Decoder(model, RuntimeConfig(), comm, META, range(model.num_layers))
    parts = text, EncoderWeights(model.encoder.weights, comm, torch.bfloat16, META)
    return [sum(one.nbytes for one in part.parameters()) for part in parts]


# As SGLang 0.5.23's own class was asked.
@pytest.mark.parametrize(
    ("told", "held"),
    [
        (_told(**OWN), [_TEXT, _TOWER]),
        (_told(text={"tie_word_embeddings": False}, tie_word_embeddings=True, **OWN), [1503264768, _TOWER]),
        (_told(tie_word_embeddings=False), [_TEXT, _TOWER]),
        (_told("multimodal_projector_bias"), [_TEXT, _TOWER]),
        (_told(multimodal_projector_bias=True), [_TEXT, 819200000]),
        (_told(vision={"adapter_bias": True}), [_TEXT, 819200000]),
        (_told(multimodal_projector_bias=None, **OWN), [_TEXT, _TOWER]),
        (_told(spatial_merge_size=3), [_TEXT, 829681664]),
        (_told(vision={"spatial_merge_size": 1}, **OWN), [_TEXT, 812904448]),
        (_told("spatial_merge_size", **OWN), [_TEXT, _TOWER]),
        (_told("vision_config"), [_TEXT, _TOWER]),
        (_told("vision_config", **OWN), [_TEXT, _TOWER]),
        (_told(vision_config=_PIXTRAL), [_TEXT, 819564544]),
        (_told(vision_config=_PIXTRAL, **OWN), [_TEXT, 819564544]),
        (_told(quantization_config=BLOCKS), [751805440, _TOWER]),
        (_told(text={"quantization_config": BLOCKS}), [751805440, _TOWER]),
    ],
)
def test_a_rank_holds_as_many_bytes_as_sglangs_own(told: dict[str, Any], held: list[int]) -> None:
    assert _held(model_config(told)) == held


def test_its_two_names_are_one_model() -> None:
    assert model_config(_told(**OWN)) == model_config(_told())


@pytest.mark.parametrize(
    "listed", ["model.layers.0.mlp.down_proj", "model.language_model.layers.0.mlp.down_proj"]
)
def test_a_list_that_tells_its_text_apart_is_named(listed: str) -> None:
    section = {**BLOCKS, "ignored_layers": [listed]}
    (said,) = model_config(_told(quantization_config=section)).obstacles
    assert "model.layers.0.mlp.down_proj is told apart: SGLang's class has another name for it" in said


def test_a_list_of_its_tower_means_nothing_of_its_text() -> None:
    section = {**BLOCKS, "ignored_layers": ["model.vision_encoder", "model.vision_projection"]}
    model = model_config(_told(quantization_config=section))
    assert not model.obstacles and _held(model) == [751805440, _TOWER]


_BARE = {name: value for name, value in LIGHTON["text_config"].items() if name != "model_type"}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (_told("multimodal_projector_bias", **OWN), "multimodal_projector_bias is missing"),
        (_told(multimodal_projector_bias=True, **OWN), "multimodal_projector_bias is not false"),
        (_told(vision={"adapter_bias": True}, **OWN), "multimodal_projector_bias is not false"),
        (_told(multimodal_projector_bias=None), "multimodal_projector_bias is null"),
        (_told(spatial_merge_size=None), "spatial_merge_size is None"),
        (_told(text={"model_type": "llama"}), "SGLang has mistral3 with qwen3 alone"),
        (_told(text_config=_BARE), "model_type is 'mistral': SGLang has mistral3 with qwen3 alone"),
        (_told("text_config", **OWN), "lighton_ocr without a text_config"),
        (
            _told(architectures=["LightOnOcrForConditionalGeneration"], **OWN),
            "architectures names LightOnOcr",
        ),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(told)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"tp": 8}, None),
        ({"sglang_version": "0.5.14"}, None),
        ({"sglang_version": "0.5.13"}, "does not find the rope_theta of its tower"),
        ({"pp": 2}, "no pipeline stages"),
    ],
)
@pytest.mark.parametrize("whole", [{}, OWN])
def test_which_servers_end(
    flags: dict[str, Any], why: str | None, whole: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_told(**whole)))
    asked = {"model_path": str(tmp_path), "sglang_version": "0.5.23", "arch": "sm90", **flags}
    found = never_starts(resolve_deployment(ServerFlags(**asked), environ={}))
    assert (found is None) if why is None else (found is not None and why in found)
