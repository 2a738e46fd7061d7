"""A row a family, a GPU and a quantization: the MoE backend that an unset one becomes.

Read in srt/arg_groups/model_overrides/ (before, in srt/server_args.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runtime.server.backends import FIRST, Number
from runtime.server.checkpoint import Checkpoint
from runtime.server.expert_weights import (
    has_fp4_experts,
    has_int4_experts,
    has_nvfp4_experts,
    has_w4a16_experts,
    is_mxfp8_modelopt,
    packs_mxfp4,
    packs_nvfp4,
)
from runtime.server.families import (
    ANY_GPU,
    BAILING3,
    BLACKWELL_SERVER,
    BY_DEEP_GEMM,
    COHERE,
    DEEPSEEK,
    DEEPSEEK4,
    DOTS,
    GEMMA4,
    GLM4,
    GLM_NEXT,
    HYV4,
    KIMI3,
    LLAMA4,
    LONGCAT,
    MIMO,
    MINIMAX2,
    MINIMAX3,
    NEMOTRON,
    QWEN,
    QWEN4,
)

Methods = frozenset[str | None]
NEVER: Number = (9,)


@dataclass(frozen=True, slots=True)
class FamilyBackend:
    """`backend` for an unset one. `of`: whose quantization counts. `until`: the first without it."""

    architectures: frozenset[str]
    backend: str
    methods: Methods | None = None
    of: Literal["argument", "model", "declared"] = "argument"
    majors: tuple[int, ...] = BLACKWELL_SERVER
    with_a2a: bool = False
    when: Callable[[Checkpoint], bool] | None = None
    since: Number = FIRST
    until: Number = NEVER
    also_over: tuple[str, ...] = ()


def _methods(*names: str | None) -> Methods:
    return frozenset(names)


_PLAIN_FP8_FP4 = _methods(None, "fp8", "modelopt_fp4")
_MIXED = _methods("modelopt_mixed")
_MODELOPT = _methods("modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed")
_TRTLLM, _ROUTED, _MXFP4 = "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_mxfp4"
_HOPPER_ON = (9, 10, 12)
_BEFORE_BLACKWELL = (8, 9)

# The first that fits an unset backend wins.
FAMILY_BACKENDS = (
    FamilyBackend(HYV4, "deep_gemm", majors=BY_DEEP_GEMM, when=is_mxfp8_modelopt),
    *(
        FamilyBackend(family, _TRTLLM, _PLAIN_FP8_FP4 | _MIXED | {"modelopt_fp8"}, since=since, until=until)
        for family, since, until in (
            (DEEPSEEK, FIRST, NEVER),
            (LONGCAT, (0, 5, 16), (0, 5, 17)),
            (DOTS | HYV4 | GLM_NEXT, FIRST, NEVER),
        )
    ),
    FamilyBackend(DEEPSEEK, _TRTLLM, _methods("compressed-tensors"), when=has_int4_experts),
    FamilyBackend(QWEN | QWEN4, "marlin", _MIXED, with_a2a=True, when=has_w4a16_experts, since=(0, 5, 20)),
    FamilyBackend(QWEN, _TRTLLM, _PLAIN_FP8_FP4),
    FamilyBackend(QWEN | QWEN4, _TRTLLM, _PLAIN_FP8_FP4 | _MIXED, since=(0, 5, 20)),
    FamilyBackend(GLM4, _TRTLLM, _methods("modelopt_fp4")),
    FamilyBackend(GLM4, _TRTLLM, _methods(None), since=(0, 5, 15)),
    FamilyBackend(LLAMA4, _TRTLLM, _methods("fp8", "modelopt_fp8"), with_a2a=True),
    FamilyBackend(
        NEMOTRON,
        "marlin",
        _MIXED,
        of="model",
        majors=ANY_GPU,
        with_a2a=True,
        when=has_w4a16_experts,
        since=(0, 5, 18),
    ),
    FamilyBackend(NEMOTRON, _TRTLLM, _MODELOPT, of="model"),
    FamilyBackend(NEMOTRON, _TRTLLM, _methods(None), of="model", since=(0, 5, 13)),
    FamilyBackend(
        NEMOTRON,
        "marlin",
        _methods("modelopt_fp4", "modelopt_mixed"),
        of="model",
        majors=_BEFORE_BLACKWELL,
        with_a2a=True,
        since=(0, 5, 13),
    ),
    FamilyBackend(NEMOTRON, "flashinfer_cutlass", _MODELOPT, of="model", majors=ANY_GPU, with_a2a=True),
    FamilyBackend(
        NEMOTRON,
        "flashinfer_cutlass",
        _methods(None),
        of="model",
        majors=ANY_GPU,
        with_a2a=True,
        since=(0, 5, 13),
    ),
    FamilyBackend(GEMMA4, _TRTLLM, _methods("modelopt_fp4"), of="model", with_a2a=True, since=(0, 5, 13)),
    FamilyBackend(
        DEEPSEEK4, _ROUTED, majors=ANY_GPU, with_a2a=True, when=has_nvfp4_experts, since=(0, 5, 14)
    ),
    FamilyBackend(DEEPSEEK4, "marlin", majors=(12,), with_a2a=True, since=(0, 5, 13), until=(0, 5, 19)),
    FamilyBackend(DEEPSEEK4, _MXFP4, majors=_HOPPER_ON, when=has_fp4_experts, since=(0, 5, 19)),
    FamilyBackend(
        MIMO, _TRTLLM, _methods("fp8"), of="declared", with_a2a=True, since=(0, 5, 17), until=(0, 5, 22)
    ),
    FamilyBackend(MIMO, _MXFP4, _methods("fp8"), of="declared", when=has_fp4_experts, since=(0, 5, 22)),
    FamilyBackend(MIMO, _TRTLLM, _methods("fp8"), of="declared", since=(0, 5, 22)),
    FamilyBackend(
        MIMO,
        "marlin",
        _methods("fp8"),
        of="declared",
        majors=(9,),
        with_a2a=True,
        when=has_fp4_experts,
        since=(0, 5, 22),
    ),
    FamilyBackend(MINIMAX2, _ROUTED, _methods("modelopt_fp4"), of="model", with_a2a=True, since=(0, 5, 18)),
    FamilyBackend(MINIMAX3, "deep_gemm", _methods("mxfp8"), with_a2a=True, since=(0, 5, 16)),
    FamilyBackend(MINIMAX3, _ROUTED, _MIXED, with_a2a=True, since=(0, 5, 17)),
    FamilyBackend(
        MINIMAX3,
        "triton",
        _methods(None),
        majors=ANY_GPU,
        with_a2a=True,
        also_over=("deep_gemm",),
        since=(0, 5, 16),
    ),
    FamilyBackend(KIMI3, _MXFP4, with_a2a=True, when=packs_mxfp4),
    FamilyBackend(
        frozenset(("InternS2MobiusForConditionalGeneration",)),
        "triton_kernel",
        majors=ANY_GPU,
        with_a2a=True,
    ),
    FamilyBackend(COHERE, _TRTLLM, _methods(None), of="model", with_a2a=True, since=(0, 5, 19)),
    FamilyBackend(COHERE, _TRTLLM, with_a2a=True, when=packs_nvfp4, since=(0, 5, 19)),
    FamilyBackend(
        BAILING3,
        _MXFP4,
        _methods("fp8"),
        of="model",
        majors=_HOPPER_ON,
        when=has_fp4_experts,
        since=(0, 5, 21),
    ),
    FamilyBackend(frozenset(("BeamForCausalLM",)), _TRTLLM, _methods("modelopt_fp4"), of="model"),
)
