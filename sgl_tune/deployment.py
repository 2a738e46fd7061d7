"""One deployment: which model, on how many ranks, started how, for which versions and GPU, cached where."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.config import ConfigError, ModelConfig, ParallelConfig, RuntimeConfig, SpeculativeConfig
from sgl_tune import server_rules as rules
from sgl_tune.cache.recipes import recipe_for
from sgl_tune.errors import UsageError
from sgl_tune.models import DEMO, find_model
from sgl_tune.options import ServerFlags
from sgl_tune.versions import installed_version, local_gpus

ASSUMED_ARCH = "sm90"
CPU_ARCH = "cpu"
DEMO_BACKEND = "flashinfer_cutlass"


@dataclass(frozen=True, slots=True)
class DraftWorker:
    """The speculative draft: a model of its own with a cache of its own, on the target's ranks."""

    model_path: str
    model: ModelConfig
    quantization: str | None
    moe_runner_backend: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything a plan needs, resolved as the server would. `notes` says what was assumed on the way."""

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
    draft: DraftWorker | None = None
    skip_ops: tuple[str, ...] = ()
    disaggregation_mode: str = "null"
    gpu_mib: int | None = None

    @property
    def replicas(self) -> int:
        """Whole servers that plain data parallelism starts; DP attention is one server."""
        return 1 if self.parallel.enable_dp_attention else self.parallel.dp

    @property
    def draft_deployment(self) -> Deployment | None:
        """The draft worker as a deployment of its own, on the same ranks."""
        if self.draft is None:
            return None
        runtime = replace(self.runtime, moe_runner_backend=self.draft.moe_runner_backend)
        return replace(self, model=self.draft.model, runtime=runtime, draft=None)

    @property
    def quantization(self) -> str | None:
        """How the weights are quantized. The key holds the server argument, `runtime.quantization`."""
        return self.runtime.quantization or self.model.checkpoint_quantization


@dataclass(frozen=True, slots=True)
class _Target:
    sglang: str
    flashinfer: str
    arch: str
    gpu_mib: int | None


def deployment_from_flags(
    flags: ServerFlags,
    name: str = "",
    environ: Mapping[str, str] | None = None,
    verbatim: bool = False,
) -> Deployment:
    """`verbatim`: the flags are a whole server command, so nothing is added that the server would not do."""
    environ = os.environ if environ is None else environ
    notes: list[str] = []
    if flags.model_path is None:
        notes.append(f"no model given: the embedded demo model, {DEMO}")
    model_path = flags.model_path or DEMO
    if model_path == DEMO and flags.moe_runner_backend is None:
        flags = replace(flags, moe_runner_backend=DEMO_BACKEND)
        notes.append(
            f"{DEMO} runs with --moe-runner-backend {DEMO_BACKEND}, so that there is something to tune"
        )
    found = find_model(model_path, environ)
    notes.append(f"model shape from {found.source}")
    model = found.config
    if flags.quantization == "unquant":
        model = replace(model, checkpoint_quantization=None, quantization_block=None)
    target = _target(flags, model_path, notes)
    try:
        parallel = _parallel(flags, notes, verbatim)
        runtime = _runtime(flags, model, parallel, target)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    parallel = replace(parallel, ep=rules.resolve_ep(parallel.ep, parallel.tp, runtime.moe_a2a_backend))
    return Deployment(
        name=name or model_path.rstrip("/").rsplit("/", 1)[-1],
        model_path=model_path,
        model=model,
        parallel=parallel,
        runtime=runtime,
        sglang_version=target.sglang,
        flashinfer_version=target.flashinfer,
        arch=target.arch,
        cache_dir=resolve_cache_dir(flags.cache_dir, environ),
        notes=tuple(notes),
        draft=_draft(flags, model_path, model, runtime, environ),
        gpu_mib=target.gpu_mib,
    )


def resolve_cache_dir(asked: str | None, environ: Mapping[str, str]) -> Path:
    """SGLang's own rule: a `~` in the variable stays a `~`; only the default is expanded."""
    given = asked or environ.get("SGLANG_CACHE_DIR")
    return Path(given) if given else Path("~/.cache/sglang").expanduser()


def _target(flags: ServerFlags, model_path: str, notes: list[str]) -> _Target:
    recipe = recipe_for(flags.sglang_version or installed_version("sglang"))
    notes.extend(recipe.notes)
    flashinfer = flags.flashinfer_version or installed_version("flashinfer")
    if flashinfer is None:
        flashinfer = recipe.flashinfer
        notes.append(f"FlashInfer {flashinfer}: what SGLang {recipe.sglang} pins; none is installed here")
    elif flags.flashinfer_version is None and flashinfer != recipe.flashinfer:
        notes.append(
            f"FlashInfer {flashinfer} is installed here; SGLang {recipe.sglang} pins {recipe.flashinfer}"
        )
    arch, gpu_mib = _gpu(flags.arch, model_path, notes)
    return _Target(recipe.sglang, flashinfer, arch, gpu_mib)


