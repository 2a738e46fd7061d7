"""Find the autotune entries that a deployment's server looks up while it tunes and while it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.flashinfer.versions import other_keys_of
from runtime.server.buckets import bucket_of, next_power_of_2, tuning_buckets
from runtime.server.sizes.batches import batch_rows
from sgl_tune.cache.asked import ExpectedEntry, TunedOp
from sgl_tune.keys.calls import calls_of, op_shapes, unknown_experts
from sgl_tune.keys.op_shapes import DENSE_OPS, OpShape

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_LARGEST_OF_CHUNKS = 8192


def expected_keys(deployment: Deployment) -> tuple[TunedOp, ...]:
    """Return the tuned ops; none if the server tunes nothing, or if its calls or keys are not known."""
    if other_keys_of(deployment.inputs.flashinfer_version):
        return ()
    merged: dict[tuple[str, str], TunedOp] = {}
    for shape in op_shapes(deployment):
        if shape.op not in skipped_ops(deployment):
            op = _tuned_op(deployment, shape)
            known = merged.get((op.op, op.runner))
            merged[op.op, op.runner] = op if known is None else _both(known, op)
    return tuple(merged.values())


def _both(known: TunedOp, op: TunedOp) -> TunedOp:
    """Merge the entries of two layers for one op. An entry that either layer tunes counts as tuned."""
    entries = {entry.key: entry for entry in known.entries}
    for entry in op.entries:
        if entry.asked_by == "tuning" or entry.key not in entries:
            entries[entry.key] = entry
    return TunedOp(op.op, op.runner, op.policy, tuple(entries.values()))


def asks_nothing(deployment: Deployment) -> bool:
    """Whether no layer calls a tuned op: tuning is off, or the model is dense with a MoE backend, say."""
    if unknown_experts(deployment) is not None:
        return False
    return all(shape.op in skipped_ops(deployment) for shape in op_shapes(deployment))


def skipped_ops(deployment: Deployment) -> frozenset[str]:
    return frozenset(deployment.server.asked.flashinfer_autotune_skip_ops)


def _tuned_op(deployment: Deployment, shape: OpShape) -> TunedOp:
    buckets, tuned = _buckets(deployment, shape)
    entries = tuple(
        ExpectedEntry(shape.key(bucket), bucket, "tuning" if bucket in tuned else "serving")
        for bucket in buckets
    )
    return TunedOp(shape.op, shape.runner, shape.policy, entries)


def _buckets(deployment: Deployment, shape: OpShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return all buckets, and those of them that the server's own autotune covers."""
    rows = batch_rows(deployment.server, shape.seen)
    if shape.op in DENSE_OPS:
        return _lattice(rows.serving), _lattice(rows.tuning)
    if calls_of(deployment) == "cutlass":
        by_chunk = tuning_buckets(min(rows.prefill, _LARGEST_OF_CHUNKS))
        return by_chunk, by_chunk
    return tuning_buckets(next_power_of_2(rows.serving)), tuning_buckets(next_power_of_2(rows.tuning))


def _lattice(rows: int) -> tuple[int, ...]:
    """Return a dense GEMM's buckets. They round up without a limit."""
    buckets = tuning_buckets(next_power_of_2(rows))
    return tuple(bucket for bucket in buckets if bucket <= bucket_of(rows, buckets))
