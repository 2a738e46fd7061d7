"""Which autotune entries a deployment's server will ask for, while tuning at its start and while serving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from runtime.server.buckets import bucket_of, next_power_of_2, tuning_buckets, tuning_range
from runtime.server.flashinfer import KeyForm, flashinfer_of
from runtime.server.rows import BatchRows, batch_rows
from sgl_tune.keys.call_shapes import (
    dense_shapes,
    moe_shapes,
    tunes_by_cutlass,
    tunes_dense,
    tunes_fp4,
    tunes_moe,
    tunes_mxfp8,
)
from sgl_tune.keys.op_shapes import OpShape, Policy

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
    """Empty where the server tunes nothing, or where its calls are not known: `gaps` says which."""
    if not deployment.server.tunes or deployment.shape.model is None:
        return ()
    rows, form = batch_rows(deployment.server), flashinfer_of(deployment.flashinfer_version).keys
    merged: dict[tuple[str, str], TunedOp] = {}
    for shape, (buckets, tuned) in _lookups(deployment, rows):
        op = _tuned_op(shape, buckets, tuned, form)
        known = merged.get((op.op, op.runner))
        entries = (*(known.entries if known else ()), *op.entries)
        unique = tuple({entry.key: entry for entry in entries}.values())
        merged[op.op, op.runner] = TunedOp(op.op, op.runner, op.policy, unique)
    return tuple(merged.values())


def asks_nothing(deployment: Deployment) -> bool:
    """The gate is open, and no layer goes through it: a dense model with a MoE backend, say."""
    if not deployment.server.tunes or deployment.shape.model is None:
        return not deployment.server.tunes
    asks = (tunes_moe, tunes_dense, tunes_fp4, tunes_mxfp8, tunes_by_cutlass)
    return not any(ask(deployment) for ask in asks)


def gaps(deployment: Deployment) -> tuple[str, ...]:
    """What the server tunes that is not planned for, and why; nothing when the plan is complete."""
    server = deployment.server
    if not server.tunes:
        return (f"this server tunes nothing: {server.tunes_because}",)
    if asks_nothing(deployment):
        return ("nothing to tune: the server's autotuner runs, and no layer of this model asks it",)
    if deployment.shape.model is None:
        return (f"unknown: which entries the server tunes ({deployment.shape.unknown})",)
    return tuple(_gaps_of_known(deployment))


def _gaps_of_known(deployment: Deployment) -> Iterator[str]:
    server, quantization = deployment.server, deployment.quantization
    if tunes_moe(deployment) and not moe_shapes(deployment):
        yield (
            f"unknown: the lookups of {server.moe_runner_backend} with quantization {quantization} and "
            f"all-to-all {server.moe_a2a_backend}"
        )
    if tunes_dense(deployment) and not dense_shapes(deployment):
        yield "unknown: the FP8 GEMMs of multi-head latent attention, or of mixed weights"
    if tunes_fp4(deployment):
        yield "unknown: the FP4 GEMMs of dense layers, which the server tunes as well"
    if tunes_mxfp8(deployment):
        yield "unknown: the MXFP8 GEMMs of dense layers, which the server tunes as well"
    if tunes_by_cutlass(deployment):
        yield "unknown: the GEMMs of --fp8-gemm-backend flashinfer_cutlass"
    if server.backend.defers_finalising and quantization == "modelopt_fp4" and _defers(deployment):
        yield (
            "not planned: nvfp4 experts of decode graphs of up to 192 rows, which SGLang leaves unfinalised "
            "for a later kernel; its own autotune does not cover them either"
        )


def _defers(deployment: Deployment) -> bool:
    return deployment.model.is_mla and deployment.server.release.defers_finalising


Buckets = tuple[tuple[int, ...], tuple[int, ...]]


def _lookups(deployment: Deployment, rows: BatchRows) -> Iterator[tuple[OpShape, Buckets]]:
    for shape in moe_shapes(deployment):
        yield shape, _moe_buckets(deployment, rows)
    for shape in dense_shapes(deployment):
        yield shape, (_lattice(rows.serving), _lattice(rows.tuning))


def _moe_buckets(deployment: Deployment, rows: BatchRows) -> Buckets:
    """All, and those among them that the server's own autotune covers."""

    def buckets_up_to(count: int) -> tuple[int, ...]:
        server = deployment.server
        largest = tuning_range(server.backend, server.release, count, rows.prefill, server.is_pd_decode)
        return tuning_buckets(largest)

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