def _gpu(asked: str | None, model_path: str, notes: list[str]) -> tuple[str, int | None]:
    if asked is not None:
        if asked != CPU_ARCH and not rules.arch_major(asked):
            raise UsageError(f"--arch {asked!r} is not a GPU's architecture", "write sm90, sm100, sm120 ...")
        return asked, None
    gpus = local_gpus()
    if gpus:
        return gpus[0].arch, gpus[0].mib
    if model_path == DEMO:
        return CPU_ARCH, None
    notes.append(f"no GPU here: {ASSUMED_ARCH} is assumed; say --arch for another")
    return ASSUMED_ARCH, None


def _parallel(flags: ServerFlags, notes: list[str], verbatim: bool) -> ParallelConfig:
    tp, dp = flags.tp or 1, flags.dp or 1
    attention = flags.enable_dp_attention
    if flags.attn_dp is not None and flags.attn_dp > 1:
        dp, attention = flags.attn_dp, True
    if attention is None and not verbatim and dp > 1 and tp % dp == 0:
        attention = True
        notes.append(f"DP attention is on: dp {dp} divides tp {tp}; --no-enable-dp-attention for replicas")
    replicated = dp > 1 and not attention
    if replicated and (flags.nnodes or 1) > 1:
        raise UsageError(
            f"--dp {dp} starts replicas, and SGLang starts no replicas over --nnodes {flags.nnodes}",
            "add --enable-dp-attention, or start one server a node",
        )
    return ParallelConfig(
        tp=tp,
        pp=flags.pp or 1,
        dp=dp,
        ep=flags.ep or 1,
        enable_dp_attention=bool(attention) and dp > 1,
        nnodes=flags.nnodes or 1,
        node_rank=flags.node_rank or 0,
    )


def _runtime(
    flags: ServerFlags, model: ModelConfig, parallel: ParallelConfig, target: _Target
) -> RuntimeConfig:
    a2a = flags.moe_a2a_backend or "none"
    quantization = rules.resolve_quantization(flags.quantization, model, target.arch)
    return RuntimeConfig(
        dtype=rules.resolve_dtype(flags.dtype, model),
        quantization=quantization,
        kv_cache_dtype=flags.kv_cache_dtype or "auto",
        page_size=flags.page_size or 1,
        moe_runner_backend=rules.resolve_moe_runner_backend(
            flags.moe_runner_backend, a2a, quantization, model, target.arch, parallel.ep, target.sglang
        ),
        moe_a2a_backend=a2a,
        chunked_prefill_size=flags.chunked_prefill_size,
        max_running_requests=flags.max_running_requests,
        mem_fraction_static=flags.mem_fraction_static,
        context_length=flags.context_length,
        cuda_graph_max_bs=flags.cuda_graph_max_bs,
        disable_cuda_graph=bool(flags.disable_cuda_graph),
        disable_autotune=bool(flags.disable_flashinfer_autotune),
        speculative=_speculative(flags),
        sglang_version=target.sglang,
    )


def _speculative(flags: ServerFlags) -> SpeculativeConfig | None:
    if flags.speculative_algorithm is None:
        return None
    algorithm = flags.speculative_algorithm.upper()
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP"):
        raise UsageError(
            f"--speculative-algorithm {flags.speculative_algorithm} is not supported",
            "one of EAGLE, EAGLE3, NEXTN, FROZEN_KV_MTP",
        )
    steps = flags.speculative_num_steps or 3
    return SpeculativeConfig(
        algorithm=algorithm,  # type: ignore[arg-type]
        num_steps=steps,
        eagle_topk=flags.speculative_eagle_topk or 1,
        num_draft_tokens=flags.speculative_num_draft_tokens or steps + 1,
    )


def _draft(
    flags: ServerFlags,
    model_path: str,
    model: ModelConfig,
    runtime: RuntimeConfig,
    environ: Mapping[str, str],
) -> DraftWorker | None:
    if runtime.speculative is None:
        return None
    path = flags.speculative_draft_model_path or model_path
    draft = model if path == model_path else find_model(path, environ).config
    return DraftWorker(
        model_path=path,
        model=draft,
        quantization=flags.quantization or draft.checkpoint_quantization,
        moe_runner_backend=runtime.moe_runner_backend,
    )
