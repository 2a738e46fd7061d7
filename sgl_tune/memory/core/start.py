"""One start of one rank of the core, as data that can be sent to another process. No torch."""

from dataclasses import dataclass, replace
from typing import Any

from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.gpus import GpuModel
from runtime.server.parallel import ParallelConfig
from runtime.server.shape import Server
from runtime.server.sizes.batches import MOST_REQUESTS
from runtime.start.options import StartOptions
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.memory.starting import ASCENDING, DISPATCHER, LM_HEAD, layout_for

MEASURED_MOE = "flashinfer_cutlass"


@dataclass(frozen=True, slots=True)
class Start:
    """A start of one rank. `backend`: the MoE runner that the server uses; `runtime` may name another in
    its place. `behaviours`: those of a what-if. `most_tokens`: the KV tokens that the other pipeline
    stages have room for. `has_peers`: False if one GPU stands for a rank."""

    title: str
    subtitle: str
    backend: str
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    gpu: GpuModel
    rank: int = 0
    behaviours: tuple[str, ...] = ()
    most_tokens: int | None = None
    has_peers: bool = True
    notes: tuple[str, ...] = ()

    @property
    def rank_name(self) -> str:
        return layout_for(self.parallel).name(self.rank)

    @property
    def options(self) -> StartOptions:
        return StartOptions(
            lm_head_in_autotune=LM_HEAD in self.behaviours,
            most_tokens=self.most_tokens,
            graphs_ascending=ASCENDING in self.behaviours,
        )

    def alone(self) -> "Start":
        """Return the start as one GPU measures it: the peers' share is computed and takes no buffers."""
        return replace(self.as_measured(), has_peers=False)

    def as_measured(self) -> "Start":
        """Return the start as it is measured. No tactic is profiled, and experts that FlashInfer does not
        tune use FlashInfer's own kernels."""
        kernels = self.runtime.kernels
        if self.model.moe is not None and not backend_row(kernels.moe).is_tuned:
            kernels = replace(kernels, moe=MEASURED_MOE)
        return replace(self, runtime=replace(self.runtime, autotune_cached=True, kernels=kernels))

    def about(self) -> dict[str, Any]:
        """Return the first line of the run's file."""
        names = ("title", "subtitle", "rank", "rank_name")
        return {**{name: getattr(self, name) for name in names}, "gpu": self.gpu.name, "arch": self.gpu.arch}


def starts_of(deployment: Deployment, ranks: str, behaviours: tuple[str, ...] = ()) -> tuple[Start, ...]:
    """Return one start for each rank that `ranks` asks for."""
    runtime, notes = _runtime(deployment, DISPATCHER in behaviours)
    start = Start(
        title=deployment.name,
        subtitle=f"{layout_text(deployment.parallel)}, SGLang {deployment.inputs.sglang_version}",
        backend=deployment.runtime.kernels.moe,
        model=deployment.model,
        parallel=deployment.parallel,
        runtime=runtime,
        gpu=deployment.inputs.gpu,
        behaviours=behaviours,
        notes=notes,
    )
    return tuple(replace(start, rank=rank) for rank in layout_for(deployment.parallel).started(ranks))


def _runtime(deployment: Deployment, by_requests: bool) -> tuple[RuntimeConfig, tuple[str, ...]]:
    """Return the config and notes. Kernels that the core lacks are replaced; the weights' memory stays
    equal."""
    tokens = _dispatch_tokens(deployment.server, by_requests)
    kernels, notes = replace(deployment.runtime.kernels, a2a_max_tokens=tokens), tuple[str, ...]()
    backend = backend_row(kernels.moe)
    if not backend.kernels:
        kernels = replace(kernels, moe="triton")
        notes = (f"triton's workspaces stand for those of {backend.name}, which are not known",)
    return replace(deployment.runtime, kernels=kernels), notes


def _dispatch_tokens(server: Server, by_requests: bool) -> int:
    """Return the tokens in SGLang's dispatch workspace: a rank's chunk, or any batch that SGLang resolves.
    `by_requests`: an older rule, by the running requests alone."""
    if not by_requests:
        return max(server.runtime.prefill_tokens, MOST_REQUESTS)
    if server.runtime.max_running_requests is None:
        return MOST_REQUESTS
    return max(1, server.runtime.max_running_requests // server.parallel.attn_dp)


def layout_text(parallel: ParallelConfig) -> str:
    parts = [f"tp {parallel.tp}"]
    if parallel.dp > 1:
        parts.append(
            f"dp {parallel.dp}{' with DP attention' if parallel.enable_dp_attention else ' replicas'}"
        )
    parts += [f"{name} {size}" for name, size in (("pp", parallel.pp), ("ep", parallel.ep)) if size > 1]
    return ", ".join(parts)
