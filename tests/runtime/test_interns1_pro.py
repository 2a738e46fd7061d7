"""Intern-S1-Pro: a rope that is mixed, experts of each group, and the section that its text is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from runtime.layers.mixed_rope import mixed_table, turned
from runtime.models.rope_tables import RopeTables
from runtime.moe.deepep import share_of_rows
from runtime.moe.router import select_experts
from runtime.server.checkpoint import Checkpoint
from runtime.server.decoders.known import model_config
from runtime.server.layer_config import MoEConfig, RopeConfig
from tests.memory.checkpoints import DATA
from tests.runtime.config_files import config_file

CPU = torch.device("cpu")
_PUBLISHED = json.loads((DATA / "published_families.json").read_text())
_MIXED = {"rope_type": "default", "fope_sep_head": True}


def _rope(**told: Any) -> RopeConfig:
    sizes = {"head_dim": 128, "max_position_embeddings": 262144, "rope_scaling": {**_MIXED, **told}}
    rope = model_config({**config_file("interns1_pro_text", rope_theta=5e6), **sizes}).main_attention.rope
    assert rope is not None
    return rope


@pytest.mark.parametrize(("told", "mixed"), [({}, 45), ({"num_inv_freq": 7}, 7), ({"num_inv_freq": 99}, 64)])
def test_frequencies_that_turn_once_are_mixed(told: dict[str, Any], mixed: int) -> None:
    assert _rope(**told).mixed == mixed


def test_its_text_is_one_in_blocks_of_fp8() -> None:
    model = Checkpoint(_PUBLISHED["internlm/Intern-S1-Pro"]).model_config()
    assert model.model_type == "interns1_pro_text" and model.quantization_block == (128, 128)
    assert model.moe is not None and (model.moe.num_groups, model.moe.top_k) == (8, 8)
    assert not model.obstacles and model.encoder is not None


def test_a_table_is_made_of_the_weights_at_the_first_forward() -> None:
    ropes, rope = RopeTables(CPU), RopeConfig(8, 100.0, 32, mixed=3)
    ropes.lay(rope)
    mixed = ropes.mix(rope, slice(1, 3))
    assert ropes.mix(rope, slice(1, 3)) is mixed and mixed.cos_coef.shape == (2, 3, 3)
    assert mixed.table.shape == (32, 2, 16)  # cosines and sines, and both again
    for one in (mixed.cos_coef, mixed.sin_coef):
        one.data.normal_()
    q, k = torch.randn(5, 4, 8), torch.randn(5, 2, 8)
    found = mixed(q, k, torch.arange(5))
    again = turned(q, k, mixed_table(rope, mixed.cos_coef, mixed.sin_coef), torch.arange(5))
    assert all(one.equal(other) for one, other in zip(found, again, strict=True))


def test_experts_are_the_best_of_each_group() -> None:
    moe = MoEConfig(8, 4, 16, num_groups=2, top_k_groups=2, group_worth=1, from_each_group=True)
    logits = torch.tensor([[9.0, 8, 7, 6, 1, 2, 3, 4]])
    chosen = select_experts(logits, moe, None)
    assert chosen.ids.tolist() == [[0, 1, 7, 6]]
    scores = logits.softmax(-1)[0, [0, 1, 7, 6]]
    assert torch.allclose(chosen.weights[0], scores / scores.sum())


@pytest.mark.parametrize(("held", "share"), [(1, 0.5), (2, 1 - 1 / 6), (4, 1.0), (8, 1.0)])
def test_rows_that_a_rank_is_sent(held: int, share: float) -> None:
    """Two of four experts of each of two groups."""
    moe = MoEConfig(8, 4, 16, num_groups=2, top_k_groups=2, group_worth=1, from_each_group=True)
    assert share_of_rows(moe, held) == pytest.approx(share)
