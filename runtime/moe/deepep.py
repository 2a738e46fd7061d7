"""What a dispatch and a combine of DeepEP allocate in torch, on tensors without memory: no row is moved.

The buffers behind it are no tensors: see `runtime.start.first_use.open_deepep`. Rows are routed evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, prod

import torch

from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import dp_buffer_len, pad_rows
from runtime.moe.a2a_workspace import WorkspaceOverflow
from runtime.moe.dispatch import Dispatcher, Route
from runtime.moe.sizes_alone import launch
from runtime.moe.weights import TopK
from runtime.server.deepep import DeepEP
from runtime.server.layer_config import MoEConfig

ALIGNMENT = 128
_NODE = 8
_GROUP = 128


@dataclass(frozen=True, slots=True)
class Received(TopK):
    """Where the rows that came are to go. `expert_rows`: those of all experts here, each expert's padded to
    a multiple of 128; None where every expert has a place of its own for whatever comes."""

    scales: torch.Tensor | None = None
    expert_rows: int | None = None


class DeepEPDispatcher(Dispatcher):
    replicates_shared_experts = True

    def __init__(self, comm: Communicator, deepep: DeepEP, moe: MoEConfig, in_bf16: bool) -> None:
        self.comm, self.deepep, self.moe, self.in_bf16 = comm, deepep, moe, in_bf16
        self.ranks = comm.size("moe_ep")
        self.local = moe.places // self.ranks
        self.asked = -(-moe.num_experts // self.ranks)  # of those as likely: copies share what comes to one
        self.handle: tuple[torch.Tensor, ...] = ()

    @property
    def breaks_graphs(self) -> bool:
        """The normal mode waits for the counts of what comes, which no graph can."""
        return dp_buffer_len().kind == "prefill_graph" and self._is_normal

    @property
    def _is_normal(self) -> bool:
        return self.deepep.is_normal(dp_buffer_len().is_extend)

    def dispatch(self, x: torch.Tensor, route: Route) -> tuple[torch.Tensor, TopK]:
        rank, ranks = self.comm.rank("attn_tp"), self.comm.size("attn_tp")
        rows = -(-x.shape[0] // ranks)
        part = pad_rows(x, rows * ranks)[rank * rows : (rank + 1) * rows]
        chosen = route(part)
        ids = chosen.ids.to(torch.int64)
        if self._is_normal:
            return self._normal(part, ids, chosen)
        return self._low_latency(part, ids, chosen)

    def combine(self, out: torch.Tensor, rows: int) -> torch.Tensor:
        ranks = self.comm.size("attn_tp")
        part = out.new_empty(-(-rows // ranks), out.shape[-1])
        launch(part)
        self.handle = ()
        if ranks == 1:
            return part
        local = part.new_empty(part.shape[0] * ranks, part.shape[1])
        self.comm.all_gather_into(local, part, "attn_tp")
        return local[:rows]

    def _low_latency(self, x: torch.Tensor, ids: torch.Tensor, chosen: TopK) -> tuple[torch.Tensor, Received]:
        """Room for as many rows from every rank as it may ever send, for each expert."""
        self._check(x.shape[0])
        room, hidden = self.ranks * self.deepep.tokens, x.shape[1]
        rows = x.new_empty(self.local, room, hidden, dtype=self._kind(x))
        sources = x.new_empty(self.local, room, dtype=torch.int32)
        ranges = x.new_empty(self.local, self.ranks, dtype=torch.int64)
        counts = x.new_empty(self.local, dtype=torch.int32)
        scales = None
        if rows.dtype is not x.dtype:
            scales = x.new_empty(self.local, -(-hidden // _GROUP), room, dtype=torch.float32)
        launch(rows)
        self.handle = (sources, ranges, counts)
        return rows, Received(ids, chosen.weights, chosen.logits, scales=scales)

    def _normal(self, x: torch.Tensor, ids: torch.Tensor, chosen: TopK) -> tuple[torch.Tensor, Received]:
        """Each rank that holds some of a row's experts gets it once."""
        sent, sent_scales = self._sent(x)
        total, top_k = self._total(x.shape[0]), ids.shape[1]
        came = round(total * share_of_rows(self.moe, self.asked))
        handle = self._handle(x, total, came)
        rows = sent.new_empty(came, x.shape[1])
        received = ids.new_empty(came, top_k), chosen.weights.new_empty(came, top_k)
        scales = None if sent_scales is None else sent_scales.new_empty(came, sent_scales.shape[1])
        launch(rows)
        self.handle = handle
        assigned = total * top_k // self.ranks
        expert_rows = aligned_rows(assigned, self.local)
        return rows, Received(*received, chosen.logits, scales=scales, expert_rows=expert_rows)

    def _sent(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._kind(x) is x.dtype:
            return x, None
        scales = x.new_empty(x.shape[0], -(-x.shape[1] // _GROUP), dtype=torch.float32)
        sent = x.new_empty(x.shape, dtype=self._kind(x))
        launch(sent, scales)
        return sent, scales

    def _handle(self, x: torch.Tensor, total: int, came: int) -> tuple[torch.Tensor, ...]:
        """What a combine needs to send the answers back."""
        rows = x.shape[0]
        is_for_rank = x.new_empty(rows, self.ranks, dtype=torch.bool)
        if self.ranks <= _NODE:
            sources = x.new_empty(came, dtype=torch.int32)
            return is_for_rank, sources, x.new_empty(rows, self.ranks, dtype=torch.int32)
        nodes = self.ranks // _NODE
        passed_on = round(total // _NODE * share_of_rows(self.moe, _NODE * self.asked))
        sources = x.new_empty(came, 8, dtype=torch.uint8)
        heads = x.new_empty(rows, nodes, dtype=torch.int32), x.new_empty(passed_on, _NODE, dtype=torch.int32)
        return is_for_rank, sources, *heads

    def _kind(self, x: torch.Tensor) -> torch.dtype:
        return x.dtype if self.in_bf16 else torch.float8_e4m3fn

    def _total(self, rows: int) -> int:
        """Rows of all ranks."""
        counts = dp_buffer_len().global_num_tokens_cpu
        return rows * self.ranks if counts is None else sum(counts)

    def _check(self, rows: int) -> None:
        if rows > self.deepep.tokens:
            raise WorkspaceOverflow(
                f"{rows} tokens a rank do not fit DeepEP's dispatch with low latency, which is made for "
                f"{self.deepep.tokens}: raise SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK, or lower "
                "--cuda-graph-max-bs and --max-running-requests"
            )


def share_of_rows(moe: MoEConfig, held: int) -> float:
    """Of all rows, those with some of their experts among the `held` of a rank: each group of experts is as
    likely to be looked at, and each expert in those that are."""
    group = moe.num_experts // moe.num_groups
    if moe.from_each_group:
        return 1 - prod(_spared(moe, min(group, held - first)) for first in range(0, held, group))
    mine, width = (1, held) if held <= group else (held // group, group)
    looked_at = moe.top_k_groups if moe.num_groups > 1 else 1
    experts, others = group * looked_at, moe.num_groups - mine
    share = 0.0
    for both in range(min(mine, looked_at) + 1):
        likely = comb(mine, both) * comb(others, looked_at - both) / comb(moe.num_groups, looked_at)
        share += likely * (1 - comb(experts - both * width, moe.top_k) / comb(experts, moe.top_k))
    return share


def _spared(moe: MoEConfig, held: int) -> float:
    """How likely none of so many experts of one group is chosen."""
    group, each = moe.num_experts // moe.num_groups, moe.top_k // moe.num_groups
    return comb(group - held, each) / comb(group, each)


def aligned_rows(assigned: int, experts: int) -> int:
    """Rows of `experts` that share what is assigned evenly, each padded to a multiple of 128."""
    busy = min(assigned, experts)
    return 0 if not busy else busy * (-(-assigned // busy // ALIGNMENT) * ALIGNMENT)
