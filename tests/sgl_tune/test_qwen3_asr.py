"""Qwen3-ASR: what its file says of its text, in which formats, and which of its servers end."""

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

ASR = json.loads(PUBLISHED.read_text())["Qwen/Qwen3-ASR-1.7B"]
META = torch.device("meta")
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def _told(text: dict[str, Any] | None = None, **thinker: Any) -> dict[str, Any]:
    own = ASR["thinker_config"]
    section = {**own["text_config"], **(text or {})}
    kept = {name: value for name, value in section.items() if value != "missing"}
    return {**ASR, "thinker_config": {**own, "text_config": kept, **thinker}}


def _held(model: ModelConfig, tp: int) -> list[int]:
    comm = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
    assert model.encoder is not None
    text = Decoder(model, RuntimeConfig(), comm, META, range(model.num_layers))
    parts = text, EncoderWeights(model.encoder.weights, comm, torch.bfloat16, META)
    return [sum(one.nbytes for one in part.parameters()) for part in parts]


# As SGLang 0.5.23's own class was asked.
@pytest.mark.parametrize(
    ("told", "tp", "held"),
    [
        (_told({"tie_word_embeddings": False}), 1, [4063479808, 634955008]),
        (
            {**_told({"tie_word_embeddings": "missing"}), "tie_word_embeddings": True},
            1,
            [4063479808, 634955008],
        ),
        (_told(audio_config=None), 1, [3441149952, 1299789568]),
        ({**ASR, "quantization_config": BLOCKS}, 1, [2032207872, 634955008]),
        ({**ASR, "quantization_config": BLOCKS}, 2, [1016227840, 332793088]),
        (_told({"quantization_config": BLOCKS}), 1, [2032207872, 634955008]),
    ],
)
def test_a_rank_holds_as_many_bytes_as_sglangs_own(told: dict[str, Any], tp: int, held: list[int]) -> None:
    assert _held(model_config(told), tp) == held


@pytest.mark.parametrize(
    "listed",
    [
        "thinker.model.layers.0.mlp.down_proj",
        "language_model.model.layers.0.mlp.down_proj",
        "model.layers.0.mlp.down_proj",
    ],
)
def test_a_list_that_tells_its_text_apart_is_named(listed: str) -> None:
    (said,) = model_config({**ASR, "quantization_config": {**BLOCKS, "ignored_layers": [listed]}}).obstacles
    assert "model.layers.0.mlp.down_proj is told apart: SGLang's class has another name for it" in said


def test_a_list_of_its_ear_and_its_head_means_nothing_of_its_text() -> None:
    listed = ["thinker.audio_tower.layers.0.fc1", "thinker.lm_head"]
    model = model_config({**ASR, "quantization_config": {**BLOCKS, "ignored_layers": listed}})
    assert not model.obstacles and _held(model, 1) == [2032207872, 634955008]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (_told(quantization_config=BLOCKS), "thinker_config: quantization_config: SGLang reads none there"),
        (_told({"model_type": "llama"}), "SGLang has qwen3_asr with qwen3 alone"),
        (_told(text_config=None), "qwen3_asr without a text_config"),
        ({**ASR, "thinker_config": None}, "qwen3_asr without a thinker_config"),
        (_told(audio_config={"d_model": 0}), "audio_config: d_model is 0"),
        (
            {**ASR, "architectures": ["Qwen3ASRForTokenClassification"]},
            "architectures names Qwen3ASRForToken",
        ),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(told)


@pytest.mark.parametrize(
    ("flags", "audio", "why"),
    [
        ({"tp": 8}, {}, None),
        ({"pp": 2}, {}, "no pipeline stages"),
        ({"tp": 4}, {"encoder_attention_heads": 14, "d_model": 896}, "14 cannot be split over 4 ranks"),
    ],
)
def test_which_servers_end(
    flags: dict[str, Any], audio: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    ear = {**ASR["thinker_config"]["audio_config"], **audio}
    (tmp_path / "config.json").write_text(json.dumps(_told(audio_config=ear)))
    asked = ServerFlags(model_path=str(tmp_path), sglang_version="0.5.23", arch="sm90", **flags)
    found = never_starts(resolve_deployment(asked, environ={}))
    assert (found is None) if why is None else (found is not None and why in found)
