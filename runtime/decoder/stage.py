"""A forward of one pipeline stage, between those of its neighbours."""

from __future__ import annotations

import torch

from runtime.decoder.decoder import Decoder
from runtime.decoder.layer import StageState
from runtime.forward.batch import ForwardBatch
from runtime.forward.comm import Communicator
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput


def run_stage(
    decoder: Decoder, batch: ForwardBatch, pool: KVPool, comm: Communicator
) -> LogitsOutput | StageState:
    """With what the stages pass on: received before, sent after."""
    state = None if decoder.is_first else decoder.empty_state(batch.num_tokens)
    for tensor in _parts(state):
        comm.receive_previous(tensor)
    result = decoder(batch, pool, state)
    if isinstance(result, StageState):
        for tensor in _parts(result):
            comm.send_next(tensor)
    return result


def _parts(state: StageState | None) -> tuple[torch.Tensor, ...]:
    parts = () if state is None else (state.hidden, state.residual)
    return tuple(part for part in parts if part is not None)
