"""What a server tunes that cannot be planned here, and what only its requests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.call_shapes import unknown_experts
from sgl_tune.keys.dense_shapes import (
    fp4_is_known,
    fp8_is_known,
    mxfp8_is_known,
    tunes_dense,
    tunes_fp4,
    tunes_mxfp8,
)
from sgl_tune.keys.keys import asks_nothing

_UNREAD = "their lookups are not known here"


@dataclass(frozen=True, slots=True)
class Gap:
    """`what` the server tunes, and `why` nobody here can say which entries that makes."""

    what: str
    why: str


def unplanned(deployment: Deployment) -> tuple[Gap, ...]:
    """Nothing where the plan is complete, or the server tunes nothing."""
    deployment = deployment.of_lookups
    if asks_nothing(deployment):
        return ()
    if deployment.shape.model is None:
        return (Gap(deployment.server.tunes_because, deployment.shape.unknown),)
    return tuple(_unplanned(deployment))


def _unplanned(deployment: Deployment) -> Iterator[Gap]:
    server, quantization = deployment.server, deployment.quantization
    for one in unknown_experts(deployment):
        yield Gap(f"the experts of {server.moe_runner_backend}", _why_no_experts(one))
    if tunes_dense(deployment) and not fp8_is_known(deployment):
        yield Gap(f"the FP8 GEMMs of dense layers in {quantization}", _UNREAD)
    if tunes_fp4(deployment) and not fp4_is_known(deployment):
        yield Gap("the FP4 GEMMs of dense layers", _UNREAD)
    if tunes_mxfp8(deployment) and not mxfp8_is_known(deployment):
        yield Gap("the MXFP8 GEMMs of dense layers", _UNREAD)


def _why_no_experts(deployment: Deployment) -> str:
    server = deployment.server
    return (
        f"its lookups with quantization {deployment.quantization} and all-to-all {server.moe_a2a_backend}"
        " are not known here"
    )


def serving_gaps(deployment: Deployment) -> tuple[str, ...]:
    """Lookups that a start does not tune either."""
    deployment = deployment.of_lookups
    server = deployment.server
    known = deployment.shape.model is not None and not asks_nothing(deployment)
    if not (known and server.backend.defers_finalising and deployment.quantization == "modelopt_fp4"):
        return ()
    if not (deployment.model.is_mla and server.release.defers_finalising):
        return ()
    return (
        "not planned: nvfp4 experts of decode graphs of up to 192 rows, which SGLang leaves unfinalised "
        "for a later kernel; its own autotune does not cover them either",
    )
