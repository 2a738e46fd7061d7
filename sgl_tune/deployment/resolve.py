"""From flags to a deployment, as SGLang's start resolves them; what had to be assumed is noted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.server import rules
from runtime.server.config import ModelConfig, ParallelConfig, RuntimeConfig, SpeculativeConfig
from runtime.server.errors import ConfigError
from runtime.server.gpus import CPU, gpu_for
from runtime.server.recipes import recipe_for
from runtime.server.sizing import release
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.deployment import Deployment, DraftWorker
from sgl_tune.deployment.doubts import doubts
from sgl_tune.deployment.models import DEMO, find_model
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.versions import installed_version, local_gpus, local_model
from sgl_tune.errors import UsageError

# A demo in seconds: a MoE backend that is tuned, and batches that a CPU can time.
DEMO_FLAGS = ServerFlags(
    moe_runner_backend="flashinfer_cutlass", chunked_prefill_size=1024, max_running_requests=256
)
FUSED_FINALIZE_BY_DEFAULT_UNTIL = (0, 5, 17)
_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP")


@dataclass(frozen=True, slots=True)
class _Target:
    sglang: str
    flashinfer: str
    arch: str
    gpu_mib: int | None
    warnings: tuple[str, ...]


def resolve_deployment(
    flags: ServerFlags,
    name: str = "",
    environ: Mapping[str, str] | None = None,
    verbatim: bool = False,
) -> Deployment:
    """`verbatim`: the flags are a whole server command, so nothing is added that the server would not do."""
    try:
        return _resolve(flags, name, os.environ if environ is None else environ, verbatim)
    except ConfigError as error:
        raise UsageError(error.message, error.remedy) from error


def _resolve(flags: ServerFlags, name: str, environ: Mapping[str, str], verbatim: bool) -> Deployment:
    notes: list[str] = []
    flags = _with_model(flags, notes)
    model_path = flags.model_path or DEMO
    found = find_model(model_path, environ)
    notes.append(f"model shape: {found.source}")
    model = found.config
    target = _target(flags, model_path, notes)
    parallel = _parallel(flags, notes, verbatim)
    runtime = _runtime(flags, found.declared, parallel, target, environ)
    return Deployment(
        name=name or model_path.rstrip("/").rsplit("/", 1)[-1],
        model_path=model_path,
        model=model,
        parallel=replace(parallel, ep=rules.resolve_ep(parallel.ep, parallel.tp, runtime.moe_a2a_backend)),
        runtime=runtime,
        sglang_version=target.sglang,
        flashinfer_version=target.flashinfer,
        arch=target.arch,
        cache_dir=resolve_cache_dir(flags.cache_dir, environ),
        notes=tuple(notes),
        warnings=(*target.warnings, *doubts(flags, model, parallel)),
        draft=_draft(flags, model_path, model, runtime, environ),
        skip_ops=tuple(flags.skip_ops or ()),
        disaggregation_mode=flags.disaggregation_mode or "null",
        gpu_mib=target.gpu_mib,
        dist_init_addr=flags.dist_init_addr,
    )


def resolve_cache_dir(asked: str | None, environ: Mapping[str, str]) -> Path:
    return Path(asked) if asked else default_cache_dir(environ)


def _with_model(flags: ServerFlags, notes: list[str]) -> ServerFlags:
    if flags.model_path is None:
        notes.append(f"no model given: the embedded demo model, {DEMO}")
        flags = replace(flags, model_path=DEMO)
    if flags.model_path != DEMO:
        return flags
    notes.append(
        f"{DEMO} unless said otherwise: --moe-runner-backend {DEMO_FLAGS.moe_runner_backend} "
        f"--chunked-prefill-size {DEMO_FLAGS.chunked_prefill_size} "
        f"--max-running-requests {DEMO_FLAGS.max_running_requests}"
    )
    return replace(flags, **{**DEMO_FLAGS.given(), **flags.given()})


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
    arch, gpu_mib = _gpu(flags, model_path, notes)
    return _Target(recipe.sglang, flashinfer, arch, gpu_mib, recipe.warnings)


def _gpu(flags: ServerFlags, model_path: str, notes: list[str]) -> tuple[str, int | None]:
    """The architecture, and the memory that SGLang's default sizes follow."""
    here = [local_model(gpu) for gpu in local_gpus()] if flags.gpu is None else []
    if not here and flags.gpu is None and flags.arch is None and model_path == DEMO:
        return CPU.arch, None
    chosen = gpu_for(flags.gpu, flags.arch, here)
    if chosen.assumed:
        notes.append(chosen.assumed)
    return chosen.gpu.arch, chosen.gpu.memory_mib or None


