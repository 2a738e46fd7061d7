"""Gemma 3n: what no file of it says, and what its layers hold beside those of other families."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from runtime.forward.comm import VirtualCommunicator
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.memory.checkpoints import DATA
from tests.memory.quantized import SECTIONS
from tests.runtime.config_files import config_file
from tests.runtime.families import config_json, make_reference, prompts, reference_logits
from tests.runtime.generation import Generation, make_runtime
from tests.sgl_tune.ends import check_server

_FILE = config_file("gemma3n_text")
_WHOLE = json.loads((DATA / "published_families.json").read_text())["google/gemma-3n-E4B-it"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"num_attention_heads": 6}, "hidden_size is 2048, no multiple of 6 heads"),
        ({"intermediate_size": [64, 64]}, "intermediate_size has 2 numbers for 35 layers"),
        ({"intermediate_size": [64.0] * 35}, "intermediate_size is 64.0"),
        ({"activation_sparsity_pattern": 0.95}, "activation_sparsity_pattern is 0.95: a list of 35"),
        ({"activation_sparsity_pattern": [1.0] * 35}, "at least 0 and below 1"),
        ({"altup_active_idx": 4}, "altup_active_idx is 4 of 4"),
        ({"num_kv_shared_layers": 35}, "a layer of each kind is needed before them"),
        ({"rope_parameters": {"full_attention": 7}}, "full_attention is no object"),
        ({"final_logit_softcapping": None}, "final_logit_softcapping is None"),
        ({"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input is 0"),
    ],
)
def test_what_no_gemma_3n_says(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_FILE, **told})


def test_layers_are_of_one_kind_where_as_many_of_their_gates_are_closed_and_they_read_the_same_keys() -> None:
    model = model_config(_FILE)
    assert [one.closed for one in model.caps] == [0.95] * 10 + [0.0] * 25
    assert model.key_layers == (*range(20), *(19 if layer % 5 == 4 else 18 for layer in range(20, 35)))


# Parameters of timm's own mobilenetv5_300m_enc, 1.0.16 and 1.0.25, and of the rest by SGLang's own classes.
@pytest.mark.parametrize(("release", "tower"), [((0, 5, 22), 294126848), ((0, 5, 23), 294126912)])
def test_it_sees_by_timms_one_tower_of_the_version_that_a_release_pins(
    release: tuple[int, int, int], tower: int
) -> None:
    encoder = model_config(_WHOLE).encoder
    assert encoder is not None and encoder.hears
    found = encoder.of_release(release).weights
    counts = {one.name: math.prod(one.shape) * one.layers for one in found}
    assert sum(count for name, count in counts.items() if name.startswith("vision_tower.")) == tower
    assert sum(counts.values()) - tower == 689154592
    assert all(one.split is None for one in found if one.name.startswith("vision_tower."))


def test_towers_that_a_file_leaves_out_are_those_of_their_config_classes() -> None:
    alone = {name: one for name, one in _WHOLE.items() if name not in ("vision_config", "audio_config")}
    assert model_config(alone).encoder == model_config(_WHOLE).encoder


@pytest.mark.parametrize(
    ("section", "told", "said"),
    [
        ("vision_config", {"architecture": "resnet50"}, "architecture is 'resnet50'"),
        ("vision_config", {"hidden_size": 1024}, "hidden_size is 1024: here is 2048"),
        ("vision_config", {"model_args": {"depth": 3}}, "model_args is"),
        ("vision_config", {"torch_dtype": "float32"}, "torch_dtype is 'float32': here is 'bfloat16'"),
        ("audio_config", {"sscp_conv_channel_size": 128}, "two of each are needed"),
        ("audio_config", {"sscp_conv_kernel_size": [[3, 3], [3, 0]]}, "two whole numbers are needed"),
        ("audio_config", {"conf_num_attention_heads": 7}, "hidden_size is 1536, no multiple of 7 heads"),
    ],
)
def test_other_towers_are_named(section: str, told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_WHOLE, section: {**_WHOLE[section], **told}})


def test_a_head_apart_is_named_wherever_a_file_tells_of_it() -> None:
    untied = {"tie_word_embeddings": False}
    for told in ({**_WHOLE, **untied}, {**_WHOLE, "text_config": {**_WHOLE["text_config"], **untied}}):
        assert "tie_word_embeddings is False" in model_config(told).obstacles[0]


def test_the_text_of_a_whole_one_answers_as_the_text_alone(tmp_path: Path) -> None:
    model, one = make_reference("gemma3n_text"), ParallelConfig()
    within = {f"model.language_{name}": tensor for name, tensor in model.state_dict().items()}
    kept = {name: tensor.clone() for name, tensor in within.items() if "lm_head" not in name}
    save_file(kept, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**_WHOLE, "text_config": config_json(model)}))
    texts = prompts(21, 13)
    rows = Generation(tmp_path, one, make_runtime(), VirtualCommunicator(one)).run(texts, 8)
    for number, text in enumerate(texts):
        torch.testing.assert_close(
            torch.stack(rows[number]), reference_logits(model, text)[-9:], atol=1e-4, rtol=0
        )


_STREAMS = "lowers coefficients of its streams, and torch none that are quantized"
_EARS = [f"re:.*{one}.*" for one in ("embed_audio", "embed_vision", "audio_tower", "vision_tower")]


@pytest.mark.parametrize(
    ("of", "listed", "ends"),
    [
        ("int4", ["re:.*altup.*", "re:.*laurel.*", *_EARS], None),
        ("int4", _EARS, _STREAMS),
        ("fp8 a row", ["re:.*altup.*", "re:.*laurel.*"], None),
    ],
)
def test_what_of_quantized_ones_is_read(of: str, listed: list[str], ends: str | None, tmp_path: Path) -> None:
    """What hears, and is quantized in SGLang's class alone, is read as long as it has as many values."""
    section = {**SECTIONS[of], "ignore": ["lm_head", *listed]}
    config, words = {**_WHOLE, "quantization_config": section}, "--disable-prefill-cuda-graph"
    assert not model_config(config).obstacles
    check_server(tmp_path, config, words, ends, "quantized coefficients" if ends else "")
