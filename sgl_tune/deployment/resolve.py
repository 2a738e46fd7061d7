"""From flags to a deployment, as SGLang's start resolves them; what had to be assumed is noted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.server.asked import Asked
from runtime.server.errors import ConfigError
from runtime.server.gpus import CPU, GpuModel, gpu_for
from runtime.server.parallelism import check_layout
from runtime.server.releases import Release, release_named
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.deployment.doubts import doubts
from sgl_tune.deployment.models import DEMO, find_model
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags
from sgl_tune.deployment.versions import installed_version, local_gpus, local_model
from sgl_tune.errors import UsageError

# A demo in seconds: a MoE backend that is tuned, and batches that a CPU can time.
DEMO_FLAGS = ServerFlags(
    moe_runner_backend="flashinfer_cutlass", chunked_prefill_size=1024, max_running_requests=256
)
# Ours -> SGLang's own names.
_NAMES = {"tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size", "attn_dp": "attn_dp_size"}
_NAMES |= {"skip_ops": "flashinfer_autotune_skip_ops"}
_OURS = TARGET_FIELDS | {"dist_init_addr"}
_READ_ENVIRONMENT = ("SGLANG_FLASHINFER_AUTOTUNE_EXTEND", "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE")


def resolve_deployment(
    flags: ServerFlags,
    name: str = "",
    environ: Mapping[str, str] | None = None,
    verbatim: bool = False,
    gpu: GpuModel | None = None,
) -> Deployment:
    """`verbatim`: the flags are a whole server command, so nothing is added that the server would not do.
    `gpu`: when the caller has chosen one already."""
    try:
        return _resolve(flags, name, os.environ if environ is None else environ, verbatim, gpu)
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def _resolve(
    flags: ServerFlags, name: str, environ: Mapping[str, str], verbatim: bool, gpu: GpuModel | None
) -> Deployment:
    notes: list[str] = []
    flags = _with_model(flags, notes)
    model_path = flags.model_path or DEMO
    found = find_model(model_path, environ)
    notes.append(f"model shape: {found.source}")
    named = release_named(flags.sglang_version or installed_version("sglang"))
    notes.extend(filter(None, [named.note]))
    flashinfer = _flashinfer(flags, named.release, notes)
    gpu = gpu or _gpu(flags, model_path, notes)
    asked = asked_of(_with_dp_attention(flags, notes, verbatim))
    check_layout(asked)
    draft_path = flags.speculative_draft_model_path
    draft = find_model(draft_path, environ).checkpoint if draft_path not in (None, model_path) else None
    return deploy(
        Inputs(
            name=name or model_path.rstrip("/").rsplit("/", 1)[-1],
            asked=asked,
            checkpoint=found.checkpoint,
            draft_checkpoint=draft,
            gpu=gpu,
            sglang_version=named.release.version,
            flashinfer_version=flashinfer,
            cache_dir=resolve_cache_dir(flags.cache_dir, environ),
            environ={name: environ[name] for name in _READ_ENVIRONMENT if name in environ},
            dist_init_addr=flags.dist_init_addr,
            notes=tuple(notes),
            warnings=(*filter(None, [named.warning]), *doubts(flags, found.checkpoint, asked, named.release)),
        )
    )


def resolve_cache_dir(asked: str | None, environ: Mapping[str, str]) -> Path:
    return Path(asked) if asked else default_cache_dir(environ)


def asked_of(flags: ServerFlags) -> Asked:
    given: dict[str, Any] = {}
    for name, value in flags.given().items():
        if name not in _OURS:
            given[_NAMES.get(name, name)] = tuple(value) if isinstance(value, list) else value
    return Asked(**given)


def _with_model(flags: ServerFlags, notes: list[str]) -> ServerFlags:
    if flags.model_path is None:
        notes.append(f"no model given: the embedded demo model, {DEMO}")
        flags = replace(flags, model_path=DEMO)
    if flags.model_path != DEMO:
        return flags
    notes.append(
        f"{DEMO} unless said otherwise: --moe-runner-backend {DEMO_FLAGS.moe_runner_backend} "
        f"--chunked-prefill-size {DEMO_FLAGS.chunked_prefill_size} "
        f"--max-running-requests {DEMO_FLAGS.max_running_requests}"
    )
    return replace(flags, **{**DEMO_FLAGS.given(), **flags.given()})


def _flashinfer(flags: ServerFlags, release: Release, notes: list[str]) -> str:
    """What is installed beside the installed server; a server that is only named brings what it pins."""
    if flags.flashinfer_version is not None:
        return flags.flashinfer_version
    here = installed_version("flashinfer")
    if here is None or here == release.flashinfer:
        notes.append(f"FlashInfer {release.flashinfer}: what SGLang {release.version} pins")
        return release.flashinfer
    if flags.sglang_version is not None:
        notes.append(
            f"FlashInfer {release.flashinfer}: what SGLang {release.version} pins; {here} is installed here"
        )
        return release.flashinfer
    notes.append(f"FlashInfer {here} is installed here; SGLang {release.version} pins {release.flashinfer}")
    return here


def _gpu(flags: ServerFlags, model_path: str, notes: list[str]) -> GpuModel:
    here = [local_model(gpu) for gpu in local_gpus()] if flags.gpu is None else []
    if not here and flags.gpu is None and flags.arch is None and model_path == DEMO:
        return CPU
    chosen = gpu_for(flags.gpu, flags.arch, here)
    if chosen.assumed:
        notes.append(chosen.assumed)
    return chosen.gpu


def _with_dp_attention(flags: ServerFlags, notes: list[str], verbatim: bool) -> ServerFlags:
    tp, dp = flags.tp or 1, flags.dp or 1
    if flags.enable_dp_attention is None and not verbatim and dp > 1 and tp % dp == 0:
        notes.append(f"DP attention is on: dp {dp} divides tp {tp}; --no-enable-dp-attention for replicas")
        return replace(flags, enable_dp_attention=True)
    if dp > 1 and not (flags.enable_dp_attention or flags.attn_dp) and (flags.nnodes or 1) > 1:
        raise UsageError(
            f"--dp {dp} starts replicas, and SGLang starts no replicas over --nnodes {flags.nnodes}",
            "add --enable-dp-attention, or start one server a node",
        )
    return flags
