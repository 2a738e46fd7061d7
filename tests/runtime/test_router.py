"""Expert choice against transformers' own routers and against cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from runtime.moe.router import Router, select_experts
from runtime.server.layer_config import MoEConfig
from tests.runtime.configs import model_of
from tests.runtime.families import make_reference


def _make_moe(**changes: Any) -> MoEConfig:
    return replace(MoEConfig(num_experts=4, top_k=2, intermediate_size=8), **changes)


def _select(
    logits: list[float], moe: MoEConfig, correction: list[float] | None = None
) -> tuple[list[int], list[float]]:
    bias = None if correction is None else torch.tensor(correction)
    topk = select_experts(torch.tensor([logits]), moe, bias)
    return topk.ids[0].tolist(), topk.weights[0].tolist()


@pytest.mark.parametrize(
    "family", ["deepseek_v3", "glm4_moe", "glm_moe_dsa", "qwen3_moe", "mixtral", "gpt_oss"]
)
def test_routers_agree_with_transformers(family: str) -> None:
    model = make_reference(family)
    layer = model.model.layers[1].mlp
    theirs = getattr(layer, "gate", None) or layer.router
    config = model_of(model.config.to_dict())
    assert config.moe is not None
    ours = Router(("gate",), config.hidden_size, config.moe, torch.float32, torch.device("cpu"))
    ours.weight.data.copy_(theirs.weight)
    if ours.bias is not None:
        ours.bias.data.copy_(theirs.bias)
    if ours.correction is not None:
        ours.correction.data.copy_(theirs.e_score_correction_bias)
    x = torch.randn(50, config.hidden_size, generator=torch.Generator().manual_seed(3))
    got = ours(x)
    with torch.no_grad():
        logits, weights, ids = theirs(x)
    torch.testing.assert_close(got.logits, logits.float(), atol=1e-5, rtol=0)
    assert _dense(got.ids, got.weights, config.moe).allclose(_dense(ids, weights, config.moe), atol=1e-5)
    assert got.ids.dtype == torch.int32 and got.weights.dtype == torch.float32


def _dense(ids: torch.Tensor, weights: torch.Tensor, moe: MoEConfig) -> torch.Tensor:
    """[tokens, experts]: the order in which experts were chosen does not matter."""
    return torch.zeros(ids.shape[0], moe.num_experts).scatter_(1, ids.long(), weights.float())


def test_softmax_weights_are_probabilities() -> None:
    ids, weights = _select([0.0, 2.0, 1.0, -1.0], _make_moe(renormalize=False))
    probabilities = torch.tensor([0.0, 2.0, 1.0, -1.0]).softmax(0)
    assert ids == [1, 2]
    assert weights == pytest.approx(probabilities[[1, 2]].tolist())


def test_renormalized_weights_sum_to_the_scaling_factor() -> None:
    _, weights = _select([0.0, 2.0, 1.0, -1.0], _make_moe(routed_scaling_factor=2.5))
    assert sum(weights) == pytest.approx(2.5)


def test_the_correction_chooses_but_does_not_weigh() -> None:
    moe = _make_moe(scoring="sigmoid", renormalize=False)
    ids, weights = _select([0.0, 1.0, 2.0, 3.0], moe, [10.0, 0.0, 0.0, 0.0])
    assert ids == [0, 3]
    assert weights == pytest.approx(torch.tensor([0.0, 3.0]).sigmoid().tolist())


def test_experts_outside_the_best_group_are_ruled_out() -> None:
    moe = _make_moe(scoring="sigmoid", num_groups=2, top_k_groups=1)
    ids, _ = _select([3.0, -9.0, 2.0, 1.5], moe)
    assert sorted(ids) == [2, 3], "the group of the single best expert has the weaker pair"
