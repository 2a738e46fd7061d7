"""Which autotune entries a deployment's server will ask for, while tuning at its start and while serving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from runtime.server.backends import backend_row
from runtime.server.buckets import bucket_of, next_power_of_2, tuning_buckets, tuning_range
from runtime.server.flashinfer import KeyForm, flashinfer_of
from runtime.server.rows import BatchRows, batch_rows
from sgl_tune.cache.policies import Policy
from sgl_tune.keys.call_shapes import moe_shapes, tunes_moe
from sgl_tune.keys.dense_shapes import dense_shapes, tunes_absorbed, tunes_dense, tunes_fp4, tunes_mxfp8
from sgl_tune.keys.expert_calls import calls_cutlass
from sgl_tune.keys.op_shapes import OpShape
from sgl_tune.keys.starts import never_starts

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

AskedBy = Literal["tuning", "serving"]


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """One lookup. `tuning`: the server's own autotune makes it; `serving`: only its requests do."""

    key: str
    bucket: int
    asked_by: AskedBy


@dataclass(frozen=True, slots=True)
class TunedOp:
    op: str
    runner: str
    policy: Policy
    entries: tuple[ExpectedEntry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)

    @property
    def buckets(self) -> tuple[int, ...]:
        return tuple(sorted({entry.bucket for entry in self.entries}))

    @property
    def serving_only(self) -> tuple[int, ...]:
        return tuple(sorted({entry.bucket for entry in self.entries if entry.asked_by == "serving"}))


def expected_keys(deployment: Deployment) -> tuple[TunedOp, ...]:
    """Empty where the server tunes nothing, or where its calls are not known: `unplanned` says which."""
    deployment = deployment.of_lookups
    if not deployment.server.tunes or deployment.shape.model is None or never_starts(deployment):
        return ()
    rows, form = batch_rows(deployment.server), flashinfer_of(deployment.flashinfer_version).keys
    merged: dict[tuple[str, str], TunedOp] = {}
    for shape, (buckets, tuned) in _lookups(deployment, rows):
        op = _tuned_op(shape, buckets, tuned, form)
        known = merged.get((op.op, op.runner))
        merged[op.op, op.runner] = op if known is None else _both(known, op)
    return tuple(merged.values())


def _both(known: TunedOp, op: TunedOp) -> TunedOp:
    """A start tunes what one of its layers asks for, whatever others do."""
    entries = {entry.key: entry for entry in known.entries}
    for entry in op.entries:
        if entry.asked_by == "tuning" or entry.key not in entries:
            entries[entry.key] = entry
    return TunedOp(op.op, op.runner, op.policy, tuple(entries.values()))


def asks_nothing(deployment: Deployment) -> bool:
    """The gate is open, and no layer goes through it: a dense model with a MoE backend, say."""
    deployment = deployment.of_lookups
    if not deployment.server.tunes or deployment.shape.model is None:
        return not deployment.server.tunes
    if never_starts(deployment):
        return True
    asks = (tunes_moe, tunes_dense, tunes_fp4, tunes_mxfp8, tunes_absorbed)
    if not any(ask(deployment) for ask in asks):
        return True
    known = _asked_ops(deployment)
    return bool(known) and known <= _skipped(deployment)


def skipped_ops(deployment: Deployment) -> frozenset[str]:
    """Which its layers ask for, and a server measures nothing of."""
    return _asked_ops(deployment.of_lookups) & _skipped(deployment)


def _asked_ops(deployment: Deployment) -> frozenset[str]:
    return frozenset(shape.op for shape in (*moe_shapes(deployment), *dense_shapes(deployment)))


def _skipped(deployment: Deployment) -> frozenset[str]:
    server = deployment.server
    return frozenset((*server.asked.flashinfer_autotune_skip_ops, *server.release.always_skipped_ops))


Buckets = tuple[tuple[int, ...], tuple[int, ...]]


def _lookups(deployment: Deployment, rows: BatchRows) -> Iterator[tuple[OpShape, Buckets]]:
    skipped = _skipped(deployment)
    for shape in moe_shapes(deployment):
        if shape.op not in skipped:
            yield shape, _moe_buckets(deployment, rows, shape.largest)
    for shape in dense_shapes(deployment):
        if shape.op not in skipped:
            own = batch_rows(deployment.server, shape.seen)
            yield shape, (_lattice(own.serving), _lattice(own.tuning))


def _moe_buckets(deployment: Deployment, rows: BatchRows, named: int | None) -> Buckets:
    """All, and those among them that the server's own autotune covers."""

    def buckets_up_to(count: int) -> tuple[int, ...]:
        server = deployment.server
        backend = backend_row("flashinfer_cutlass") if calls_cutlass(deployment) else server.backend
        largest = tuning_range(backend, server.release, count, rows.prefill, server.is_pd_decode)
        return tuning_buckets(named or largest)

    return buckets_up_to(rows.serving), buckets_up_to(rows.tuning)


def _lattice(rows: int) -> tuple[int, ...]:
    """Dense GEMMs round up without an upper end."""
    buckets = tuning_buckets(next_power_of_2(rows))
    return tuple(bucket for bucket in buckets if bucket <= bucket_of(rows, buckets))


def _tuned_op(shape: OpShape, buckets: tuple[int, ...], tuned: tuple[int, ...], form: KeyForm) -> TunedOp:
    entries = tuple(
        ExpectedEntry(key, bucket, "tuning" if bucket in tuned else "serving")
        for bucket in buckets
        for key in shape.keys(bucket, form)
    )
    return TunedOp(shape.op, shape.runner, shape.policy, entries)
