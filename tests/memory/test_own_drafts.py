"""Drafts that are models of their own, beside SGLang's class: their weights, and their pools."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.own_draft import OwnDraftModel
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig, ParallelConfig, RuntimeConfig, SpeculativeConfig
from runtime.server.own_draft import OwnDraft
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.memory.predict import predict
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.start import starts_of
from tests.oracle.drafts import RECORDED, config_of

META = torch.device("meta")
HELD = json.loads(RECORDED.read_text())
BY_NAME = {draft["name"]: draft for draft in HELD["drafts"]}
RUNTIME = RuntimeConfig(speculative=SpeculativeConfig("EAGLE3"))


def _model(name: str = "Llama-3.1-8B", **changes: Any) -> ModelConfig:
    return Checkpoint({**config_of(HELD, BY_NAME[name]), **changes}).model_config()


@pytest.mark.parametrize(
    ("name", "tp"), [(name, int(tp)) for name in BY_NAME for tp in BY_NAME[name]["bytes"]]
)
def test_a_rank_holds_as_many_bytes_as_sglangs_own_draft(name: str, tp: int) -> None:
    model, parallel = _model(name), ParallelConfig(tp=tp)
    own = OwnDraft(model, RUNTIME, parallel, (), 1, "fa3")
    draft = OwnDraftModel(own, VirtualCommunicator(parallel, tp - 1), META)
    assert model.obstacles == ()
    assert sum(one.nbytes for one in draft.parameters()) == BY_NAME[name]["bytes"][str(tp)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"num_layers_of_experts": 3}, "num_layers_of_experts is not read here"),
        ({"eagle_config": {"parallel_drafting": True}}, "eagle_config: parallel_drafting is not read here"),
        (
            {"num_hidden_layers": 2},
            "num_hidden_layers is 2: this runtime computes EAGLE3 drafts of one layer",
        ),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ],
)
def test_what_is_not_read_of_a_draft_is_named(changes: dict[str, Any], why: str) -> None:
    assert why in _model(**changes).obstacles[0]


CONFIG = config_of(HELD, BY_NAME["Llama-3.1-8B"])
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@cache
def _folder(tmp: Path, text: str) -> Path:
    (tmp / "config.json").write_text(text)
    return tmp


def _deployed(tmp: Path, config: dict[str, Any], model: str = LLAMA, **flags: Any) -> Deployment:
    (tmp / "config.json").write_text(json.dumps(config))
    asked = {"gpu": "h200", "speculative_algorithm": "EAGLE3", "sglang_version": "0.5.23", **flags}
    given = ServerFlags(model_path=model, speculative_draft_model_path=str(tmp), **asked)
    return select_deployments(given)[0]


def _report(deployment: Deployment) -> MemoryReport:
    return predict(starts_of(deployment, "0")[0])
