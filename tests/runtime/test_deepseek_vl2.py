"""DeepSeek-VL2: three language models by one file's kind, and a tower of SGLang's one size."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.server.checkpoint import Checkpoint
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.memory.checkpoints import DATA
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime
from tests.runtime.random_models import draw

_FILES = json.loads((DATA / "published_families.json").read_text())
_LARGE, _SMALL, _TINY = (_FILES[f"deepseek-ai/deepseek-vl2{size}"] for size in ("", "-small", "-tiny"))
_STEPS, _LENGTHS = 8, (21, 13)
_SIGLIP = 428225600  # by timm 1.0.31, and by transformers
_OF_TINY = {"use_mla": False, "topk_method": "greedy", "num_key_value_heads": 2}


def _told(file: Mapping[str, Any], section: Mapping[str, Any], **whole: Any) -> dict[str, Any]:
    return {**file, **whole, "language_config": {**file["language_config"], **section}}


def _without(file: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = {one: value for one, value in file["language_config"].items() if one != name}
    return {**file, "language_config": section}


@pytest.mark.parametrize("file", [_LARGE, _SMALL, _TINY])
def test_its_tower_is_timms_whatever_its_text(file: dict[str, Any]) -> None:
    encoder = model_config(file).encoder
    assert encoder is not None and all(one.split is None for one in encoder.weights)
    counts = {one.name: math.prod(one.shape) * one.layers for one in encoder.weights}
    assert sum(count for name, count in counts.items() if name.startswith("vision.")) == _SIGLIP


def test_what_published_files_leave_out_is_as_sglangs_class_says() -> None:
    model = model_config(_LARGE)
    assert (model.num_layers, model.main_attention.num_heads, model.mla and model.mla.kv_lora_rank) == (
        *(30, 32),
        512,
    )
    assert [model_config(one).model_type for one in (_LARGE, _SMALL, _TINY)] == [
        *["deepseek_vl2_text"] * 2,
        "deepseek",
    ]
    assert not any(model_config(one).obstacles for one in (_LARGE, _SMALL, _TINY))


@pytest.mark.parametrize("named", [None, [], ["DeepseekVLV2ForCausalLM"], ["DeepseekVL2ForCausalLM"]])
def test_its_class_is_one_whatever_its_file_says(named: list[str] | None) -> None:
    assert Checkpoint({**_LARGE, "architectures": named}).architecture == "DeepseekVL2ForCausalLM"


@pytest.mark.parametrize(("family", "file"), [("deepseek_v2", _SMALL), ("deepseek", _TINY)])
def test_random_models_answer_as_those_of_their_text(
    family: str, file: dict[str, Any], tmp_path: Path
) -> None:
    dice = random.Random(f"vl2 {family}")
    equal = sum(_is_equal(family, file, draw(family, dice), tmp_path / str(number)) for number in range(8))
    assert equal >= 2


def _is_equal(family: str, file: dict[str, Any], told: dict[str, Any], folder: Path) -> bool:
    if family == "deepseek_v2":
        told["q_lora_rank"] = None
    model = make_reference(family, **told)
    text = {**_OF_TINY, **model.saved_as} if family == "deepseek" else model.config.to_dict()
    if family == "deepseek":
        text["v_head_dim"] = text["hidden_size"] // text["num_attention_heads"]
    text["model_type"] = "deepseek_v2"
    text["architectures"] = ["DeepseekV2ForCausalLM"]
    model.saved_as = {**file, "language_config": text, "projector_config": {"n_embed": text["hidden_size"]}}
    texts, one = prompts(*_LENGTHS), ParallelConfig()
    save(model, folder)
    try:
        rows = Generation(folder, one, make_runtime(), VirtualCommunicator(one)).run(texts, _STEPS)
    except ConfigError:
        return False
    for number, text_tokens in enumerate(texts):
        want = reference_logits(model, text_tokens)[-_STEPS - 1 :]
        torch.testing.assert_close(torch.stack([*rows[number]]), want, atol=1e-4, rtol=0)
    return True


@pytest.mark.parametrize(
    ("file", "section", "said"),
    [
        (_LARGE, {"q_lora_rank": 1536}, "q_lora_rank is 1536"),
        (
            _LARGE,
            {"architectures": ["DeepseekV3ForCausalLM"]},
            "its architectures is ['DeepseekV3ForCausalLM']",
        ),
        (_LARGE, {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        (_LARGE, {"n_group": None}, "n_group is None"),
        (_LARGE, {"attention_bias": True}, "attention_bias is True"),
        (_LARGE, {"num_shared_experts": 2}, "num_shared_experts is told"),
        (_SMALL, {"norm_topk_prob": True}, "norm_topk_prob is True"),
        (_SMALL, {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
        (_SMALL, {"rope_interleave": False}, "rope_interleave is False"),
        (_TINY, {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
        (_TINY, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ],
)
def test_what_is_not_computed_of_its_text_is_named(
    file: dict[str, Any], section: dict[str, Any], said: str
) -> None:
    (found,) = model_config(_told(file, section)).obstacles
    assert said in found


@pytest.mark.parametrize(
    ("file", "name", "said"),
    [
        (_LARGE, "q_lora_rank", "q_lora_rank is 1536"),
        (_LARGE, "architectures", "its architectures is None"),
        (_SMALL, "topk_method", "topk_method is 'gready'"),
    ],
)
def test_what_is_left_out_of_its_text_may_be_named(file: dict[str, Any], name: str, said: str) -> None:
    assert said in model_config(_without(file, name)).obstacles[0]


@pytest.mark.parametrize("name", ["n_routed_experts", "num_experts_per_tok"])
def test_what_sglangs_class_says_is_none_is_to_be_told(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        model_config(_without(_LARGE, name))


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ({"architectures": ["OtherForCausalLM"]}, "architectures names OtherForCausalLM"),
        ({"tile_tag": None}, "tile_tag is None"),
        ({"vision_config": {"width": 1024}}, "vision_config: width is 1024: SGLang's is 1152"),
        (
            {"vision_config": {"model_name": "siglip_large_patch16_384"}},
            "model_name is 'siglip_large_patch16",
        ),
        ({"projector_config": {"n_embed": 2048}}, "n_embed is 2048: here is 2560"),
        (
            {"projector_config": {"n_embed": 2560, "projector_type": "identity"}},
            "projector_type is 'identity'",
        ),
        ({"projector_config": {"n_embed": 2560, "depth": 3}}, "depth is 3: here is 2"),
        ({"projector_config": {"n_embed": 2560, "token_pooling": True}}, "token_pooling is True"),
        ({"language_config": None}, "deepseek_vl_v2 without a language_config"),
        ({"language_config": 3}, "language_config is 3"),
    ],
)
def test_what_is_another_model_or_has_another_tower_is_named(whole: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_LARGE, **whole})
