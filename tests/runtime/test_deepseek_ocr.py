"""DeepSeek-OCR, the first and the second, and Unlimited-OCR: their language model is a DeepSeek-MoE's, their
towers are of SGLang's one size."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.forward.kv_pool import make_kv_pool
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import plan_tokens
from tests.memory.checkpoints import DATA
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime
from tests.runtime.random_models import draw

_FILES = json.loads((DATA / "published_families.json").read_text())
PUBLISHED, SECOND = (_FILES[f"deepseek-ai/DeepSeek-OCR{one}"] for one in ("", "-2"))
UNLIMITED = _FILES["a/unlimited-ocr-of-deepseek-ocrs-sizes"]
_STEPS, _LENGTHS = 8, (21, 13)
_SECTION = {"use_mla": False, "topk_method": "greedy", "routed_scaling_factor": 1.0, "num_key_value_heads": 2}


def _told(section: Mapping[str, Any], **whole: Any) -> dict[str, Any]:
    """As published, with this told of its language model, and of the whole."""
    return {**PUBLISHED, **whole, "language_config": {**PUBLISHED["language_config"], **section}}


# Of the first in 2,710 tensors: 179 of SAM's and 293 of CLIP's tower, and four beside them.
@pytest.mark.parametrize(
    ("name", "published", "tensors"),
    [
        ("deepseek-ai/DeepSeek-OCR", 3336106240, 179 + 293 + 4),
        ("deepseek-ai/DeepSeek-OCR-2", 3389119360, 179 + 12 * 24 + 1 + 2 + 3),
    ],
)
def test_it_has_the_parameters_that_are_published(name: str, published: int, tensors: int) -> None:
    encoder = model_config(_FILES[name]).encoder
    assert encoder is not None
    weights = {one.name: math.prod(one.shape) * one.layers for one in encoder.weights}
    held = json.loads((DATA / "sglang_weights.json").read_text())[name]["1"]
    assert sum(held) == 2 * published and held[1] == 2 * sum(weights.values())
    assert sum(one.layers for one in encoder.weights) == tensors


@pytest.mark.parametrize("seed", [1, 2])
def test_random_models_of_it_answer_as_a_deepseek_moe(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    equal = sum(_is_equal(draw("deepseek", dice), tmp_path / str(number)) for number in range(6))
    assert equal >= 2


def _is_equal(told: dict[str, Any], folder: Path) -> bool:
    model = make_reference("deepseek", **told)
    text = {**_SECTION, **model.saved_as}
    text |= {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"]}
    text["v_head_dim"] = text["hidden_size"] // text["num_attention_heads"]
    projector = {**PUBLISHED["projector_config"], "n_embed": text["hidden_size"]}
    model.saved_as = {**PUBLISHED, "language_config": text, "projector_config": projector}
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
    ("section", "said"),
    [
        ({"use_mla": True}, "use_mla is True"),
        ({"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc'"),
        ({"topk_method": "group_limited_greedy"}, "topk_method is 'group_limited_greedy'"),
        ({"routed_scaling_factor": 2.5}, "routed_scaling_factor is 2.5"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"v_head_dim": 64}, "v_head_dim is 64"),
        ({"num_attention_heads": 20, "num_key_value_heads": 20}, "v_head_dim is 0"),
    ],
)
def test_what_another_class_of_sglangs_would_serve_is_named(section: dict[str, Any], said: str) -> None:
    (found,) = model_config(_told(section)).obstacles
    assert said in found


@pytest.mark.parametrize("name", ["use_mla", "v_head_dim", "num_key_value_heads", "max_position_embeddings"])
def test_what_sglang_reads_in_two_places_is_told(name: str) -> None:
    section = {one: value for one, value in PUBLISHED["language_config"].items() if one != name}
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({**PUBLISHED, "language_config": section})


_SEES = PUBLISHED["vision_config"]


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ({"architectures": ["DeepseekVL2ForCausalLM"]}, "architectures names DeepseekVL2ForCausalLM"),
        ({"architectures": ["DeepseekOCR2ForCausalLM"]}, "architectures names DeepseekOCR2ForCausalLM"),
        ({"auto_map": {}}, "auto_map: AutoModel is None"),
        ({"tile_tag": "1D"}, "tile_tag is '1D'"),
        ({"tile_tag": None}, "tile_tag is None"),
        ({"vision_config": {**_SEES, "model_name": "DeepEncoderV2"}}, "model_name is 'DeepEncoderV2'"),
        ({"vision_config": {**_SEES, "width": {"sam_vit_l": {}}}}, "width: 'sam_vit_l'"),
        (
            {"vision_config": {**_SEES, "width": {"sam_vit_b": {"layers": 24}}}},
            "width: sam_vit_b: layers is 24: SGLang's is 12",
        ),
        ({"projector_config": None}, "projector_config: projector_type is None"),
        ({"projector_config": {"projector_type": "identity"}}, "projector_type is 'identity'"),
        (
            {"projector_config": {**PUBLISHED["projector_config"], "input_dim": 896}},
            "input_dim is 896: here is 2048",
        ),
        (
            {"projector_config": {**PUBLISHED["projector_config"], "n_embed": 2048}},
            "n_embed is 2048: here is 1280",
        ),
    ],
)
def test_what_is_another_model_or_has_no_tower_of_sglangs_is_named(whole: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_told({}, **whole))


_SECOND_SEES = SECOND["vision_config"]


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ({"auto_map": PUBLISHED["auto_map"]}, "architectures names DeepseekOCR2ForCausalLM"),
        ({"projector_config": PUBLISHED["projector_config"]}, "input_dim is 2048: here is 896"),
        ({"vision_config": PUBLISHED["vision_config"]}, "width: 'clip-l-14-224'"),
        (
            {"vision_config": {**_SECOND_SEES, "width": {"qwen2-0-5b": {"dim": 1536}}}},
            "width: qwen2-0-5b: dim is 1536: SGLang's is 896",
        ),
    ],
)
def test_what_is_no_second_of_sglangs_is_named(whole: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**SECOND, **whole})


def test_the_second_is_known_by_the_class_of_its_checkpoint() -> None:
    """Whatever its architectures says, SGLang serves it by the first one's class."""
    for told in (SECOND, {**SECOND, "architectures": PUBLISHED["architectures"]}):
        assert Checkpoint(told).architecture == "DeepseekOCRForCausalLM"
        assert replace(model_config(told), encoder=None) == replace(model_config(PUBLISHED), encoder=None)


