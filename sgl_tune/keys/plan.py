"""Derive a deployment's exact cache: the key, the rank files, which of them must be equal, the entries."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.server.cache_key import cache_folder
from runtime.server.parallel import node_ranks, rank_layout
from runtime.server.sizes.linears import Spread, linears
from sgl_tune.cache.asked import CachePlan, TunedOp
from sgl_tune.cache.rank_names import RankName
from sgl_tune.deployment.container import CACHE_FOLDER
from sgl_tune.deployment.deployment import Deployment, deployment_to_json
from sgl_tune.deployment.versions import Gpu, local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.keys.keys import asks_nothing, expected_keys

_FOLDER_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,99}")
# Bytes per weight, with its share of block scales.
_WEIGHT_BYTES = {"modelopt_fp4": 0.57, "mxfp4": 0.54, "fp8": 1.01, "modelopt_fp8": 1.0}
_PLAIN_BYTES, _ACTIVATION_BYTES = 2.0, 2
# Hidden-sized buffers alive at once around a layer: input, residual, normed, attention's, the layer's output.
_HIDDEN_BUFFERS = 6
_ASSUMED = "--max-running-requests is not set: planned for SGLang's largest choice, 4096 per rank"


@dataclass(frozen=True, slots=True)
class Plan:
    deployment: Deployment
    target: CachePlan
    draft: CachePlan | None
    workers: int

    @property
    def worker_bytes(self) -> int:
        """Return about how many bytes each worker's GPU must have free; 0 if nothing is planned."""
        return tuning_bytes(self.deployment, self.target.ops) if self.target.ops else 0

    @property
    def is_idle(self) -> bool:
        """Whether the server tunes nothing: it has a key, but never looks for a file."""
        return not any(cache.groups for cache in (self.target, self.draft) if cache)

    @property
    def caches(self) -> tuple[CachePlan, ...]:
        """Return the caches that a warm fills. A draft's cache alone is filled by the server's own start."""
        if not self.target.ops:
            return ()
        return (self.target, self.draft) if self.draft and self.draft.ops else (self.target,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what is doubtful, what was assumed, and what neither this plan nor the start covers."""
        is_assumed = self.caches and self.deployment.runtime.max_running_requests is None
        return (*self.warnings, *self.deployment.inputs.notes, *((_ASSUMED,) if is_assumed else ()))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what is doubtful; of the folder only if the server looks for files in it."""
        told = self.deployment.inputs.warnings
        return tuple(text for text in told if not (self.is_idle and text.startswith(CACHE_FOLDER)))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return every file of this node, target and draft, each once."""
        named = (path for cache in (self.target, self.draft) if cache for path in cache.paths)
        return tuple(dict.fromkeys(self.deployment.cache_dir / path for path in named))

    def to_json(self) -> dict[str, Any]:
        data = {
            "server": self.deployment.server.to_json(),
            "deployment": deployment_to_json(self.deployment),
            "cache_dir": str(self.deployment.cache_dir),
            **self.target.to_json(),
            "workers": self.workers,
            "worker_bytes": self.worker_bytes,
            "notes": list(self.notes),
        }
        return data if self.draft is None else {**data, "draft": self.draft.to_json()}


def make_plan(deployment: Deployment, gpus: tuple[Gpu, ...] | None = None) -> Plan:
    """Plan a deployment's cache. `gpus`: this machine's, if the caller knows them."""
    gpus = local_gpus() if gpus is None else gpus
    draft = deployment.draft_deployment
    return Plan(
        deployment=deployment,
        target=_cache_plan(deployment),
        draft=_cache_plan(draft) if draft else None,
        workers=max(1, len(gpus)),
    )


def _cache_plan(deployment: Deployment) -> CachePlan:
    server = deployment.server
    _check_name("FlashInfer's version", deployment.inputs.flashinfer_version)
    _check_name("--gpu", deployment.arch)
    folder = cache_folder(deployment.inputs.flashinfer_version, deployment.arch, server.tuning.key)
    return CachePlan(
        folder,
        () if asks_nothing(deployment) else _groups(deployment, folder),
        expected_keys(deployment),
        server.tuning.key_parts,
    )


def _check_name(flag: str, value: str) -> None:
    """Refuse a value that is no folder name: `../../x` would lead out of the cache."""
    if not _FOLDER_NAME.fullmatch(value):
        raise UsageError(f"{flag} {value}: is no name of a folder in a cache", "write it like 0.7.2 or sm90")


def _groups(deployment: Deployment, folder: str) -> tuple[tuple[str, ...], ...]:
    """Return the files of each replica's stages, in the order of the ranks of this node."""
    stages: dict[tuple[int, int], list[str]] = {}
    ranks = node_ranks(deployment.parallel)
    for replica in range(deployment.replicas):
        for rank in ranks:
            layout = rank_layout(deployment.parallel, rank)
            name = RankName(layout.tp_rank, layout.pp_rank, layout.attn_dp_rank or replica)
            stages.setdefault((replica, layout.pp_rank), []).append(f"{folder}/{name.filename}")
    return tuple(map(tuple, stages.values()))


def tuning_bytes(deployment: Deployment, ops: tuple[TunedOp, ...]) -> int:
    """Estimate the memory of tuning from shapes, without CUDA's own context."""
    model, parallel, moe = deployment.model, deployment.parallel, deployment.model.moe
    rows = max((bucket for op in ops for bucket in op.buckets), default=0)
    weight = _WEIGHT_BYTES.get(deployment.quantization or "", _PLAIN_BYTES)
    shared = Spread(parallel.tp, parallel.tp)
    layers = sum(one.k * one.n for one in linears(model, parallel, shared))  # one layer of each kind
    total = layers * weight + rows * model.hidden_size * _HIDDEN_BUFFERS * _ACTIVATION_BYTES
    if moe is not None:
        width, local = moe.intermediate_size // parallel.moe_tp, moe.num_experts // parallel.moe_ep
        matrices, hidden = 2 + model.style.gated, moe.latent_size or model.hidden_size
        total += local * matrices * hidden * width * weight
        # Each token is copied to each of its experts, in the widths of both GEMMs.
        total += rows * moe.top_k * (2 * model.hidden_size + 3 * width) * _ACTIVATION_BYTES
    return int(total)
