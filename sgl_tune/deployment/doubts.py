"""What is taken as it was given, and is most likely not what its author meant."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from runtime.server.config import ModelConfig, ParallelConfig
from sgl_tune.deployment.options import ServerFlags

# SGLang 0.5.12 to 0.5.23.
MOE_RUNNER_BACKENDS = (
    *("auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
    *("flashinfer_cutlass", "flashinfer_mxfp4", "flashinfer_cutedsl", "flashinfer_megamoe", "cutlass"),
    *("experimental_sgl_trtllm", "experimental_sgl_marlin", "aiter", "marlin", "humming", "hpc_ops"),
    *("lora_cutedsl", "lora_triton", "lora_marlin", "megamoe", "intel_xpu", "ascend_fuseep"),
)


def doubts(flags: ServerFlags, model: ModelConfig, parallel: ParallelConfig) -> Iterator[str]:
    backend = flags.moe_runner_backend
    if backend is not None and backend not in MOE_RUNNER_BACKENDS:
        close = get_close_matches(backend, MOE_RUNNER_BACKENDS)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        yield f"--moe-runner-backend {backend} is none that SGLang is known to have{meant}"
    if model.num_heads % parallel.attn_tp:
        yield (
            f"{model.num_heads} attention heads cannot be divided among {parallel.attn_tp} ranks (tp"
            f" {parallel.tp}): the server will not start"
        )
    dp, tp = parallel.dp, parallel.tp
    if (
        flags.enable_dp_attention is None
        and dp > 1
        and tp > 1
        and not parallel.enable_dp_attention
        and tp % dp
    ):
        yield f"dp {dp} does not divide tp {tp}: {dp} replicas of the server, not DP attention"