def test_a_tied_head_of_the_whole_is_named() -> None:
    (found,) = model_config(_told({}, tie_word_embeddings=True)).obstacles
    assert "tie_word_embeddings is True" in found


def test_unlimited_ocr_is_the_first_whose_tokens_are_all_kept_as_a_windows() -> None:
    model = model_config(UNLIMITED)
    assert model.in_windows and not model.obstacles
    assert replace(model, in_windows=False) == model_config(PUBLISHED)


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ({"tile_tag": "1D"}, "tile_tag is '1D'"),
        ({"projector_config": SECOND["projector_config"]}, "input_dim is 896: here is 2048"),
        ({"vision_config": _SECOND_SEES}, "DeepSeek-OCR 2"),
        ({"architectures": ["DeepseekOCRForCausalLM"]}, "architectures names DeepseekOCRForCausalLM"),
        ({"language_config": {}}, "use_mla is missing"),
    ],
)
def test_what_is_no_unlimited_ocr_of_sglangs_is_named(whole: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**UNLIMITED, **whole})


def test_its_pool_has_a_map_from_each_token_to_itself() -> None:
    """PureSWATokenToKVPoolAllocator of srt/mem_cache/allocator/swa.py"""
    meta, one = torch.device("meta"), ParallelConfig()
    for told, mapped in ((UNLIMITED, 1003), (PUBLISHED, None)):
        model = model_config(told)
        plan = plan_tokens(1001, model, one, RuntimeConfig())
        pool = make_kv_pool(plan, model, one, range(model.num_layers), meta)
        assert (None if pool.slots.map is None else pool.slots.map.numel()) == mapped
