"""One deployment: which model, on how many ranks, started how, for which versions and GPU, cached where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from runtime.server.config import ModelConfig, ParallelConfig, RuntimeConfig


@dataclass(frozen=True, slots=True)
class DraftWorker:
    """The speculative draft: a model of its own with a cache of its own, on the target's ranks."""

    model_path: str
    model: ModelConfig
    quantization: str | None
    moe_runner_backend: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything a plan needs, resolved as the server would. `notes` says what was assumed on the way,
    `warnings` what is doubtful about it."""

    name: str
    model_path: str
    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    sglang_version: str
    flashinfer_version: str
    arch: str
    cache_dir: Path
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    draft: DraftWorker | None = None
    skip_ops: tuple[str, ...] = ()
    disaggregation_mode: str = "null"
    gpu_mib: int | None = None
    dist_init_addr: str | None = None

    @property
    def replicas(self) -> int:
        """Whole servers that plain data parallelism starts; DP attention is one server."""
        return 1 if self.parallel.enable_dp_attention else self.parallel.dp

    @property
    def draft_deployment(self) -> Deployment | None:
        """The draft worker as a deployment of its own, on the same ranks."""
        if self.draft is None:
            return None
        backend, quantization = self.draft.moe_runner_backend, self.draft.quantization
        runtime = replace(self.runtime, moe_runner_backend=backend, quantization=quantization)
        return replace(self, model=self.draft.model, runtime=runtime, draft=None)

    @property
    def quantization(self) -> str | None:
        """How the weights are quantized. The key holds the server argument, `runtime.quantization`."""
        return self.runtime.quantization or self.model.checkpoint_quantization
