"""Which backend runs the experts, and how they are spread over the ranks: srt/arg_groups/moe_hook.py."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.asked import Asked
from runtime.server.backends import BACKENDS, backend_row
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import GpuModel
from runtime.server.quantization import Weights, declared_method

_TRTLLM, _ROUTED, _CUTLASS = "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass"
_DEEPSEEKS = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
_QWENS = ("Qwen3MoeForCausalLM", "Qwen3NextForCausalLM")
# On a Blackwell server, without an all-to-all: families, and the arguments for which TRT-LLM's kernels run.
_BY_TRTLLM = (
    (_DEEPSEEKS, (None, "fp8", "modelopt_fp8", "modelopt_fp4")),
    (_QWENS, (None, "fp8", "modelopt_fp4")),
    (("Glm4MoeForCausalLM",), (None, "modelopt_fp4")),
)
ALL_TO_ALLS = ("none", "flashinfer")


def moe_runner(asked: Asked, model: Checkpoint, weights: Weights, gpu: GpuModel) -> str:
    name = asked.moe_runner_backend
    if name == "auto":
        name = _by_family(asked, model, weights, gpu) or name
    if name == "auto" and weights.asked == "modelopt_fp4" and gpu.major in (11, 12):
        name = _CUTLASS
    _check(name, asked, weights, gpu)
    return name


def _by_family(asked: Asked, model: Checkpoint, weights: Weights, gpu: GpuModel) -> str | None:
    architecture, alone = model.architecture, asked.moe_a2a_backend == "none"
    if architecture == "GptOssForCausalLM":
        return _gpt_oss(asked, model, weights, gpu)
    if architecture == "NemotronHForCausalLM":
        in_fp4 = weights.stored == "modelopt_fp4" and gpu.major in (8, 9)
        return _TRTLLM if gpu.major == 10 and alone else "marlin" if in_fp4 else _CUTLASS
    if architecture == "MiniMaxM2ForCausalLM" and weights.stored == "modelopt_fp4" and gpu.major == 10:
        return _ROUTED
    if gpu.major != 10 or not alone:
        return None
    fits = (methods for names, methods in _BY_TRTLLM if architecture in names)
    return _TRTLLM if weights.asked in next(fits, ()) else None


def _gpt_oss(asked: Asked, model: Checkpoint, weights: Weights, gpu: GpuModel) -> str | None:
    if declared_method(model) == "mxfp4" and gpu.major in (10, 12):
        return "flashinfer_mxfp4"
    return "triton_kernel" if asked.ep_size == 1 and weights.asked is None else None


def _check(name: str, asked: Asked, weights: Weights, gpu: GpuModel) -> None:
    row = backend_row(name)
    if weights.stored == "modelopt_fp4" and gpu.major in (8, 9) and name not in ("auto", "marlin"):
        raise ConfigError(
            f"MoE backend {name} does not take NVFP4 on {gpu.arch}", "leave --moe-runner-backend out"
        )
    if row.takes and weights.asked not in row.takes:
        raise ConfigError(
            f"MoE backend {name} does not take quantization {weights.asked}",
            "leave --moe-runner-backend out, or name another",
        )
    if row.spread_over_one_or_all and asked.ep_size not in (1, asked.tp_size):
        raise ConfigError(
            f"--ep {asked.ep_size}: MoE backend {name} wants 1 or all TP ranks", f"--ep {asked.tp_size}"
        )


def spread(asked: Asked, backend: str, attn_dp: int, chunk: int) -> Asked:
    """An all-to-all spreads the experts over all TP ranks."""
    if asked.moe_a2a_backend == "none":
        return asked
    if asked.moe_a2a_backend not in ALL_TO_ALLS:
        raise ConfigError(
            f"--moe-a2a-backend {asked.moe_a2a_backend} is not one of the core's",
            f"one of {', '.join(ALL_TO_ALLS)}",
        )
    if not attn_dp == asked.tp_size > 1:
        raise ConfigError(
            f"--moe-a2a-backend flashinfer needs as many attention-DP groups as TP ranks: {attn_dp} of "
            f"{asked.tp_size}",
            f"--dp {asked.tp_size} --enable-dp-attention",
        )
    if not backend_row(backend).under_flashinfer_a2a:
        able = ", ".join(row.name for row in BACKENDS.values() if row.under_flashinfer_a2a)
        raise ConfigError(
            f"--moe-a2a-backend flashinfer does not work with MoE backend {backend}",
            f"--moe-runner-backend {able}",
        )
    if chunk <= 0 and asked.disaggregation_mode != "decode":
        raise ConfigError(
            f"--moe-a2a-backend flashinfer needs chunked prefill, and --chunked-prefill-size is {chunk}",
            "give a size above 0",
        )
    return replace(asked, ep_size=asked.tp_size)
