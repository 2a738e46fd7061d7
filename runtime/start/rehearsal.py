"""Runs one layer of each kind of one virtual rank, at any number of rows, for tuning and its proof.

Tactics depend on shapes, not on peers or depth, so a deployment of any size fits one small device.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch

from runtime.decoder.decoder import Decoder, sample_layers
from runtime.devices.base import Device
from runtime.forward.batch import ForwardBatch, dummy_decode_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.dp_attention import RunnerKind, plan_dp_tokens
from runtime.forward.kv_pool import make_kv_pool
from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.pool_plan import PoolPlan, kv_dtype_of
from runtime.server.sizes.state_sizes import states_for

_POOL = PoolPlan(tokens=64, page_size=64, kv_dtype="", max_running_requests=1, row_length=64)


class Rehearsal:
    def __init__(
        self,
        model: ModelConfig,
        parallel: ParallelConfig,
        runtime: RuntimeConfig,
        device: Device,
        rank: int = 0,
    ) -> None:
        runtime = _by_kernels_of_ours(runtime)
        model = _as_called(model, runtime)
        self._device, self._runtime, self._parallel = device, runtime, parallel
        self._vocabulary = model.vocabulary.size
        layers = sample_layers(model)
        comm = VirtualCommunicator(parallel, rank)
        self._decoder = Decoder(model, runtime, comm, device.torch_device, layers)
        self._decoder.load_dummy()
        states = states_for(1, runtime) if model.recurrent is not None else None
        plan = replace(_POOL, kv_dtype=kv_dtype_of(runtime), states=states)
        self._pool = make_kv_pool(plan, model, parallel, layers, device.torch_device)

    def forward_all(self, sizes: Iterable[int]) -> None:
        for rows in sizes:
            self.forward(rows)

    def forward(self, rows: int) -> None:
        """Run the layers without the LM head. The experts get `rows` rows or more, equally per DP rank."""
        self._run(self._batch(rows, "eager"))

    def capture(self, rows: int) -> None:
        """Capture the same forward as a CUDA graph, and replay it once."""
        batch = self._batch(rows, "decode_graph")
        run = partial(self._run, batch)
        self._device.capture(run, self._device.graph_pool(), name=f"decode {rows}").replay()
        self._device.synchronize()

    def _batch(self, rows: int, kind: RunnerKind) -> ForwardBatch:
        local = -(-rows // self._parallel.attn_dp)
        target = self._device.torch_device
        batch = dummy_decode_batch(local, 1, target)
        # Equal tokens would all be routed to the same experts.
        tokens = torch.randint(self._vocabulary, (local,), device=target)
        dp = plan_dp_tokens(
            local, kind, self._parallel, moe_a2a_backend=self._runtime.kernels.a2a, device=target
        )
        return replace(batch, input_ids=tokens, dp=dp)

    def _run(self, batch: ForwardBatch) -> None:
        with torch.inference_mode():
            self._decoder.run_layers(batch, self._pool)


def _by_kernels_of_ours(runtime: RuntimeConfig) -> RuntimeConfig:
    """Replace an experts' backend that we do not have and nobody tunes, so that other layers can run."""
    backend = backend_row(runtime.kernels.moe)
    has_others = not backend.kernels and not backend.is_tuned
    return replace(runtime, kernels=replace(runtime.kernels, moe="triton")) if has_others else runtime


def _as_called(model: ModelConfig, runtime: RuntimeConfig) -> ModelConfig:
    """Drop the experts' biases for CUTLASS: SGLang does not pass them, so it tunes for a model without."""
    moe = model.moe
    if moe is None or not moe.biases or backend_row(runtime.kernels.moe).calls != "cutlass":
        return model
    return replace(model, moe=replace(moe, biases=False))
