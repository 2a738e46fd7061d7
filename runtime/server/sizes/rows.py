"""How many rows a server's kernels see: the dummy batch it tunes on, and the batches it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.server.parallel import ParallelConfig
from runtime.server.shape import Server

# Of all attention-DP ranks, of this one's group, this rank's part of the group's.
Seen = Literal["gathered", "own", "scattered"]


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Upper bounds."""

    tuning: int
    prefill: int

    @property
    def serving(self) -> int:
        return max(self.tuning, self.prefill)


def batch_rows(server: Server, seen: Seen = "gathered") -> BatchRows:
    """The number of requests depends on the KV pool unless it is given: then its upper bound is taken."""
    width = server.runtime.width
    dummy = aligned_rows(server.dummy_batch_rows // width, width, server.parallel)
    dummy, prefill = (_as_seen(rows, server, seen) for rows in (dummy, server.runtime.prefill_tokens))
    return BatchRows(dummy, prefill)


def _as_seen(rows: int, server: Server, seen: Seen) -> int:
    if seen == "gathered":
        return rows * server.parallel.attn_dp
    return -(-rows // server.parallel.attn_tp) if seen == "scattered" else rows


def aligned_rows(requests: int, width: int, parallel: ParallelConfig) -> int:
    """Of one rank's dummy batch: attention-TP ranks share it evenly where DP attention must sync."""
    if parallel.enable_dp_attention:
        requests = -(-requests // parallel.attn_tp) * parallel.attn_tp
    return requests * width
