"""One start of one rank, told so that another process can predict or measure it. No torch."""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.divided_heads import not_in_groups
from runtime.server.gpus import GpuModel
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.recurrent import KimiDeltaConfig
from runtime.server.requests import MOST_REQUESTS
from runtime.server.shape import Server
from runtime.server.unpredicted import knows_forwards, unknown_pools
from runtime.simulate.constants import GpuConstants, constants_for
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.memory.behind_deepep import behind_deepep
from sgl_tune.memory.ranks import choose_ranks, rank_name
from sgl_tune.memory.what_if import AS_IS, ASCENDING, DISPATCHER, LM_HEAD, WhatIf


@dataclass(frozen=True, slots=True)
class Start:
    """`lm_head` runs the head in the autotune dummy run, `ascending` captures the smallest graph first.

    `overdraft`: how many bytes beyond the GPU's the start may go, to tell what each phase would take.
    `most_tokens`: what the other stages of its pipeline have room for, where they were predicted.
    """

    name: str
    deployment: Deployment
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    gpu: GpuModel
    rank: int = 0
    constants: GpuConstants | None = None
    by_requests: bool = False
    lm_head: bool = False
    ascending: bool = False
    overdraft: int = 0
    most_tokens: int | None = None
    own_draft: OwnDraft | None = None
    notes: tuple[str, ...] = ()

    def packed(self) -> str:
        """For a process of ours, over a pipe that nobody else writes into: all of a deployment is in it."""
        return b64encode(pickle.dumps(self)).decode()

    @property
    def rank_name(self) -> str:
        return rank_name(self.parallel, self.rank)

    @property
    def arch(self) -> str:
        return self.gpu.arch

    def asking(self, **changes: Any) -> Start:
        """Of a server that is asked otherwise, by SGLang's names: with all that follows."""
        deployment = self.deployment.asking(**changes)
        runtime, notes = _runtime(deployment, by_requests=self.by_requests)
        parallel = deployment.parallel
        return replace(
            self,
            deployment=deployment,
            model=deployment.model,
            parallel=parallel,
            runtime=runtime,
            own_draft=_own_draft(deployment),
            rank=self.rank * parallel.world_size // self.parallel.world_size,
            notes=notes,
        )

    def alone(self) -> Start:
        """As one GPU measures it: peers are arithmetic and take no buffers."""
        constants = replace(self.constants or constants_for(self.arch), has_peers=False)
        return replace(self.as_measured(), constants=constants)

    def as_measured(self) -> Start:
        """By this runtime's own kernels, and no tactic is profiled."""
        cached, own = self.with_own_kernels().with_everything_cached(), self.own_draft
        runtime = replace(cached.runtime, whole_prefills=True, by_own_kernels=True)
        if own is not None:
            changed = replace(own.runtime, whole_prefills=True, by_own_kernels=True)
            own = replace(own, runtime=changed)
        return replace(cached, runtime=runtime, own_draft=own)

    def with_own_kernels(self) -> Start:
        """Where this runtime has those for which a prediction takes others."""
        served = backend_row(self.runtime.served_by)
        if self.runtime.sm_major not in served.own_majors:
            return self
        return replace(self, runtime=replace(self.runtime, moe_runner_backend=served.name))

    def with_everything_cached(self) -> Start:
        return replace(self, runtime=replace(self.runtime, autotune_cached=True))

    def shortened(self) -> Start:
        """The first layers, one of each kind among them, on one stage. A forward before the graphs, tuned or
        not, tells what kernels take from what graphs take."""
        model, has_states = self.model, self.model.recurrent is not None
        kinds = [
            (mlp, attention if has_states or attention == "none" else "")
            for mlp, attention in zip(model.layer_kinds, model.attention_kinds, strict=True)
        ]
        layers = min(model.num_layers, max(2, 1 + max(kinds.index(kind) for kind in set(kinds))))
        model = replace(
            self.model,
            num_layers=layers,
            rounds=1,
            layer_kinds=self.model.layer_kinds[:layers],
            attention_kinds=self.model.attention_kinds[:layers],
        )
        parallel = replace(self.parallel, pp=1, nnodes=1, node_rank=0)
        runtime = replace(self.runtime, disable_autotune=False)
        own = self.own_draft and replace(self.own_draft, captures=())  # of layers that are not among these
        return replace(self, model=model, parallel=parallel, runtime=runtime, rank=0, own_draft=own)

    @property
    def forwards(self) -> bytes:
        """Starts that are equal here run forwards that allocate the same, a size for a size."""
        runtime = replace(self.runtime, mem_fraction_static=0.5)
        if runtime.moe_a2a_backend == "none":
            runtime = replace(
                runtime,
                prefill_tokens=1,
                prefill_buffer=1,
                max_running_requests=None,
                decode_graphs=(),
                prefill_graphs=(),
            )
        gemm = (self.constants or constants_for(self.arch)).gemm_workspace
        shape = (self.model, self.parallel, runtime, self.own_draft, self.rank)
        return pickle.dumps((shape, self.arch, gemm, self.ascending))

    def about(self) -> dict[str, Any]:
        """The first line of the run's file."""
        return {
            "title": self.name,
            "subtitle": f"{layout_text(self.parallel)}, SGLang {self.runtime.sglang_version}",
            "gpu": self.gpu.name,
            "arch": self.arch,
            "rank": self.rank,
            "rank_name": self.rank_name,
        }


