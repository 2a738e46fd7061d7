"""From flags to a deployment, as SGLang's start resolves them; what had to be assumed is noted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.classes import is_guessed
from runtime.server.errors import ConfigError
from runtime.server.flashinfer import doubt_of
from runtime.server.gpus import CPU, GpuModel, gpu_for
from runtime.server.parallelism import check_layout
from runtime.server.releases import Named, Release, release_named
from runtime.server.resolve import ENVIRONMENT
from sgl_tune.deployment.adapter_files import with_adapter_files
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.deployment.models import DEMO, Sought, find_model
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags
from sgl_tune.deployment.refusals import check_choices, undivided_heads
from sgl_tune.deployment.unknown import pinned_by
from sgl_tune.deployment.versions import installed_version, local_gpus, local_model
from sgl_tune.deployment.ways_out import way_out
from sgl_tune.errors import UsageError

# A demo in seconds: a MoE backend that is tuned, and batches that a CPU can time.
DEMO_FLAGS = ServerFlags(
    moe_runner_backend="flashinfer_cutlass", chunked_prefill_size=1024, max_running_requests=256
)
# Ours -> SGLang's own names.
_NAMES = {"tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size", "attn_dp": "attn_dp_size"}
_NAMES |= {"skip_ops": "flashinfer_autotune_skip_ops"}
_OURS = TARGET_FIELDS | {"dist_init_addr"}


def resolve_deployment(
    flags: ServerFlags,
    name: str = "",
    environ: Mapping[str, str] | None = None,
    gpu: GpuModel | None = None,
) -> Deployment:
    """`gpu`: when the caller has chosen one already."""
    notes: list[str] = []
    flags = _with_model(flags, notes)
    try:
        given = given_by(flags)
        check_choices(given, release_named(flags.sglang_version).release)
        asked = changed(Asked(), given)
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error
    return deployed(asked, Target.of(flags, gpu), name, environ, notes)


@dataclass(frozen=True, slots=True)
class Target:
    """What is ours to say of a deployment, and no server argument."""

    sglang: str | None = None
    flashinfer: str | None = None
    arch: str | None = None
    gpu_name: str | None = None
    gpu: GpuModel | None = None
    cache_dir: str | None = None
    dist_init_addr: str | None = None
    model_files: str | None = None  # where a container's model path lies here
    model_config: str | None = None
    revision: str | None = None
    not_modelled: tuple[str, ...] = ()

    @classmethod
    def of(cls, flags: ServerFlags, gpu: GpuModel | None = None) -> Target:
        return cls(
            flags.sglang_version,
            flags.flashinfer_version,
            flags.arch,
            flags.gpu,
            gpu,
            flags.cache_dir,
            flags.dist_init_addr,
            model_config=flags.model_config,
        )

    def sought(self, model_path: str) -> Sought:
        config = Path(self.model_config).expanduser() if self.model_config is not None else None
        return Sought(model_path, self.model_files, config, self.revision)

    @property
    def release(self) -> Named:
        return release_named(self.sglang or installed_version("sglang"))


def deployed(
    asked: Asked,
    target: Target,
    name: str = "",
    environ: Mapping[str, str] | None = None,
    notes: Iterable[str] = (),
    warnings: Iterable[str] = (),
) -> Deployment:
    """Of a server that is asked just so: nothing is added that the server would not do."""
    try:
        return _deployed(asked, target, name, os.environ if environ is None else environ, notes, warnings)
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def _deployed(
    asked: Asked,
    target: Target,
    name: str,
    environ: Mapping[str, str],
    notes: Iterable[str],
    warnings: Iterable[str],
) -> Deployment:
    check_layout(asked)
    _check_replicas(asked)
    found = find_model(target.sought(asked.model_path), environ)
    asked = replace(asked, **with_adapter_files(asked, found.checkpoint))
    named, said = target.release, [*notes, f"model shape: {found.source}"]
    said.extend(filter(None, [named.note, _replicas(asked)]))
    flashinfer = _flashinfer(target, named.release, said)
    gpu = target.gpu or _gpu(target, asked.model_path, said)
    draft_path = asked.speculative_draft_model_path
    apart = draft_path is not None and draft_path != asked.model_path
    sought = Sought(draft_path, is_draft=True) if apart and draft_path else None
    draft = find_model(sought, environ).checkpoint if sought else None
    return _started(
        Inputs(
            name=name or asked.model_path.rstrip("/").rsplit("/", 1)[-1],
            asked=asked,
            checkpoint=found.checkpoint,
            draft_checkpoint=draft,
            gpu=gpu,
            sglang_version=named.release.version,
            flashinfer_version=flashinfer,
            cache_dir=resolve_cache_dir(target.cache_dir, environ),
            environ={name: environ[name] for name in ENVIRONMENT if name in environ},
            dist_init_addr=target.dist_init_addr,
            not_modelled=target.not_modelled,
            notes=tuple(said),
            warnings=(
                *filter(None, [named.warning]),
                *warnings,
                *_doubts(asked, found.checkpoint, named.release),
            ),
        )
    )


def _doubts(asked: Asked, checkpoint: Checkpoint, release: Release) -> Iterator[str]:
    if is_guessed(checkpoint, release):
        yield (
            f"SGLang {release.version} knows no model_type {checkpoint.model_type}, and serves it only with "
            "a transformers that does: its class in the key is a guess"
        )
    for why in undivided_heads(asked, checkpoint):
        yield f"{why}: the server will not start"


def _started(inputs: Inputs) -> Deployment:
    try:
        return deploy(inputs)
    except ConfigError as error:
        raise UsageError(error.message, way_out(inputs, error)) from error


def resolve_cache_dir(asked: str | None, environ: Mapping[str, str]) -> Path:
    return Path(asked) if asked else default_cache_dir(environ)


def given_by(flags: ServerFlags) -> dict[str, Any]:
    """By SGLang's names."""
    return {_NAMES.get(name, name): value for name, value in flags.given().items() if name not in _OURS}


