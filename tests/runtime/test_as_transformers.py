"""Models that SGLang has a class of, on a server that runs transformers' layers of them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.as_transformers import as_transformers
from runtime.server.decoders.known import model_config
from runtime.server.parallel_config import ParallelConfig
from tests.oracle.published import published
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json
from tests.runtime.generation import Generation, make_runtime
from tests.runtime.random_models import STEPS, compare, draw

_ALIKE = ("llama", "mistral", "qwen2", "qwen3", "arcee", "gemma", "qwen3_moe", "mixtral")
_SEES_ALL: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "mixtral": {"sliding_window": None},
    "qwen3_moe": {"use_sliding_window": False},
}
_EACH = 3
_ONE = ParallelConfig()


def _alone(folder: Path, texts: list[list[int]]) -> dict[int, list[torch.Tensor]]:
    generation = Generation(folder, _ONE, make_runtime(), VirtualCommunicator(_ONE), by_transformers=True)
    assert generation.model.by_transformers
    return generation.run(texts, STEPS)


@pytest.mark.parametrize("family", _ALIKE)
def test_its_layers_answer_as_transformers_do(family: str, tmp_path: Path) -> None:
    dice = Random(f"by transformers {family}")
    for number in range(_EACH):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = compare(family, {**draw(family, dice), **_SEES_ALL.get(family, {})}, folder, serve=_alone)
        assert found.kind != "DIFFERENT", found


def _file(family: str, **told: Any) -> dict[str, Any]:
    return {**served_json(make_reference(family)), **told}


@pytest.mark.parametrize("family", _ALIKE)
def test_each_matrix_stands_by_itself(family: str) -> None:
    file = served_json(make_reference(family, **_SEES_ALL.get(family, {})))
    found = as_transformers(model_config(file), file)
    assert found.by_transformers and found.names.attends_apart
    assert found.names.multiplies_apart is found.gated_mlps
    assert not found.obstacles


@pytest.mark.parametrize(
    ("family", "told"),
    [
        ("granite", {}),
        ("mistral", {"sliding_window": 5}),
        ("llama", {"architectures": ["LlamaEmbeddingModel"]}),
        ("llama", {"sliding_window": 5, "layer_types": ["sliding_attention"] * 2}),
    ],
)
def test_others_stay_as_sglangs_class_has_them(family: str, told: dict[str, Any]) -> None:
    file = _file(family, **told)
    read = model_config(file)
    assert as_transformers(read, file) == read and not read.by_transformers


def test_what_the_class_around_any_model_asks_for_is_named() -> None:
    file = _file("llama", logit_scale=0.5)
    assert "logit_scale is 0.5" in as_transformers(model_config(file), file).obstacles[0]
    file = _file("llama", rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert "make its angles anew" in as_transformers(model_config(file), file).obstacles[0]


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", (16060522496, 8030527488, 4015529984)),
        ("Qwen/Qwen2.5-72B-Instruct", (145412407296, 72707522560, 36355080192)),
        ("Qwen/Qwen3-32B", (65524246528, 32762800128, 16382076928)),
    ],
)
def test_a_rank_holds_what_sglangs_class_around_them_does(name: str, held: tuple[int, ...]) -> None:
    """srt/models/transformers.py of 0.5.12 and 0.5.23, on tensors without data."""
    config = published()[name].config
    model = as_transformers(model_config(config), config)
    for tp, size in zip((1, 2, 4), held, strict=True):
        layout = ParallelConfig(tp=tp)
        comm = VirtualCommunicator(layout, tp - 1)
        with_layers = Decoder(model, RuntimeConfig(), comm, torch.device("meta"), range(model.num_layers))
        assert sum(one.nbytes for one in with_layers.parameters()) == size
