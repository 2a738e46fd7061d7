"""What a rank holds of Hunyuan 4's draft and pool, beside SGLang's own classes."""

from __future__ import annotations

import json

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.forward.kv_pool import LatentPool, make_cache
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.errors import Unsupported
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.sizing import kv_bytes_per_token
from tests.memory.checkpoints import DATA

META = torch.device("meta")
_FILES = json.loads((DATA / "published_families.json").read_text())
MODEL = Checkpoint(_FILES["a/hy4-preview-as-its-classes-have-it"]).model_config()


# What srt/models/hunyuan_v4_nextn.py holds, on meta tensors: one stream, an indexer, tables of its own.
@pytest.mark.parametrize(("tp", "held"), [(1, 4881671808), (2, 2467653184), (8, 657139216)])
def test_a_rank_of_its_draft_holds_as_many_bytes_as_sglangs_own(tp: int, held: int) -> None:
    comm = VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
    draft = DraftModel(MODEL, RuntimeConfig(), comm, META)
    assert sum(one.nbytes for one in draft.parameters()) == held


def test_a_stage_that_begins_within_a_shared_choice_is_refused_by_name() -> None:
    comm = VirtualCommunicator(ParallelConfig())
    with pytest.raises(Unsupported, match="a stage begins with layer 3"):
        Decoder(MODEL, RuntimeConfig(), comm, META, range(3, 34))


@pytest.mark.parametrize(("tokens", "held"), [(640, 28503824), (12800, 520837904)])
def test_its_pool_holds_what_sglangs_own_holds(tokens: int, held: int) -> None:
    """tests/oracle/read_pooled.py: DSATokenToKVPool with 34 pointers, and the bytes of a token of
    DefaultPoolConfigurator. Layers that share a choice keep no keys for one; a draft's does."""
    layers = range(34)
    cache = make_cache(PoolPlan(tokens, 64, "bfloat16", 7, 1), MODEL, ParallelConfig(tp=8), layers, META)
    assert isinstance(cache, LatentPool)
    assert sum(one.nbytes for one in cache.held()) + 34 * 8 == held
    per_token = [kv_bytes_per_token(MODEL, ParallelConfig(tp=8), "bfloat16", layers, n) for n in (0, 1)]
    assert per_token == [40488, 40488 + 1152 + 132]
