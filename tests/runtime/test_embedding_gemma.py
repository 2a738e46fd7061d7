"""EmbeddingGemma beside transformers' own class: tokens that see both ways, a mean, matrices behind it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.models import find_model
from sgl_tune.errors import UsageError
from tests.memory.checkpoints import DATA
from tests.memory.rank_bytes import bytes_of
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.random_models import alone, compare, draw

_BOTH_WAYS = {"use_bidirectional_attention": True}
_DENSE = "sentence_transformers.models.Dense"
_PLAIN = "torch.nn.modules.linear.Identity"


def _with_dense(folder: Path, *matrices: nn.Linear, **told: Any) -> None:
    modules = [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, matrix in enumerate(matrices, 2):
        own = folder / f"{number}_Dense"
        own.mkdir()
        sizes = {"in_features": matrix.in_features, "out_features": matrix.out_features}
        file = {**sizes, "bias": matrix.bias is not None, "activation_function": _PLAIN, **told}
        (own / "config.json").write_text(json.dumps(file))
        tensors = {f"linear.{name}": tensor.detach() for name, tensor in matrix.named_parameters()}
        save_file(tensors, own / "model.safetensors")
        modules.append({"idx": number, "path": own.name, "type": _DENSE})
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize("seed", range(8))
def test_random_ones_are_transformers_own(seed: int, tmp_path: Path) -> None:
    told = {**draw("gemma3_text", random.Random(seed)), **_BOTH_WAYS}
    told.pop("layer_types", None)  # as many as another model has layers
    found = compare("gemma3_text", told, tmp_path)
    assert found.kind in ("equal", "refused by name"), found


@torch.no_grad()
def test_a_prompt_longer_than_a_block_of_queries_sees_all_of_itself(tmp_path: Path) -> None:
    model = make_reference("gemma3_text", **_BOTH_WAYS)
    texts = prompts(60, 1, 7)
    answers = alone(save(model, tmp_path), texts)
    for number, text in enumerate(texts):
        torch.testing.assert_close(
            torch.stack(answers[number]), reference_logits(model, text), atol=1e-4, rtol=0
        )


@torch.no_grad()
@pytest.mark.parametrize("bias", [False, True])
def test_matrices_beside_a_checkpoint_follow_the_mean(bias: bool, tmp_path: Path) -> None:
    model = make_reference("gemma3_text", **_BOTH_WAYS)
    width = model.config.hidden_size
    matrices = nn.Linear(width, 48, bias), nn.Linear(48, 24, bias)
    _with_dense(save(model, tmp_path), *matrices)
    [text] = prompts(11)
    rows = model(torch.tensor([text])).last_hidden_state[0].mean(0)
    want = nn.functional.normalize(nn.Sequential(*matrices)(rows), dim=-1)
    torch.testing.assert_close(alone(tmp_path, [text])[0][0], want, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"activation_function": "torch.nn.modules.activation.Tanh"}, "activation_function is"),
        ({"in_features": 3}, "in_features is 3: a row has"),
        ({"in_features": None}, "in_features is None"),
        ({"out_features": 10**9}, "out_features"),
    ],
)
def test_other_matrices_are_refused(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    model = make_reference("gemma3_text", **_BOTH_WAYS)
    _with_dense(save(model, tmp_path), nn.Linear(model.config.hidden_size, 8), **told)
    with pytest.raises((ConfigError, UsageError), match=said):
        find_model(str(tmp_path), {}).checkpoint.model_config()


# By SGLang's own class, in 0.5.17 and 0.5.23, made beside these files: its layers, and two matrices.
_HELD = 605726208, 2 * 768 * 3072 * 2


def test_a_rank_holds_the_published_models_matrices_whole(tmp_path: Path) -> None:
    published = json.loads((DATA / "published_families.json").read_text())["google/embeddinggemma-300m"]
    (tmp_path / "config.json").write_text(json.dumps(published))
    matrices = nn.Linear(768, 3072, bias=False), nn.Linear(3072, 768, bias=False)
    _with_dense(tmp_path, *matrices)
    model = find_model(str(tmp_path), {}).checkpoint.model_config()
    for tp, dense in ((1, _HELD[1]), (3, _HELD[1])):
        comm = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
        made = Decoder(model, RuntimeConfig(), comm, torch.device("meta"), range(model.num_layers))
        assert made.dense is not None and bytes_of(made.dense) == dense
        assert tp > 1 or bytes_of(made) == sum(_HELD)
