"""LLaVA's own checkpoints: the file of a Llama, a Qwen2 or a Mistral that says llava, and names a tower."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from runtime.server.decoders.known import model_config
from runtime.server.decoders.wrapper_fields import LLAVA_TEXTS
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA
from tests.runtime.families import TINY, config_json
from tests.runtime.random_models import compare, draw

_FILES = json.loads((DATA / "published_families.json").read_text())
_CLIPS, _SIGLIPS, _OF_MISTRAL = (
    _FILES[f"a/llava-{name}-from-memory"] for name in ("v1.5-7b", "onevision-qwen2-7b", "v1.6-mistral-7b")
)
_VIDEO = {**_CLIPS, "architectures": ["LlavaVidForCausalLM"]}
_TOWERS = {
    "openai/clip-vit-large-patch14": {"image_size": 224},
    "openai/clip-vit-large-patch14-336": {"image_size": 336},
    "google/siglip-so400m-patch14-384": {
        **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 384}
    },
}
_LIKE_BOTH = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
    "patch_size": 14,
}


def _parameters_of(tower: str) -> int:
    """By transformers' class."""
    kind = "Siglip" if "siglip" in tower else "CLIP"
    config = getattr(transformers, f"{kind}VisionConfig")(**{**_LIKE_BOTH, **_TOWERS[tower]})
    with torch.device("meta"):
        made = getattr(transformers, f"{kind}VisionModel")(config)
    return sum(one.numel() for one in made.parameters())


@pytest.mark.parametrize("tower", _TOWERS)
def test_its_tower_is_transformers_whole_on_each_rank(tower: str) -> None:
    width = _SIGLIPS["mm_hidden_size"] if "siglip" in tower else _CLIPS["mm_hidden_size"]
    encoder = model_config({**_CLIPS, "mm_vision_tower": tower, "mm_hidden_size": width}).encoder
    assert encoder is not None and all(one.split is None for one in encoder.weights)
    counts = {one.name: math.prod(one.shape) * one.layers for one in encoder.weights}
    of_tower = sum(count for name, count in counts.items() if name.startswith("vision_tower."))
    assert of_tower == _parameters_of(tower)
    assert sum(counts.values()) - of_tower == (width + 1 + 4096 + 1) * 4096


def test_a_row_ends_where_a_file_merges_without_padding() -> None:
    names = [{one.name for one in model_config(told).encoder.weights} for told in (_CLIPS, _OF_MISTRAL)]
    assert names[1] - names[0] == {"image_newline"}


@pytest.mark.parametrize("architecture", LLAVA_TEXTS)
def test_random_models_answer_as_those_of_their_text(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, dice = LLAVA_TEXTS[architecture], random.Random(architecture)
    monkeypatch.setattr(
        "tests.runtime.random_models.save", lambda model, folder: _save(model, folder, family)
    )
    monkeypatch.setitem(_OWN, family, architecture)
    found = [compare(family, _told(family, dice), tmp_path / str(number)) for number in range(6)]
    assert all(one.kind in ("equal", "refused by name", "beyond fp32") for one in found), found
    assert sum(one.kind == "equal" for one in found) >= 3, found


_OWN: dict[str, str] = {}
# Of which its class knows nothing, or whose classes of text have none.
_UNTOLD = ("rope_parameters", "sliding_window", "layer_types", "use_sliding_window")


def _told(family: str, dice: random.Random) -> dict[str, Any]:
    told = {name: one for name, one in draw(family, dice).items() if name not in _UNTOLD}
    told["rope_parameters"] = {"rope_type": "default", "rope_theta": dice.choice((500.0, 10000.0))}
    return {**told, **({"sliding_window": None} if "sliding_window" in TINY[family].sizes else {})}


def _save(model: Any, folder: Path, family: str) -> None:
    """Under the names that its checkpoints have, of which those of its tower are nobody's here."""
    text = config_json(model)
    kept = {name: one for name, one in text.items() if name not in ("rope_parameters", "model_type")}
    rope = {"rope_theta": text["rope_parameters"]["rope_theta"]}
    seen = {name: one for name, one in _SIGLIPS.items() if name.startswith("mm_")}
    model.save_pretrained(folder)
    told = {**kept, **rope, **seen, "model_type": "llava", "architectures": [_OWN[family]]}
    if _OWN[family] == "LlavaVidForCausalLM":
        told |= {name: _CLIPS[name] for name in ("mm_vision_tower", "mm_hidden_size")}
    (folder / "config.json").write_text(json.dumps(told))


_NEEDED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings"),
    *("mm_hidden_size", "mm_vision_tower", "mm_vision_select_layer"),
)


@pytest.mark.parametrize("name", _NEEDED)
def test_what_no_class_fills_in_is_to_be_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({one: value for one, value in _CLIPS.items() if one != name})


_BASE = "what becomes of it is unknown"


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        (_CLIPS, {"mm_vision_tower": "./vit/clip-vit-H"}, "mm_vision_tower is './vit/clip-vit-H': how large"),
        (
            _VIDEO,
            {"mm_vision_tower": "google/siglip-so400m-patch14-384"},
            "mm_vision_tower is 'google/siglip",
        ),
        (_CLIPS, {"mm_hidden_size": 1152}, "mm_hidden_size is 1152: its mm_vision_tower is 1024 wide"),
        (
            _CLIPS,
            {"mm_vision_select_feature": "cls_patch"},
            "select_feature is 'cls_patch': SGLang has 'patch'",
        ),
        (
            _CLIPS,
            {"mm_projector_type": "linear"},
            "mm_projector_type is 'linear': SGLang has 'mlp2x_gelu' alone",
        ),
        (_CLIPS, {"mm_resampler_type": "qformer"}, "mm_resampler_type is 'qformer'"),
        (_CLIPS, {"projector_hidden_act": "silu"}, "projector_hidden_act is 'silu'"),
        (_CLIPS, {"multimodal_projector_bias": None}, "multimodal_projector_bias is None"),
        (_CLIPS, {"vision_feature_layer": [-2, -1]}, r"vision_feature_layer is \[-2, -1\]: SGLang takes one"),
        (_CLIPS, {"rope_scaling": {"type": "linear", "factor": 2.0}}, f"rope_scaling is .*: .* {_BASE}"),
        (_CLIPS, {"rope_parameters": {"rope_theta": 5e5}}, f"rope_parameters is .* {_BASE}"),
        (_CLIPS, {"vision_config": {"hidden_size": 16}}, f"vision_config is .* {_BASE}"),
        (_CLIPS, {"bias": True}, f"bias is True: .* {_BASE}"),
        (_CLIPS, {"partial_rotary_factor": 0.5}, f"partial_rotary_factor is 0.5: .* {_BASE}"),
        (_OF_MISTRAL, {"sliding_window": 4096}, f"sliding_window is 4096: .* {_BASE}"),
        (_CLIPS, {"architectures": ["YiVLForCausalLM"]}, "architectures names YiVLForCausalLM"),
        (_CLIPS, {"architectures": None}, "llava without a text_config"),
        (_CLIPS, {"model_type": "llava_llama"}, "architectures names|'llava_llama' is not supported"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(
    file: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**file, **changes})


def test_siglip_gives_all_it_sees_whatever_a_file_selects() -> None:
    assert not model_config({**_SIGLIPS, "mm_vision_select_feature": "cls_patch"}).obstacles
