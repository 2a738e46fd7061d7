"""dots.vlm: what of a file is named, which servers end or are not computed, and what its tower holds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from runtime.server.call_rules import fused_shared_experts
from runtime.server.decoders.known import model_config
from runtime.server.encoders.weight import EncoderWeight
from runtime.server.errors import ConfigError
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

DOTS = json.loads(PUBLISHED.read_text())["a/dots-vlm-from-memory"]


def _deployment(folder: Path, told: str = "") -> Deployment:
    (folder / "config.json").write_text(json.dumps(DOTS))
    command = f"python -m sglang.launch_server --model-path {folder} --tp 8 {told}"
    return select_deployments(ServerFlags(arch="sm90"), command=command.split())[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_group": None}, "n_group is None"),
        ({"topk_group": None}, "topk_group is None"),
        ({"topk_method": None}, "topk_method is None"),
        ({"scoring_func": None}, "scoring_func is None"),
        ({"topk_method": "greedy"}, "topk_method is 'greedy'"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"num_experts": 64}, "num_experts is told, which SGLang's class does not read"),
        ({"mlp_layer_types": ["dense"] * 61}, "mlp_layer_types is told"),
    ],
)
def test_what_is_not_computed_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    assert said in model_config({**DOTS, **changes}).obstacles[0]


def test_sglang_reads_no_section_of_its_text() -> None:
    beside = {"text_config": {"hidden_size": 64}, "language_config": {"hidden_size": 64}}
    assert model_config({**DOTS, **beside}) == model_config(DOTS)


def test_a_tower_that_is_none_is_named_and_one_that_is_left_out_is_its_classes() -> None:
    with pytest.raises(ConfigError, match="vision_config is None"):
        model_config({**DOTS, "vision_config": None})
    without = {name: value for name, value in DOTS.items() if name != "vision_config"}
    assert _count(_tower(without)) == _count(_tower(DOTS)) - (7168 - 1536) * (4 * 1536 + 1)


@pytest.mark.parametrize("name", ["n_routed_experts", "scoring_func", "max_position_embeddings"])
def test_what_sglangs_class_of_a_v2_says_otherwise_is_to_be_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({one: value for one, value in DOTS.items() if one != name})


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("", None),
        ("--dp 8 --enable-dp-attention", None),
        ("--load-format dummy", "--load-format dummy leaves dots.vlm's attention"),
    ],
)
def test_which_servers_end_in_its_class(told: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, told))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", None),
        ("--ep 8", None),
        ("--quantization fp8", None),
        ("--pp-size 2", "--pp: each stage keeps a place for the tokens of all layers"),
        ("--speculative-algorithm NGRAM", "drafts"),
        ("--enable-eplb --ep 8", "experts that move"),
    ],
)
def test_which_servers_are_not_computed(told: str, said: str | None, tmp_path: Path) -> None:
    unknown = _deployment(tmp_path, told).shape.unknown
    assert (not unknown) if said is None else said in unknown


def test_its_shared_expert_stays_beside_256_others(tmp_path: Path) -> None:
    """Of DeepSeek-V3's own class it is one more of them."""
    deployment = _deployment(tmp_path, "--moe-runner-backend flashinfer_cutlass")
    model = deployment.shape.model
    assert model is not None and model.moe is not None and model.moe.num_experts == 256
    assert fused_shared_experts(model, deployment.runtime, 1) == 0


@pytest.mark.parametrize(
    ("ranks", "of_all", "heads"), [(8, 8, 2), (1, 8, 16), (2, 8, 8), (4, 4, 3), (1, 4, 12), (1, 1, 12)]
)
def test_heads_of_its_tower_are_padded_for_all_ranks(ranks: int, of_all: int, heads: int) -> None:
    """Of 12. Bytes of a rank are SGLang's own class's: tests/memory/test_sglang_weights.py."""
    (asking,) = (one for one in _tower(DOTS) if one.name == "blocks.attn.qkv_proj.weight")
    assert asking.of_rank(ranks, of_all) == (3 * 128 * heads, 1536)


def _tower(hf: dict[str, Any]) -> tuple[EncoderWeight, ...]:
    encoder = model_config(hf).encoder
    assert encoder is not None
    return encoder.weights


def _count(weights: tuple[EncoderWeight, ...]) -> int:
    return sum(math.prod(one.shape) * one.layers for one in weights)
