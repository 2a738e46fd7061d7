"""One start of one rank, told so that another process can measure it. No torch."""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.gpus import GpuModel
from runtime.server.parallel_config import ParallelConfig
from runtime.server.requests import MOST_REQUESTS
from runtime.server.shape import Server
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.memory.ghost.ranks import ALL, DISTINCT, Layout, first_rank, other_ranks
from sgl_tune.memory.what_if import AS_IS, ASCENDING, DISPATCHER, LM_HEAD, WhatIf
from sgl_tune.units import shown


@dataclass(frozen=True, slots=True)
class Start:
    """`behaviours` are those of a what-if. `most_tokens`: what the other stages of its pipeline have room
    for, where they were predicted. `has_peers` is off where one GPU stands for a rank."""

    name: str
    deployment: Deployment
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    gpu: GpuModel
    rank: int = 0
    behaviours: frozenset[str] = frozenset()
    most_tokens: int | None = None
    has_peers: bool = True
    notes: tuple[str, ...] = ()

    def packed(self) -> str:
        """For a process of ours, over a pipe that nobody else writes into: all of a deployment is in it."""
        return b64encode(pickle.dumps(self)).decode()

    @property
    def rank_name(self) -> str:
        return layout_of(self.parallel).name(self.rank)

    @property
    def arch(self) -> str:
        return self.gpu.arch

    @property
    def lm_head(self) -> bool:
        """Whether the autotune dummy run computes logits."""
        return LM_HEAD in self.behaviours

    @property
    def ascending(self) -> bool:
        """Whether the smallest graph is captured first."""
        return ASCENDING in self.behaviours

    def alone(self) -> Start:
        """As one GPU measures it: peers are arithmetic and take no buffers."""
        return replace(self.as_measured(), has_peers=False)

    def as_measured(self) -> Start:
        """By this runtime's own kernels, and no tactic is profiled."""
        own = self.with_own_kernels()
        return replace(own, runtime=replace(own.runtime, autotune_cached=True))

    def with_own_kernels(self) -> Start:
        """Where this runtime has those for which a prediction takes others."""
        served = backend_row(self.deployment.server.moe_runner_backend)
        if self.runtime.sm_major not in served.own_majors:
            return self
        return replace(self, runtime=replace(self.runtime, moe_runner_backend=served.name))

    def about(self) -> dict[str, Any]:
        """The first line of the run's file."""
        return {
            "title": self.name,
            "subtitle": f"{layout_text(self.parallel)}, SGLang {self.deployment.sglang_version}",
            "gpu": self.gpu.name,
            "arch": self.arch,
            "rank": self.rank,
            "rank_name": self.rank_name,
        }


def starts_of(deployment: Deployment, ranks: str, what_if: WhatIf = AS_IS) -> tuple[Start, ...]:
    """One for each kind of rank among those that are asked for."""
    runtime, notes = _runtime(deployment, DISPATCHER in what_if.behaviours)
    start = Start(
        name=deployment.name,
        deployment=deployment,
        model=deployment.model,
        parallel=deployment.parallel,
        runtime=runtime,
        gpu=deployment.inputs.gpu,
        behaviours=what_if.behaviours,
        notes=notes,
    )
    return tuple(replace(start, rank=rank) for rank in ranks_of(deployment.parallel, ranks))


def layout_of(parallel: ParallelConfig) -> Layout:
    return Layout(parallel.tp, parallel.pp, parallel.attn_dp)


def ranks_of(parallel: ParallelConfig, asked: str) -> tuple[int, ...]:
    """Those to predict: of `all` the first of each stage, which the others of a stage are like."""
    layout = layout_of(parallel)
    first = first_rank(asked)
    if first >= layout.ranks:
        raise UsageError(
            f"--ranks {shown(asked)}: the deployment has ranks 0 to {layout.ranks - 1}",
            "write distinct, all or one number",
        )
    if asked == ALL:
        return tuple(range(0, layout.ranks, layout.tp))
    return (first, *other_ranks(DISTINCT, layout)) if asked == DISTINCT else (first,)


def _runtime(deployment: Deployment, by_requests: bool) -> tuple[RuntimeConfig, tuple[str, ...]]:
    """With the nearest that this runtime has of the kernels it lacks: their weights take the same memory."""
    runtime = replace(deployment.runtime, a2a_max_tokens=_dispatch_tokens(deployment.server, by_requests))
    backend = backend_row(runtime.moe_runner_backend)
    if not backend.stood_in or backend.is_predicted:
        return runtime, ()
    note = f"predicted with triton's workspaces in place of {backend.name}'s, which are not known"
    return replace(runtime, moe_runner_backend="triton"), (note,)


def _dispatch_tokens(server: Server, by_requests: bool) -> int:
    """SGLang's workspace holds a rank's chunk and any batch it resolves; once it held the requests alone."""
    if not by_requests:
        return max(server.prefill_tokens, MOST_REQUESTS)
    if server.max_running_requests is None:
        return MOST_REQUESTS
    return max(1, server.max_running_requests // server.attn_dp_size)


def layout_text(parallel: ParallelConfig) -> str:
    parts = [f"tp {parallel.tp}"]
    if parallel.dp > 1:
        how = " with DP attention" if parallel.enable_dp_attention else " replicas"
        parts.append(f"dp {parallel.dp}{how}")
    if parallel.pp > 1:
        parts.append(f"pp {parallel.pp}")
    if parallel.ep > 1:
        parts.append(f"ep {parallel.ep}")
    return ", ".join(parts)


def unpacked(text: str) -> Start:
    found: Start = pickle.loads(b64decode(text))
    return found
