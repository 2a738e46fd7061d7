"""Published checkpoints: the bytes of their tensors, as stored public material states them."""

from __future__ import annotations

import pytest

from tests.memory.checkpoints import checkpoints
from tests.memory.published import beside_its_files, beside_transformers, stated

CHECKPOINTS = {one.name: one for one in checkpoints()}
# What is stated are its files with their headers.
WITH_HEADERS = ("deepseek-ai/DeepSeek-R1",)


@pytest.mark.parametrize("name", stated())
def test_a_checkpoint_is_as_large_as_its_files(name: str) -> None:
    found = beside_its_files(CHECKPOINTS[name])
    assert found.is_close
    if name not in WITH_HEADERS:
        assert found.ours == pytest.approx(found.theirs, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-30B-A3B-GPTQ-Int4", "zai-org/GLM-4.5-Air-FP8", "moonshotai/Kimi-VL-A3B-Instruct"]
)
def test_a_checkpoint_whose_size_nobody_states_has_transformers_parameters(name: str) -> None:
    found = beside_transformers(CHECKPOINTS[name])
    assert found.ours == found.theirs > 0


def test_more_than_forty_checkpoints_are_compared() -> None:
    quantized = [
        one for one in CHECKPOINTS.values() if "quantization_config" in one.config or one.modelopt_file
    ]
    assert len(CHECKPOINTS) >= 55 and len(quantized) >= 30
