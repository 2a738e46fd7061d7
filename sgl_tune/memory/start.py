"""One start of one rank, told so that another process can predict or measure it. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runtime.server.config import ModelConfig, ParallelConfig, RuntimeConfig
from runtime.server.sizing import chunk_per_rank, gpu_defaults
from runtime.simulate.constants import GpuConstants, constants_for
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.memory.ranks import choose_ranks, rank_name
from sgl_tune.memory.target import TargetGpu
from sgl_tune.memory.what_if import AS_IS, ASCENDING, DISPATCHER, LM_HEAD, WhatIf

_MOST_REQUESTS = 4096  # that SGLang resolves to for a rank
RUNTIME_MOE_BACKENDS = frozenset(
    ("auto", "triton", "torch", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_trtllm_routed")
)


@dataclass(frozen=True, slots=True)
class Start:
    """`lm_head` runs the head in the autotune dummy run, `ascending` captures the smallest graph first."""

    name: str
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    gpu: TargetGpu
    arch: str
    rank: int = 0
    constants: GpuConstants | None = None
    lm_head: bool = False
    ascending: bool = False
    notes: tuple[str, ...] = ()

    @property
    def rank_name(self) -> str:
        return rank_name(self.parallel, self.rank)

    def with_runtime(self, **changes: Any) -> Start:
        return replace(self, runtime=replace(self.runtime, **changes))

    def alone(self) -> Start:
        """As one GPU measures it: peers are arithmetic and take no buffers, and no tactic is profiled."""
        constants = replace(self.constants or constants_for(self.arch), nccl={})
        return replace(self.with_runtime(autotune_cached=True), constants=constants)

    def shortened(self) -> Start:
        """The first layers, one of each kind among them, on one stage."""
        first_moe = self.model.layer_kinds.index("moe") if "moe" in self.model.layer_kinds else 0
        layers = min(self.model.num_layers, max(2, first_moe + 1))
        model = replace(
            self.model,
            num_layers=layers,
            layer_kinds=self.model.layer_kinds[:layers],
            attention_kinds=self.model.attention_kinds[:layers],
        )
        return replace(
            self, model=model, parallel=replace(self.parallel, pp=1, nnodes=1, node_rank=0), rank=0
        )

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


def starts_of(
    deployment: Deployment, gpu: TargetGpu, ranks: str, what_if: WhatIf = AS_IS
) -> tuple[Start, ...]:
    """One for each kind of rank among those that are asked for."""
    by_requests = DISPATCHER in what_if.behaviours
    runtime = replace(deployment.runtime, a2a_max_tokens=_dispatch_tokens(deployment, gpu, by_requests))
    runtime, notes = _stand_ins(runtime)
    return tuple(
        Start(
            name=deployment.name,
            model=deployment.model,
            parallel=deployment.parallel,
            runtime=runtime,
            gpu=gpu,
            arch=deployment.arch,
            rank=rank,
            lm_head=LM_HEAD in what_if.behaviours,
            ascending=ASCENDING in what_if.behaviours,
            notes=notes,
        )
        for rank in dict.fromkeys(choose_ranks(ranks, deployment.model, deployment.parallel).values())
    )


def _stand_ins(runtime: RuntimeConfig) -> tuple[RuntimeConfig, tuple[str, ...]]:
    """The nearest that this runtime has of the kernels that it lacks: their weights take the same memory."""
    notes = []
    moe, a2a = runtime.moe_runner_backend, runtime.moe_a2a_backend
    if moe not in RUNTIME_MOE_BACKENDS:
        notes.append(f"predicted with triton's workspaces in place of {moe}'s, which are not known")
        runtime = replace(runtime, moe_runner_backend="triton")
    if a2a not in ("none", "flashinfer"):
        notes.append(f"predicted with flashinfer's all-to-all workspace in place of {a2a}'s")
        runtime = replace(runtime, moe_a2a_backend="flashinfer")
    return runtime, tuple(notes)


def _dispatch_tokens(deployment: Deployment, gpu: TargetGpu, by_requests: bool) -> int:
    """SGLang's workspace holds a rank's chunk and any batch it resolves; once it held the requests alone."""
    runtime, parallel = deployment.runtime, deployment.parallel
    if by_requests and runtime.max_running_requests is not None:
        return max(1, runtime.max_running_requests // parallel.attn_dp)
    if by_requests:
        return _MOST_REQUESTS
    default = gpu_defaults(gpu.driver_mib, parallel.tp, runtime.sglang_version).chunked_prefill_size
    return max(chunk_per_rank(runtime.chunked_prefill_size or default, parallel), _MOST_REQUESTS)


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
