"""How many rows a server's kernels see: the dummy batch it tunes on, and the batches it serves."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.parallel_config import ParallelConfig
from runtime.server.shape import Server


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Upper bounds, as the MoE sees them: under DP attention the rows of all ranks are gathered."""

    tuning: int
    prefill: int

    @property
    def serving(self) -> int:
        return max(self.tuning, self.prefill)


def batch_rows(server: Server) -> BatchRows:
    """The number of requests depends on the KV pool unless it is given: then its upper bound is taken."""
    dummy = aligned_rows(server.dummy_batch_rows // server.width, server.width, server.parallel)
    gathered = dummy * server.attn_dp_size
    prefill = 0 if server.is_pd_decode else server.prefill_tokens * server.attn_dp_size
    return BatchRows(max(gathered, prefill) if server.tunes_prefills else gathered, prefill)


def aligned_rows(requests: int, width: int, parallel: ParallelConfig) -> int:
    """Of one rank's dummy batch: attention-TP ranks share it evenly where DP attention must sync."""
    if parallel.enable_dp_attention:
        requests = -(-requests // parallel.attn_tp) * parallel.attn_tp
    return requests * width