def _with_model(flags: ServerFlags, notes: list[str]) -> ServerFlags:
    if flags.model_path is None and flags.model_config is not None:
        raise UsageError(
            f"--model-config {flags.model_config} is the shape of no model: its path is a part of the key",
            "add --model-path, as the server's command has it",
        )
    if flags.model_path is None:
        notes.append(f"no model given: the embedded demo model, {DEMO}")
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
    return replace(flags, **{**own.given(), **flags.given()})


def _flashinfer(target: Target, release: Release, notes: list[str]) -> str:
    """What is installed beside the installed server; a server that is only named brings what it pins."""
    if target.flashinfer is not None:
        notes.extend(filter(None, [doubt_of(target.flashinfer)]))
        return target.flashinfer
    here = installed_version("flashinfer")
    if here is None or here == release.flashinfer:
        notes.append(f"FlashInfer {release.flashinfer}: {pinned_by(release)}")
        return release.flashinfer
    if target.sglang is not None:
        notes.append(f"FlashInfer {release.flashinfer}: {pinned_by(release)}; {here} is installed here")
        return release.flashinfer
    notes.append(f"FlashInfer {here} is installed here; {release.flashinfer} is {pinned_by(release)}")
    notes.extend(filter(None, [doubt_of(here)]))
    return here


def _gpu(target: Target, model_path: str, notes: list[str]) -> GpuModel:
    here = [local_model(gpu) for gpu in local_gpus()] if target.gpu_name is None else []
    if not here and target.gpu_name is None and target.arch is None and model_path == DEMO:
        return CPU
    chosen = gpu_for(target.gpu_name, target.arch, here)
    if chosen.assumed:
        notes.append(chosen.assumed)
    return chosen.gpu


def _replicas(asked: Asked) -> str | None:
    if asked.dp_size == 1 or asked.enable_dp_attention or asked.attn_dp_size:
        return None
    return (
        f"dp {asked.dp_size} without --enable-dp-attention: {asked.dp_size} replicas of the server, "
        f"each on {asked.tp_size * asked.pp_size} GPUs"
    )


def _check_replicas(asked: Asked) -> None:
    replicas = asked.dp_size > 1 and not (asked.enable_dp_attention or asked.attn_dp_size)
    if replicas and asked.nnodes > 1:
        raise ConfigError(
            f"--dp {asked.dp_size} starts replicas, and SGLang starts no replicas over --nnodes"
            f" {asked.nnodes}",
            "add --enable-dp-attention, or start one server a node",
        )
