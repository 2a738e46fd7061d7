"""What a started rank does with a batch: by graphs that all peers replay, or eagerly."""

from __future__ import annotations

import torch

from runtime.decoder.decoder import Decoder, StageState
from runtime.decoder.stage import run_stage
from runtime.devices.base import Device
from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput
from runtime.forward.peers import GraphKind, brings, meet
from runtime.graphs.decode import DecodeGraphs
from runtime.graphs.prefill import PrefillGraphs
from runtime.graphs.stage import StageGraphs
from runtime.server.config import RuntimeConfig
from runtime.server.parallel_config import ParallelConfig


class Serving:
    """The part of a model runner that its start fills in."""

    device: Device
    comm: Communicator
    parallel: ParallelConfig
    runtime: RuntimeConfig
    decoder: Decoder
    kv: KVPool
    prefill_graphs: PrefillGraphs | None = None
    decode_graphs: DecodeGraphs | None = None

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> LogitsOutput | StageState:
        """Logits on the last pipeline stage, elsewhere what went to the next: by graphs that fit all."""
        with self.device.active():
            batch, kind = self._joined(batch)
            graphs = {GraphKind.DECODE: self.decode_graphs, GraphKind.PREFILL: self.prefill_graphs}.get(kind)
            return graphs.forward(batch) if graphs else self.forward_eager(batch)

    def _joined(self, batch: ForwardBatch) -> tuple[ForwardBatch, GraphKind]:
        """The batch with the rows of all attention-DP ranks, and the graphs that all of them replay."""
        alone = self._own_graphs(batch)
        if not self.parallel.gathers_mlp:
            return batch if batch.dp else self.dp_batch(batch), alone
        peers, kind = meet(brings(batch, alone), self.comm)
        return self.dp_batch(batch, peers), kind

    def _own_graphs(self, batch: ForwardBatch) -> GraphKind:
        if batch.mode is ForwardMode.IDLE:
            return GraphKind.ANY
        is_prefill = batch.mode is ForwardMode.EXTEND
        graphs: StageGraphs | None = self.prefill_graphs if is_prefill else self.decode_graphs
        if graphs is None or not graphs.can_run(batch):
            return GraphKind.NONE
        return GraphKind.PREFILL if is_prefill else GraphKind.DECODE

    def forward_eager(self, batch: ForwardBatch) -> LogitsOutput | StageState:
        return run_stage(self.decoder, batch, self.kv, self.comm)

    def dp_batch(self, batch: ForwardBatch, peers: PeerRows | None = None) -> ForwardBatch:
        """The batch beside its peers', which bring as much where nobody says otherwise."""
        tokens = plan_dp_tokens(
            batch.num_tokens,
            "eager",
            self.parallel,
            moe_a2a_backend=self.runtime.kernels.a2a,
            peers=peers,
            dp_rank=self.comm.layout.attn_dp_rank,
            device=self.device.torch_device,
        )
        return batch.with_dp(tokens)
