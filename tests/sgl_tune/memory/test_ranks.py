"""Which ranks are reported."""

from __future__ import annotations

import pytest

from runtime.server.config import ModelConfig
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.models import find_model
from sgl_tune.errors import UsageError
from sgl_tune.memory.ranks import choose_ranks, rank_name


def _model(name: str = "GLM-5.1-FP8") -> ModelConfig:
    return find_model(name, {}).checkpoint.model_config()


def _distinct(model: ModelConfig, parallel: ParallelConfig) -> tuple[int, ...]:
    return tuple(choose_ranks("distinct", model, parallel))


def test_equal_ranks_are_one() -> None:
    assert _distinct(_model(), ParallelConfig(tp=8, dp=8, enable_dp_attention=True)) == (0,)


def test_stages_differ() -> None:
    # 78 layers, the first three dense: 26 a stage
    assert _distinct(_model(), ParallelConfig(tp=2, pp=3)) == (0, 2, 4)


def test_middle_stages_of_one_size_are_one() -> None:
    assert _distinct(_model("Qwen3-30B-A3B"), ParallelConfig(tp=2, pp=4)) == (0, 2, 6)


def test_uneven_experts_differ() -> None:
    assert _distinct(_model("Qwen3-30B-A3B"), ParallelConfig(tp=6, ep=6)) == (0, 2)


def test_choices() -> None:
    model, parallel = _model(), ParallelConfig(tp=4)
    assert choose_ranks("all", model, parallel) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert choose_ranks("3", model, parallel) == {3: 3}
    for wrong in ("4", "-1", "some"):
        with pytest.raises(UsageError, match="--ranks"):
            choose_ranks(wrong, model, parallel)


def test_names_are_those_of_the_servers_log() -> None:
    assert rank_name(ParallelConfig(tp=4, dp=2, enable_dp_attention=True), 3) == "DP1 TP3"
    assert rank_name(ParallelConfig(tp=2, pp=2), 3) == "PP1 TP1"
