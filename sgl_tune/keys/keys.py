"""Which autotune entries a deployment's server will ask for, while tuning at its start and while serving."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from runtime.server import sizing
from runtime.server.flashinfer import KeyForm, flashinfer_of
from runtime.server.rows import BatchRows, batch_rows
from runtime.server.tuning_rules import autotune_runs, tunes_dense, tunes_moe
from sgl_tune.keys.call_shapes import dense_shapes, moe_shapes
from sgl_tune.keys.op_shapes import OpShape, Policy

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

AskedBy = Literal["tuning", "serving"]
_DEFERS_SINCE = (0, 5, 18)


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
    rows, form = batch_rows(deployment), flashinfer_of(deployment.flashinfer_version).keys
    merged: dict[tuple[str, str], TunedOp] = {}
    for shape, (buckets, tuned) in _lookups(deployment, rows):
        op = _tuned_op(shape, buckets, tuned, form)
        known = merged.get((op.op, op.runner))
        entries = (*(known.entries if known else ()), *op.entries)
        unique = tuple({entry.key: entry for entry in entries}.values())
        merged[op.op, op.runner] = TunedOp(op.op, op.runner, op.policy, unique)
    return tuple(merged.values())


def tunes_nothing(deployment: Deployment) -> bool:
    """Such a server neither reads nor writes a cache file."""
    return not (tunes_moe(deployment) or tunes_dense(deployment))


def gaps(deployment: Deployment) -> tuple[str, ...]:
    """What the server tunes that is not planned for, and why; nothing when the plan is complete."""
    backend, quantization = deployment.runtime.moe_runner_backend, deployment.quantization
    if deployment.runtime.disable_autotune:
        return ("--disable-flashinfer-autotune: this server tunes nothing and loads no cache",)
    if not autotune_runs(deployment):
        return (f"SGLang tunes from compute capability 9.0 on: not on {deployment.arch}",)
    if tunes_nothing(deployment):
        return (
            f"this server tunes nothing: MoE backend {backend}, quantization {quantization}; "
            "with --moe-runner-backend flashinfer_cutlass or flashinfer_trtllm a MoE model is tuned",
        )
    found = []
    if tunes_moe(deployment) and not moe_shapes(deployment):
        a2a = deployment.runtime.moe_a2a_backend
        found.append(
            f"unknown: the lookups of {backend} with quantization {quantization} and all-to-all {a2a}"
        )
    if tunes_dense(deployment) and not dense_shapes(deployment):
        found.append("unknown: the FP8 GEMMs of multi-head latent attention")
    if quantization in ("modelopt_fp4", "modelopt_mixed"):
        found.append("unknown: the FP4 GEMMs of dense layers, which the server tunes as well")
    if backend == "flashinfer_trtllm" and quantization == "modelopt_fp4" and _defers_finalising(deployment):
        found.append(
            "not planned: nvfp4 experts of decode graphs of up to 192 rows, which SGLang leaves unfinalised "
            "for a later kernel; its own autotune does not cover them either"
        )
    return tuple(found)


def _defers_finalising(deployment: Deployment) -> bool:
    return deployment.model.is_mla and sizing.release(deployment.sglang_version) >= _DEFERS_SINCE


Buckets = tuple[tuple[int, ...], tuple[int, ...]]


def _lookups(deployment: Deployment, rows: BatchRows) -> Iterator[tuple[OpShape, Buckets]]:
    for shape in moe_shapes(deployment):
        yield shape, _moe_buckets(deployment, rows)
    for shape in dense_shapes(deployment):
        yield shape, (_lattice(rows.serving), _lattice(rows.tuning))


def _moe_buckets(deployment: Deployment, rows: BatchRows) -> Buckets:
    """All, and those among them that the server's own autotune covers."""

    def buckets_up_to(count: int) -> tuple[int, ...]:
        largest = sizing.tune_max_num_tokens(
            deployment.runtime.moe_runner_backend,
            count,
            rows.prefill,
            deployment.sglang_version,
            pd_decode=deployment.disaggregation_mode == "decode",
        )
        return sizing.tuning_buckets(largest)

    return buckets_up_to(rows.serving), buckets_up_to(rows.tuning)


def _lattice(rows: int) -> tuple[int, ...]:
    """Dense GEMMs round up without an upper end."""
    buckets = sizing.tuning_buckets(sizing.next_power_of_2(rows))
    return tuple(bucket for bucket in buckets if bucket <= sizing.bucket_of(rows, buckets))


def _tuned_op(shape: OpShape, buckets: tuple[int, ...], tuned: tuple[int, ...], form: KeyForm) -> TunedOp:
    entries = tuple(
        ExpectedEntry(key, bucket, "tuning" if bucket in tuned else "serving")
        for bucket in buckets
        for key in shape.keys(bucket, form)
    )
    return TunedOp(shape.op, shape.runner, shape.policy, entries)
