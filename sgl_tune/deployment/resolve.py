"""Resolve flags to a deployment, as SGLang's start does, and note what was assumed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import doubt_of
from runtime.server.asked import Asked
from runtime.server.backends import BACKENDS
from runtime.server.errors import AnotherRelease, ConfigError, UnknownModel, Unsupported
from runtime.server.gpus import CPU, GpuModel, gpu_for
from runtime.server.nearest import meant
from runtime.sglang.releases import NEWEST, Release, release_named
from sgl_tune.deployment.cache_dir import default_cache_dir, demo_cache_dir
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy, find_model
from sgl_tune.deployment.model_files import DEMO, NO_MODEL, Sought
from sgl_tune.deployment.options import LONG, ServerFlags, TargetFlags
from sgl_tune.deployment.versions import installed_version, local_gpus, local_model
from sgl_tune.errors import CheckFailed, UsageError

_OWN_BACKENDS = ("triton_kernel", "marlin")  # SGLang's own backends, which FlashInfer does not tune
# A demo that takes seconds: a tuned MoE backend, and batches that a CPU can time.
DEMO_FLAGS = ServerFlags(
    moe_runner_backend="flashinfer_cutlass", chunked_prefill_size=1024, max_running_requests=256
)


@dataclass(frozen=True, slots=True)
class Place:
    """What a deployment needs beside server arguments. `model_files`: the folder here of a container's
    model path. `gpu`: None if it is not chosen yet."""

    name: str = ""
    environ: Mapping[str, str] | None = None
    gpu: GpuModel | None = None
    model_files: str | None = None
    revision: str | None = None
    not_followed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def resolve_deployment(flags: ServerFlags, place: Place = Place()) -> Deployment:
    notes = list(place.notes)
    flags = _with_model(flags, notes)
    try:
        return deploy(_inputs(flags, replace(place, notes=tuple(notes))))
    except AnotherRelease as error:
        raise not_known(error.message, error.version) from error
    except (UnknownModel, Unsupported) as error:
        raise not_known(error.message) from error
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def not_known(why: str, release: str | None = None) -> CheckFailed:
    """Return the error for a question that a server can answer and the core cannot."""
    from sgl_tune.servers.server import adding

    return CheckFailed(f"not known: {why}", adding(release))


def _inputs(flags: ServerFlags, place: Place) -> Inputs:
    environ = os.environ if place.environ is None else place.environ
    given, target = {LONG.get(name, name): value for name, value in flags.given().items()}, flags.target
    address, draft = given.pop("dist_init_addr", None), given.pop("speculative_draft_model_path", None)
    if draft not in (None, flags.model_path):
        raise UnknownModel(f"{draft} is a draft of its own")
    named: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in given.items()}
    asked = Asked(**named)
    if asked.moe_runner_backend not in (*BACKENDS, *_OWN_BACKENDS):
        near = meant(asked.moe_runner_backend, BACKENDS) or f"they are {', '.join(BACKENDS)}"
        raise Unsupported(f"--moe-runner-backend {asked.moe_runner_backend} is none of the core's: {near}")
    replicas = _replicas(asked)
    config = Path(target.model_config).expanduser() if target.model_config is not None else None
    found = find_model(Sought(asked.model_path, place.model_files, config, place.revision), environ)
    version = target.sglang_version or installed_version("sglang")
    release = release_named(version or NEWEST.version)
    notes = [*place.notes, f"model shape: {found.source}"]
    if version is None:
        notes.append(f"SGLang {release.version}: the release that the runtime core plans for")
    notes += replicas
    flashinfer = _flashinfer(target, release, notes)
    gpu = place.gpu or _gpu(flags, notes)
    default = demo_cache_dir if asked.model_path == DEMO else default_cache_dir  # no server reads the demo's
    return Inputs(
        name=place.name or asked.model_path.rstrip("/").rsplit("/", 1)[-1],
        asked=asked,
        checkpoint=found.checkpoint,
        gpu=gpu,
        sglang_version=release.version,
        flashinfer_version=flashinfer,
        cache_dir=Path(target.cache_dir) if target.cache_dir else default(environ),
        dist_init_addr=address,
        not_followed=place.not_followed,
        notes=tuple(notes),
        warnings=place.warnings,
    )


def _with_model(flags: ServerFlags, notes: list[str]) -> ServerFlags:
    if flags.model_path is None and flags.target.model_config is not None:
        raise UsageError(
            f"--model-config {flags.target.model_config} is the shape of no model: the key holds its path",
            "add --model-path, as the server's command has it",
        )
    if flags.model_path is None:
        notes.append(NO_MODEL)
        flags = replace(flags, model_path=DEMO)
    if flags.model_path != DEMO:
        return flags
    tp, dp = flags.tp or 1, flags.dp or 1
    attention = dp > 1 and tp % dp == 0 and flags.enable_dp_attention is None
    own = replace(DEMO_FLAGS, enable_dp_attention=True if attention else None)
    notes.append(
        f"{DEMO} unless said otherwise: --moe-runner-backend {own.moe_runner_backend} "
        f"--chunked-prefill-size {own.chunked_prefill_size} "
        f"--max-running-requests {own.max_running_requests}" + " --enable-dp-attention" * attention
    )
    return flags.over(own)


def _flashinfer(target: TargetFlags, release: Release, notes: list[str]) -> str:
    """Return the installed FlashInfer for an installed server, else what the named release pins."""
    pinned, here = release.flashinfer, installed_version("flashinfer")
    chosen = target.flashinfer_version or (pinned if target.sglang_version or here is None else here)
    if chosen == pinned:
        notes.append(f"FlashInfer {pinned}: what SGLang {release.version} pins")
    elif target.flashinfer_version is None:
        notes.append(f"FlashInfer {chosen} is installed here; SGLang {release.version} pins {pinned}")
    notes.extend(filter(None, [doubt_of(chosen)]))
    return chosen


def _gpu(flags: ServerFlags, notes: list[str]) -> GpuModel:
    target = flags.target
    here = [local_model(gpu) for gpu in local_gpus()] if target.gpu is None else []
    if not here and target.gpu is None and target.arch is None and flags.model_path == DEMO:
        return CPU
    chosen = gpu_for(target.gpu, target.arch, here)
    notes.extend(filter(None, [chosen.assumed]))
    return chosen.gpu


def _replicas(asked: Asked) -> list[str]:
    """Return a note on plain data parallelism's replicas; refuse them on several nodes, as SGLang does."""
    if asked.dp_size == 1 or asked.enable_dp_attention or asked.attn_dp_size:
        return []
    if asked.nnodes > 1:
        raise ConfigError(
            f"--dp {asked.dp_size} starts replicas, and SGLang starts no replicas over --nnodes"
            f" {asked.nnodes}",
            "add --enable-dp-attention, or start one server per node",
        )
    each = asked.tp_size * asked.pp_size
    return [
        f"dp {asked.dp_size} without --enable-dp-attention: {asked.dp_size} replicas, each on {each} GPUs"
    ]
