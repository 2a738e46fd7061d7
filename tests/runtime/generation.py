"""Prompts through a decoder as on a server: a prefill, then token after token, on any rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from runtime.decoder.decoder import Decoder
from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.forward.kv_pool import KVPool, make_kv_pool
from runtime.forward.logits_processor import LogitsOutput
from runtime.models.known import model_config
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.server.sizes.pool_plan import PoolPlan
from runtime.server.sizes.state_sizes import StatePlan
from sgl_tune.deployment.deployment import find_model
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.checkpoints import load
from tests.runtime.configs import runtime_config
from tests.runtime.families import prompts, reference_logits

CPU = torch.device("cpu")
REQUESTS, LENGTH = 8, 64


def make_runtime(**changes: Any) -> RuntimeConfig:
    return runtime_config(**{"dtype": "float32", "moe_runner_backend": "torch", **changes})


def alone(folder: Path, device: torch.device = CPU, **runtime: Any) -> Generation:
    """On one rank."""
    one = ParallelConfig()
    return Generation(folder, one, make_runtime(**runtime), VirtualCommunicator(one), device)


def assert_answers_as(model: Any, generation: Generation, length: int, steps: int) -> None:
    """As transformers' model does, at the end of a prompt and for each decoded token."""
    [text] = prompts(length)
    rows = generation.run([text], steps)
    want = reference_logits(model, text)[-steps - 1 :]
    torch.testing.assert_close(torch.stack(rows[0]), want, atol=1e-4, rtol=0)


def make_pool(
    model: ModelConfig, comm: Communicator, layers: Sequence[int], dtype: torch.dtype, device: torch.device
) -> KVPool:
    name = str(dtype).removeprefix("torch.")
    states = StatePlan(REQUESTS, name, "float32") if model.recurrent else None
    plan = PoolPlan(REQUESTS * LENGTH, 1, name, REQUESTS, LENGTH, states=states)
    return make_kv_pool(plan, model, comm.layout.parallel, layers, device)


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
        load(self.decoder, folder)
        self.pool = make_pool(self.model, comm, self.layers, self.decoder.build.dtype, device)

    def run(self, prompts: list[list[int]], steps: int) -> dict[int, list[torch.Tensor]]:
        """The last `steps` tokens of each prompt are decoded. Prompt -> one row of logits per forward."""
        width, rank = self.parallel.attn_dp, self.comm.layout.attn_dp_rank
        peers = [list(range(len(prompts)))[start::width] for start in range(width)]
        mine = peers[rank]
        requests = range(1, len(mine) + 1)
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
        place = {"dp_rank": self.comm.layout.attn_dp_rank, "device": batch.input_ids.device}
        told = {"moe_a2a_backend": self.runtime.kernels.a2a, "peers": peers, **place}
        dp = plan_dp_tokens(batch.num_tokens, "eager", self.parallel, **told)
        output = self.decoder.run_stage(batch.with_dp(dp), self.pool)
        return output.next_token_logits if isinstance(output, LogitsOutput) else None
