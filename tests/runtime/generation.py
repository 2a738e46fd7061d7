"""Prompts through a decoder as on a server: a prefill, then token after token, on any rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from runtime.decoder.decoder import Decoder
from runtime.decoder.gqa import kv_shard
from runtime.decoder.stage import run_stage
from runtime.forward.batch import ForwardBatch, ForwardMode, make_decode_batch, make_extend_batch
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.forward.kv_pool import (
    GqaPool,
    KVPool,
    KVRow,
    LatentPool,
    PoolShape,
    ReqToTokenPool,
    SlotAllocator,
)
from runtime.forward.logits_processor import LogitsOutput
from runtime.forward.state_pool import StatePool
from runtime.models.known import model_config
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.layer_config import AttentionConfig
from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizes.state_sizes import StatePlan
from sgl_tune.deployment.models import find_model
from tests.runtime.configs import runtime_config

CPU = torch.device("cpu")
TOKENS, REQUESTS = 256, 8


def make_runtime(**changes: Any) -> RuntimeConfig:
    return runtime_config(**{"dtype": "float32", "moe_runner_backend": "torch", **changes})


def make_pool(
    model: ModelConfig, comm: Communicator, layers: Sequence[int], dtype: torch.dtype, device: torch.device
) -> KVPool:
    kept = tuple(layer for layer in layers if model.keeps_tokens(layer))
    shape = PoolShape(TOKENS, 1, kept, dtype, device)
    cache: GqaPool | LatentPool
    if model.mla is not None:
        assert model.mla is not None
        cache = LatentPool(shape, model.mla)
    else:
        cache = GqaPool(shape, {layer: _row(model.layer_attention(layer), comm) for layer in kept})
    return KVPool(
        ReqToTokenPool(REQUESTS, 64, device),
        SlotAllocator(TOKENS, device),
        cache,
        _states(model, comm, layers, dtype, device),
    )


def _row(attention: AttentionConfig, comm: Communicator) -> KVRow:
    heads = kv_shard(attention.num_kv_heads, comm.size("attn_tp"), comm.rank("attn_tp"))
    return KVRow(heads.stop - heads.start, attention.head_dim, attention.head_dim)


def _states(
    model: ModelConfig, comm: Communicator, layers: Sequence[int], dtype: torch.dtype, device: torch.device
) -> StatePool | None:
    if model.recurrent is None:
        return None
    own = [layer for layer in layers if model.is_recurrent(layer)]
    shape = model.recurrent.state_shape(comm.size("attn_tp"))
    plan = StatePlan(REQUESTS, "float32", "float32")
    return StatePool(plan, own, shape, dtype, torch.float32, device)


class Generation:
    """The prompts of one attention-DP rank; `peers` are those of all of them."""

    def __init__(
        self,
        folder: Path,
        parallel: ParallelConfig,
        runtime: RuntimeConfig,
        comm: Communicator,
        device: torch.device = CPU,
    ) -> None:
        self.parallel, self.runtime, self.comm = parallel, runtime, comm
        self.model = model_config(find_model(str(folder), {}).checkpoint.quantized)
        self.layers = stage_layers(self.model.num_layers, parallel, comm.layout.pp_rank)
        self.decoder = Decoder(self.model, runtime, comm, device, self.layers)
        self.decoder.load_hf(folder)
        self.pool = make_pool(self.model, comm, self.layers, self.decoder.build.dtype, device)

    def run(self, prompts: list[list[int]], steps: int) -> dict[int, list[torch.Tensor]]:
        """The last `steps` tokens of each prompt are decoded. Prompt -> one row of logits per forward."""
        width, rank = self.parallel.attn_dp, self.comm.layout.attn_dp_rank
        peers = [list(range(len(prompts)))[start::width] for start in range(width)]
        mine = peers[rank]
        requests = self.pool.requests.allocate(len(mine))
        rows: dict[int, list[torch.Tensor]] = {number: [] for number in mine}
        for step in range(steps + 1):
            lens = [len(prompts[number]) - steps + step for number in mine]
            if step == 0:
                tokens = [prompts[number][:length] for number, length in zip(mine, lens, strict=True)]
                batch = make_extend_batch(tokens, requests, self.pool)
                counts = [sum(len(prompts[n]) - steps for n in numbers) for numbers in peers]
            else:
                new = [prompts[number][length - 1] for number, length in zip(mine, lens, strict=True)]
                batch = make_decode_batch(new, requests, self.pool, [length - 1 for length in lens])
                counts = [len(numbers) for numbers in peers]
            output = self._forward(batch, counts, [len(numbers) for numbers in peers])
            if output is not None:
                for number, row in zip(mine, output, strict=True):
                    rows[number].append(row)
        return rows

    def _forward(self, batch: ForwardBatch, counts: list[int], heads: list[int]) -> torch.Tensor | None:
        peers = PeerRows(counts, heads, batch.mode is ForwardMode.EXTEND)
        dp = plan_dp_tokens(
            batch.num_tokens,
            "eager",
            self.parallel,
            moe_a2a_backend=self.runtime.kernels.a2a,
            peers=peers,
            dp_rank=self.comm.layout.attn_dp_rank,
            device=batch.input_ids.device,
        )
        output = run_stage(self.decoder, batch.with_dp(dp), self.pool, self.comm)
        return output.next_token_logits if isinstance(output, LogitsOutput) else None
