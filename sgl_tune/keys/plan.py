"""From a deployment to its exact cache: the key, the rank files, which must be identical, the entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.server.parallel import node_ranks, rank_layout
from runtime.server.recipes import KeyInputs, cache_folder, cache_key, key_parts, recipe_for
from runtime.server.sizing import release
from sgl_tune.cache.rank_names import RankName
from sgl_tune.deployment.as_json import deployment_to_json
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.versions import Gpu, local_gpus
from sgl_tune.keys.keys import TunedOp, expected_keys, gaps, tunes_nothing
from sgl_tune.keys.tuning_memory import tuning_bytes

UNKNOWN_GPU = "<UUID>"
MEGAMOE = "flashinfer_megamoe"
MEGAMOE_FILES_SINCE = (0, 5, 22)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One rank's file, relative to the cache directory, and the rank whose process reads it."""

    path: str
    rank: int
    pp_rank: int
    replica: int


@dataclass(frozen=True, slots=True)
class CachePlan:
    """One key's folder. `groups` are the files that a server start expects to be byte-identical."""

    key: str
    key_parts: tuple[str, ...]
    folder: str
    files: tuple[PlannedFile, ...]
    ops: tuple[TunedOp, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        stages: dict[tuple[int, int], list[str]] = {}
        for file in self.files:
            stages.setdefault((file.replica, file.pp_rank), []).append(file.path)
        return tuple(tuple(paths) for paths in stages.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "key_parts": list(self.key_parts),
            "files": list(self.paths),
            "groups": [list(group) for group in self.groups],
            "ops": [
                {
                    "op": op.op,
                    "runner": op.runner,
                    "buckets": list(op.buckets),
                    "keys": list(op.keys),
                    "policy": list(op.policy),
                    "serving_only": list(op.serving_only),
                }
                for op in self.ops
            ],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    deployment: Deployment
    target: CachePlan
    draft: CachePlan | None
    workers: int

    @property
    def worker_bytes(self) -> int:
        """About what each worker's GPU must have free."""
        return tuning_bytes(self.deployment, self.target.ops)

    @property
    def is_idle(self) -> bool:
        """A server that tunes nothing: it has a key, but never looks for a file."""
        return not any(cache.files for cache in (self.target, self.draft) if cache)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is doubtful, what was assumed, and what the server tunes that this plan leaves out."""
        chosen = self.deployment
        return chosen.warnings + chosen.notes + _assumed(chosen) + gaps(chosen)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file of this node, target and draft, each once."""
        caches = [self.target, self.draft] if self.draft else [self.target]
        return tuple(
            dict.fromkeys(self.deployment.cache_dir / path for plan in caches for path in plan.paths)
        )

    def to_json(self) -> dict[str, Any]:
        data = {
            "deployment": deployment_to_json(self.deployment),
            "cache_dir": str(self.deployment.cache_dir),
            **self.target.to_json(),
            "workers": self.workers,
            "worker_bytes": self.worker_bytes,
            "notes": list(self.notes),
        }
        return data if self.draft is None else {**data, "draft": self.draft.to_json()}


def make_plan(deployment: Deployment, gpus: tuple[Gpu, ...] | None = None) -> Plan:
    """`gpus`: this machine's, when the caller has looked already."""
    gpus = local_gpus() if gpus is None else gpus
    draft = deployment.draft_deployment
    return Plan(
        deployment=deployment,
        target=_cache_plan(deployment, _key_inputs(deployment), gpus),
        draft=_cache_plan(draft, _draft_key_inputs(deployment), gpus) if draft else None,
        workers=max(1, len(gpus)),
    )


def _key_inputs(deployment: Deployment) -> KeyInputs:
    parallel, runtime = deployment.parallel, deployment.runtime
    return KeyInputs(
        model_path=deployment.model_path,
        dtype=runtime.dtype,
        quantization=runtime.quantization,
        moe_runner_backend=runtime.moe_runner_backend,
        tp=parallel.tp,
        pp=parallel.pp,
        attn_dp=parallel.attn_dp,
        moe_ep=parallel.moe_ep,
        config_class=deployment.model.config_class,
        skip_ops=deployment.skip_ops,
    )


def _draft_key_inputs(deployment: Deployment) -> KeyInputs:
    """The target's arguments and the draft's class: SGLang reads the former from the server's flags."""
    draft = deployment.draft
    assert draft is not None
    return replace(
        _key_inputs(deployment),
        config_class=draft.model.config_class,
        is_draft=True,
        draft_quantization=draft.quantization,
    )


def _cache_plan(deployment: Deployment, inputs: KeyInputs, gpus: tuple[Gpu, ...]) -> CachePlan:
    parts = key_parts(recipe_for(deployment.sglang_version), inputs)
    key = cache_key(parts)
    files = not tunes_nothing(deployment)
    folder = cache_folder(deployment.flashinfer_version, deployment.arch, key)
    return CachePlan(
        key=key,
        key_parts=parts,
        folder=folder,
        files=tuple(_files(deployment, folder, _named_by_gpu(deployment, inputs), gpus)) if files else (),
        ops=expected_keys(deployment),
    )


def _named_by_gpu(deployment: Deployment, inputs: KeyInputs) -> bool:
    megamoe = inputs.moe_runner_backend == MEGAMOE and not inputs.is_draft
    return megamoe and release(deployment.sglang_version) >= MEGAMOE_FILES_SINCE


def _files(
    deployment: Deployment, folder: str, named_by_gpu: bool, gpus: tuple[Gpu, ...]
) -> Iterator[PlannedFile]:
    ranks = node_ranks(deployment.parallel)
    for replica in range(deployment.replicas):
        for index, rank in enumerate(ranks, start=replica * len(ranks)):
            layout = rank_layout(deployment.parallel, rank)
            uuid = None
            if named_by_gpu:
                uuid = gpus[index].uuid if index < len(gpus) else UNKNOWN_GPU
            name = RankName(layout.tp_rank, layout.pp_rank, layout.attn_dp_rank or replica, uuid)
            yield PlannedFile(f"{folder}/{name.filename}", rank, layout.pp_rank, replica)


def _assumed(deployment: Deployment) -> tuple[str, ...]:
    runtime = deployment.runtime
    if runtime.max_running_requests is not None or runtime.speculative is not None:
        return ()
    return ("--max-running-requests is not set: planned for the most that SGLang chooses, 4096 a rank",)
