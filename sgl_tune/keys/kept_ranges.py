"""Which entries CUTLASS's experts look up where each call names a range of its own: of SGLang until 0.5.22.

FlashInfer keeps the last range that was new to it, and no call that names one again brings it back:
MoERunner.refine_tuning_config of flashinfer/fused_moe/core.py, cached by its value, in 0.6.11 to 0.7.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.server.buckets import bucket_of, next_power_of_2, tuning_buckets
from runtime.server.rows import batch_rows
from sgl_tune.keys.expert_calls import calls_cutlass

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


@dataclass(frozen=True, slots=True)
class KeptRanges:
    """Rows of each graph and those that it looks up, in the order of captures; then the range that stays, and
    the largest that was named."""

    prefills: tuple[tuple[int, int], ...]
    decodes: tuple[tuple[int, int], ...]
    last: int
    largest: int


def kept_ranges(deployment: Deployment) -> KeptRanges | None:
    """None where all calls name one range, or a server captures nothing. Of as many requests as a server
    may have at most."""
    server, runtime = deployment.server, deployment.runtime
    by_calls = server.is_pd_decode or not server.release.ranges_by_chunk
    if deployment.model.moe is None or not by_calls or not calls_cutlass(deployment):
        return None
    if server.moe_a2a_backend != "none":
        return None
    groups, width = server.attn_dp_size, 1 if runtime.two_batches else server.width
    prefills = [rows * groups for rows in sorted(runtime.prefill_graphs, reverse=True)]
    decodes = [rows * width * groups for rows in sorted(runtime.decode_graphs, reverse=True)]
    if not decodes:
        return None
    tuned = [batch_rows(server).tuning] if server.tunes else []
    found = [*_looked_up((*tuned, *prefills, *decodes))]
    largest = max(next_power_of_2(rows) for rows in (*tuned, *prefills, *decodes))
    graphs = [(rows, bucket) for rows, bucket, _ in found[len(tuned) :]]
    cut = len(prefills)
    return KeptRanges(tuple(graphs[:cut]), tuple(graphs[cut:]), found[-1][2], largest)


def _looked_up(named: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Rows, the bucket that they find, and the range that is kept then."""
    known, kept = set[int](), 1
    for rows in named:
        own = next_power_of_2(rows)
        kept = kept if own in known else own
        known.add(own)
        yield rows, bucket_of(rows, tuning_buckets(kept)), kept


def told_ranges(deployment: Deployment) -> tuple[str, ...]:
    """Where requests are served by other entries than those of their rows."""
    found = kept_ranges(deployment)
    if found is None:
        return ()
    version = deployment.server.release.version
    why = f"SGLang {version} names FlashInfer a range in each call, which keeps the last that was new"
    cut = [rows for rows, bucket in found.decodes if bucket < rows]
    told = []
    if cut:
        bucket = dict(found.decodes)[cut[0]]
        told.append(f"decode graphs of {cut[-1]} to {cut[0]} rows run the experts of {bucket} rows: {why}")
    if found.last < found.largest and not _holds_prefills(deployment):
        told.append(
            f"prefills beside graphs run the experts of {found.last} rows until one has more than "
            f"{found.largest}: {'as above' if cut else why}"
        )
    return tuple(told)


def _holds_prefills(deployment: Deployment) -> bool:
    """Graphs do."""
    return max(deployment.runtime.prefill_graphs, default=0) >= deployment.server.prefill_tokens
