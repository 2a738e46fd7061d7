"""Which backend runs the experts, and how they are divided among the ranks: srt/arg_groups/moe_hook.py."""

from collections.abc import Callable
from dataclasses import replace

from runtime.server.asked import Asked
from runtime.server.backends import BACKENDS, backend_row
from runtime.server.errors import ConfigError
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel

ALL_TO_ALLS = ("none", "flashinfer")


def by_trtllm(*methods: str | None) -> Callable[[Asked, Weights, GpuModel], str | None]:
    """Return a rule that picks TRT-LLM's kernels on Blackwell servers, for these --quantization values."""

    def chosen(asked: Asked, weights: Weights, gpu: GpuModel) -> str | None:
        fits = gpu.major == 10 and asked.moe_a2a_backend == "none" and weights.asked in methods
        return "flashinfer_trtllm" if fits else None

    return chosen


def moe_runner(asked: Asked, family: Family, weights: Weights, gpu: GpuModel) -> str:
    name = asked.moe_runner_backend
    if name == "auto" and family.experts is not None:
        name = family.experts(asked, weights, gpu) or name
    if name == "auto" and weights.asked == "modelopt_fp4" and gpu.major in (11, 12):
        name = "flashinfer_cutlass"
    _check(name, asked, weights, gpu)
    return name


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
    """Return the arguments with the experts divided among all TP ranks if there is an all-to-all."""
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
    if chunk <= 0:
        raise ConfigError(
            f"--moe-a2a-backend flashinfer needs chunked prefill, and --chunked-prefill-size is {chunk}",
            "give a size above 0",
        )
    return replace(asked, ep_size=asked.tp_size)