def _parallel(flags: ServerFlags, notes: list[str], verbatim: bool) -> ParallelConfig:
    tp, dp, nnodes = _size(flags.tp), _size(flags.dp), _size(flags.nnodes)
    attention = flags.enable_dp_attention
    if flags.attn_dp is not None and flags.attn_dp > 1:
        dp, attention = flags.attn_dp, True
    if attention is None and not verbatim and dp > 1 and tp % dp == 0:
        attention = True
        notes.append(f"DP attention is on: dp {dp} divides tp {tp}; --no-enable-dp-attention for replicas")
    if dp > 1 and not attention and nnodes > 1:
        raise UsageError(
            f"--dp {dp} starts replicas, and SGLang starts no replicas over --nnodes {nnodes}",
            "add --enable-dp-attention, or start one server a node",
        )
    return ParallelConfig(
        tp=tp,
        pp=_size(flags.pp),
        dp=dp,
        ep=_size(flags.ep),
        enable_dp_attention=bool(attention) and dp > 1,
        nnodes=nnodes,
        node_rank=flags.node_rank or 0,
    )


def _size(asked: int | None) -> int:
    return 1 if asked is None else asked


def _runtime(
    flags: ServerFlags,
    model: ModelConfig,
    parallel: ParallelConfig,
    target: _Target,
    environ: Mapping[str, str],
) -> RuntimeConfig:
    share = flags.mem_fraction_static
    if share is not None and not 0 < share < 1:
        raise UsageError(f"--mem-fraction-static {share} is no share of the GPU's memory", "between 0 and 1")
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
        attention_backend=rules.resolve_attention_backend(flags.attention_backend, model, target.arch),
        moe_a2a_backend=a2a,
        chunked_prefill_size=flags.chunked_prefill_size,
        max_running_requests=flags.max_running_requests,
        mem_fraction_static=share,
        context_length=flags.context_length,
        cuda_graph_max_bs=flags.cuda_graph_max_bs,
        disable_cuda_graph=bool(flags.disable_cuda_graph),
        disable_autotune=bool(flags.disable_flashinfer_autotune),
        autotune_extend=rules.is_set(environ.get("SGLANG_FLASHINFER_AUTOTUNE_EXTEND")),
        fused_finalize=_fused_finalize(target.sglang, environ),
        speculative=_speculative(flags),
        sglang_version=target.sglang,
    )


def _fused_finalize(sglang: str, environ: Mapping[str, str]) -> bool:
    if release(sglang) <= FUSED_FINALIZE_BY_DEFAULT_UNTIL:
        return True
    return rules.is_set(environ.get("SGLANG_FLASHINFER_MOE_FUSED_FINALIZE"))


def _speculative(flags: ServerFlags) -> SpeculativeConfig | None:
    if flags.speculative_algorithm is None:
        return None
    algorithm = flags.speculative_algorithm.upper()
    if algorithm not in _ALGORITHMS:
        raise UsageError(
            f"--speculative-algorithm {flags.speculative_algorithm} is not supported",
            f"one of {', '.join(_ALGORITHMS)}",
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
        quantization=rules.asked_quantization(flags.quantization) or draft.checkpoint_quantization,
        moe_runner_backend=rules.draft_moe_runner_backend(runtime.moe_runner_backend),
    )
