"""What is taken as it was given, and is most likely not what its author meant."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from sgl_tune.deployment.options import ServerFlags

# SGLang 0.5.12 to 0.5.23.
MOE_RUNNER_BACKENDS = (
    *("auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
    *("flashinfer_cutlass", "flashinfer_mxfp4", "flashinfer_cutedsl", "flashinfer_megamoe", "cutlass"),
    *("experimental_sgl_trtllm", "experimental_sgl_marlin", "aiter", "marlin", "humming", "hpc_ops"),
    *("lora_cutedsl", "lora_triton", "lora_marlin", "megamoe", "intel_xpu", "ascend_fuseep"),
)


def doubts(flags: ServerFlags, checkpoint: Checkpoint, asked: Asked) -> Iterator[str]:
    backend = flags.moe_runner_backend
    if backend is not None and backend not in MOE_RUNNER_BACKENDS:
        close = get_close_matches(backend, MOE_RUNNER_BACKENDS)
        meant = f"; did you mean {' or '.join(close)}?" if close else ""
        yield f"--moe-runner-backend {backend} is none that SGLang is known to have{meant}"
    heads = checkpoint.get("num_attention_heads")
    attn_tp = asked.tp_size // (asked.attn_dp_size or (asked.dp_size if asked.enable_dp_attention else 1))
    if isinstance(heads, int) and attn_tp and heads % attn_tp:
        yield (
            f"{heads} attention heads cannot be divided among {attn_tp} ranks (tp {asked.tp_size}): "
            "the server will not start"
        )
    replicas = flags.enable_dp_attention is None and not asked.enable_dp_attention
    if replicas and asked.dp_size > 1 and asked.tp_size > 1 and asked.tp_size % asked.dp_size:
        yield (
            f"dp {asked.dp_size} does not divide tp {asked.tp_size}: {asked.dp_size} replicas of the server, "
            "not DP attention"
        )
