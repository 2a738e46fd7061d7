"""A decoder with random weights that runs a prefill and a decode, as one rank on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from runtime.decoder.decoder import Decoder
from runtime.forward.batch import dummy_decode_batch, dummy_extend_batch
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.kv_pool import KVPool, make_kv_pool
from runtime.forward.logits_processor import LogitsOutput
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.pool_plan import PoolPlan
from runtime.server.sizes.state_sizes import StatePlan
from tests.runtime.configs import runtime_config

CPU = torch.device("cpu")
REQUESTS, LENGTH = 8, 64


def make_runtime(**changes: Any) -> RuntimeConfig:
    return runtime_config(**{"dtype": "float32", "moe_runner_backend": "torch", **changes})


def make_pool(
    model: ModelConfig, comm: Communicator, layers: Sequence[int], dtype: torch.dtype, device: torch.device
) -> KVPool:
    name = str(dtype).removeprefix("torch.")
    states = StatePlan(REQUESTS, name, "float32") if model.recurrent else None
    plan = PoolPlan(REQUESTS * LENGTH, 1, name, REQUESTS, LENGTH, states=states)
    return make_kv_pool(plan, model, comm.layout.parallel, layers, device)


def dummy_decoder(model: ModelConfig, runtime: RuntimeConfig) -> Decoder:
    comm = VirtualCommunicator(ParallelConfig())
    decoder = Decoder(model, runtime, comm, CPU, range(model.num_layers))
    decoder.load_dummy()
    return decoder


def logits_of(decoder: Decoder) -> torch.Tensor:
    """The logits of a prefill of two requests, then of one more token of each."""
    pool = make_pool(decoder.model, decoder.comm, decoder.layer_ids, decoder.build.dtype, CPU)
    found = []
    for batch in (dummy_extend_batch(14, 7, CPU), dummy_decode_batch(2, 1, CPU)):
        output = decoder(batch, pool)
        assert isinstance(output, LogitsOutput) and output.next_token_logits is not None
        found.append(output.next_token_logits)
    return torch.cat(found)
