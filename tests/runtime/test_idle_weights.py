"""What a pipeline stage holds and never computes with: as many bytes as SGLang's own class makes for it."""

from __future__ import annotations

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.start.weights_beside import idle_weights
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

META, STAGES = torch.device("meta"), 3
# A matrix of its vocabulary in bfloat16, padded to rows by 64; of each stage that does not compute with it.
_TABLE = 128 * 64 * 2


@pytest.mark.parametrize(
    ("family", "is_tied", "release", "idle"),
    [
        ("llama", False, "0.5.23", [1, 1, 0]),
        ("ministral3", False, "0.5.12", [1, 1, 0]),
        ("phi3", False, "0.5.23", [1, 1, 0]),
        ("qwen2", False, "0.5.23", [0, 0, 0]),
        ("qwen2", True, "0.5.23", [0, 0, 0]),
        ("minimax_m2", False, "0.5.12", [0, 1, 1]),
        ("minimax_m2", False, "0.5.23", [0, 1, 1]),
        ("exaone4", False, "0.5.22", [1, 1, 0]),
        ("exaone4", True, "0.5.23", [1, 1, 0]),
    ],
)
def test_a_stage_holds_tables_that_another_reads(
    family: str, is_tied: bool, release: str, idle: list[int]
) -> None:
    told = served_json(make_reference(family, num_hidden_layers=4))
    model = Checkpoint({**told, "tie_word_embeddings": is_tied, "dtype": "bfloat16"}).model_config()
    parallel = ParallelConfig(pp=STAGES)
    runtime = RuntimeConfig(sglang_version=release)
    found = []
    for stage in range(STAGES):
        layers = stage_layers(model.num_layers, parallel, stage)
        rank = Decoder(model, runtime, VirtualCommunicator(parallel, stage), META, layers)
        found.append(sum(one.nbytes for one in idle_weights(rank)))
    assert found == [count * _TABLE for count in idle]
