"""What SGLang's classes do where a server is to embed, and what ranks of those hold that do nothing else."""

from __future__ import annotations

import json

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.architectures import HYBRID
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.served_classes import SERVED
from runtime.server.embedders import BY_FLAG, OF_DECODERS, POOLING, is_embedder, takes_embedding
from runtime.server.parallel_config import ParallelConfig
from runtime.server.releases import RELEASES
from runtime.server.version_number import number
from tests.memory.rank_bytes import bytes_of
from tests.oracle.embedders import PLACES, RECORDED, file_of

FOUND = json.loads(RECORDED.read_text())
FORWARDS = FOUND["forwards"]


@pytest.mark.parametrize("name", sorted({name for names in SERVED.values() for name in names}))
def test_a_class_takes_it_that_it_is_to_embed_where_sglangs_does(name: str) -> None:
    for release in RELEASES:
        told = [how for since, how in FORWARDS.get(name, {}).items() if number(since) <= release.number]
        if not told:
            continue
        assert is_embedder(name) == (told[-1] == "never")
        assert told[-1] == "never" or takes_embedding(name, release.number) == (told[-1] != "ends"), release
        pools = name in POOLING
        assert pools == (told[-1] == "pools") or name in HYBRID


def test_all_that_generate_nothing_are_known() -> None:
    assert {name for name, told in FORWARDS.items() if "never" in told.values()} == set(
        filter(is_embedder, FORWARDS)
    )


@pytest.mark.parametrize("tp", PLACES)
@pytest.mark.parametrize("name", sorted(OF_DECODERS | BY_FLAG))
def test_a_rank_holds_as_many_bytes_as_sglangs_own_class(name: str, tp: int) -> None:
    model, layout = Checkpoint(file_of(name)).model_config(), ParallelConfig(tp=tp)
    comm = VirtualCommunicator(layout, tp - 1)
    rank = Decoder(model, RuntimeConfig(), comm, torch.device("meta"), range(model.num_layers))
    assert rank.head is None
    assert bytes_of(rank) == FOUND["held"][name][PLACES.index(tp)]