def starts_of(deployment: Deployment, ranks: str, what_if: WhatIf = AS_IS) -> tuple[Start, ...]:
    """One for each kind of rank among those that are asked for."""
    by_requests = DISPATCHER in what_if.behaviours
    runtime, notes = _runtime(deployment, by_requests)
    return tuple(
        Start(
            name=deployment.name,
            deployment=deployment,
            model=deployment.model,
            parallel=deployment.parallel,
            runtime=runtime,
            own_draft=_own_draft(deployment),
            gpu=deployment.inputs.gpu,
            rank=rank,
            by_requests=by_requests,
            lm_head=LM_HEAD in what_if.behaviours,
            ascending=ASCENDING in what_if.behaviours,
            notes=notes,
        )
        for rank in dict.fromkeys(choose_ranks(ranks, deployment.model, deployment.parallel).values())
    )


def _runtime(deployment: Deployment, by_requests: bool) -> tuple[RuntimeConfig, tuple[str, ...]]:
    """With the nearest that this runtime has of the kernels it lacks: their weights take the same memory."""
    if deployment.model.fusion is not None:
        why = "is a draft: without the model that it drafts for it serves nothing"
        raise UsageError(f"{deployment.model_path} {why}", "name it with --speculative-draft-model-path")
    asked = deployment.model, deployment.server
    unknown = unknown_pools(*asked) or not_in_groups(*asked)
    if unknown is not None:
        raise UsageError(unknown, "mem-report of the server without it tells the target's")
    notes = []
    runtime = replace(deployment.runtime, a2a_max_tokens=_dispatch_tokens(deployment.server, by_requests))
    a2a, moe = runtime.moe_a2a_backend, runtime.moe_runner_backend
    is_known = _suits_deep_gemm(deployment.model)
    if a2a == "deepep" and is_known:
        return behind_deepep(deployment.server, runtime)
    backend = backend_row(moe)
    if backend.stood_in and not (backend.is_predicted and is_known):
        if knows_forwards(deployment.model):
            notes.append(f"predicted with triton's workspaces in place of {moe}'s, which are not known")
        runtime = replace(runtime, moe_runner_backend="triton")
    if a2a not in ("none", "flashinfer"):
        notes.append(f"predicted with flashinfer's all-to-all workspace in place of {a2a}'s")
        runtime = replace(runtime, moe_a2a_backend="flashinfer")
    if _prefills_by_flashinfer(deployment):
        notes.append(
            "predicted with triton's workspaces for prefills of delta layers in place of FlashInfer's, "
            "which are not known"
        )
    return runtime, tuple(notes)


def _prefills_by_flashinfer(deployment: Deployment) -> bool:
    """srt/layers/attention/linear/kda_backend.py: where what is forgotten has a bound."""
    recurrent = deployment.model.recurrent
    is_bounded = isinstance(recurrent, KimiDeltaConfig) and recurrent.lower_bound is not None
    return is_bounded and deployment.server.gpu.major == 10


def _own_draft(deployment: Deployment) -> OwnDraft | None:
    found = deployment.own_draft
    return None if isinstance(found, str) else found


def _suits_deep_gemm(model: ModelConfig) -> bool:
    """Its experts have gates, and rows as wide as the model's."""
    return model.gated_mlps and model.moe is not None and model.moe.latent_size is None


def _dispatch_tokens(server: Server, by_requests: bool) -> int:
    """SGLang's workspace holds a rank's chunk and any batch it resolves; once it held the requests alone."""
    if server.dispatch_tokens is not None:
        return server.dispatch_tokens
    if not by_requests:
        return max(server.prefill_tokens, MOST_REQUESTS)
    if server.max_running_requests is None:
        return MOST_REQUESTS
    return max(1, server.max_running_requests // server.attn_dp_size)


def layout_text(parallel: ParallelConfig) -> str:
    parts = [f"tp {parallel.tp}"]
    if parallel.dp > 1:
        parts.append(
            f"dp {parallel.dp}{' with DP attention' if parallel.enable_dp_attention else ' replicas'}"
        )
    if parallel.pp > 1:
        parts.append(f"pp {parallel.pp}")
    if parallel.ep > 1:
        parts.append(f"ep {parallel.ep}")
    return ", ".join(parts)


def unpacked(text: str) -> Start:
    return pickle.loads(b64decode(text))
