"""How many rows a server's kernels see: the dummy batch it tunes on, and the batches it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.server import sizing

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_MORE_TOKENS_THAN_ANY_POOL = 1 << 40
_PREFILL_WITHOUT_CHUNKS = 16384
_CPU_CHUNK = 8192
_EXTEND_PASS_SINCE = (0, 5, 18)


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Upper bounds, as the MoE sees them: under DP attention the rows of all ranks are gathered."""

    tuning: int
    prefill: int

    @property
    def serving(self) -> int:
        return max(self.tuning, self.prefill)


def batch_rows(deployment: Deployment) -> BatchRows:
    """The number of requests depends on the KV pool unless it is given: then its upper bound is taken."""
    parallel, runtime = deployment.parallel, deployment.runtime
    requests = sizing.max_running_requests(
        _MORE_TOKENS_THAN_ANY_POOL,
        context_length=runtime.context_length or deployment.model.max_position,
        requested=runtime.max_running_requests,
        parallel=parallel,
        speculative=runtime.speculative is not None,
    )
    dummy = sizing.dummy_batch_rows(requests, parallel, runtime) * parallel.attn_dp
    prefill = prefill_tokens(deployment)
    extended = runtime.autotune_extend and sizing.release(deployment.sglang_version) >= _EXTEND_PASS_SINCE
    return BatchRows(tuning=max(dummy, prefill) if extended else dummy, prefill=prefill)


def prefill_tokens(deployment: Deployment) -> int:
    """A gathered prefill chunk: every DP rank gets its share of --chunked-prefill-size. 0 where none runs."""
    if deployment.disaggregation_mode == "decode":
        return 0
    parallel, chunk = deployment.parallel, deployment.runtime.chunked_prefill_size
    if chunk is None:
        chunk = default_chunk(deployment)
    if chunk <= 0:
        return _PREFILL_WITHOUT_CHUNKS * parallel.attn_dp
    return sizing.chunk_per_rank(chunk, parallel) * parallel.attn_dp


def default_chunk(deployment: Deployment) -> int:
    if deployment.gpu_mib is None:
        return _CPU_CHUNK
    defaults = sizing.gpu_defaults(deployment.gpu_mib, deployment.parallel.tp, deployment.sglang_version)
    return defaults.chunked_prefill_size
