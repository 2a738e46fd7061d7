"""Families of models by architecture, and what SGLang's per-model overrides make of their arguments.

Read in srt/arg_groups/model_overrides/ (before, in srt/server_args.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from runtime.server.checkpoint import Checkpoint

Number = tuple[int, ...]
Methods = frozenset[str | None]
FIRST: Number = (0, 5, 12)
NEVER: Number = (9,)
BLACKWELL_SERVER = (10,)
ANY_GPU: tuple[int, ...] = ()

DEEPSEEK = frozenset(
    (
        *("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        *("KimiK25ForConditionalGeneration", "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"),
    )
)
LONGCAT = frozenset(("LongcatFlashForCausalLM", "LongcatFlashForCausalLMNextN"))
_DOTS = frozenset(("Dots3NoteForCausalLM",))
_HYV4 = frozenset(("HYV4ForCausalLM", "HYV4ForCausalLMNextN"))
_GLM_NEXT = frozenset(("Glm5NextForConditionalGeneration",))
QWEN = frozenset(
    (
        *("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration", "Qwen3NextForCausalLM"),
        *("Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration"),
        "InternS2PreviewForConditionalGeneration",
    )
)
_QWEN4 = frozenset(("Qwen4ExpForConditionalGeneration",))
GLM4 = frozenset(("Glm4MoeForCausalLM",))
GPT_OSS = frozenset(("GptOssForCausalLM",))
NEMOTRON = frozenset(("NemotronHForCausalLM", "NemotronHPuzzleForCausalLM", "NemotronH_Omni_Reasoning_V3"))
_LLAMA4 = frozenset(("Llama4ForConditionalGeneration", "Llama4ForCausalLM"))
GEMMA4 = frozenset(
    (
        *("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"),
        *("Gemma4UnifiedForConditionalGeneration", "DiffusionGemmaForBlockDiffusion"),
    )
)
_DEEPSEEK4 = frozenset(("DeepseekV4ForCausalLM",))
_MIMO = frozenset(("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"))
_MINIMAX2 = frozenset(("MiniMaxM2ForCausalLM",))
_MINIMAX3 = frozenset(("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"))
_KIMI3 = frozenset(("KimiK3ForConditionalGeneration",))
_COHERE = frozenset(("Cohere2VisionForConditionalGeneration", "Cohere2MoeForCausalLM"))
_BAILING3 = frozenset(("BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"))
FIXED_BFLOAT16 = frozenset(("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"))
LONG_DRAFTS = frozenset(("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"))


@dataclass(frozen=True, slots=True)
class WriteBack:
    """The checkpoint's own method becomes the argument, where none was given."""

    architectures: frozenset[str]
    since: Number = FIRST
    majors: tuple[int, ...] = BLACKWELL_SERVER


# SGLang looks at nothing else here than ModelOpt's NVFP4.
GEMMA_WRITES_BACK_SINCE: Number = (0, 5, 13)
WRITE_BACKS = (
    WriteBack(DEEPSEEK),
    WriteBack(LONGCAT, since=(0, 5, 16)),
    WriteBack(_DOTS, since=(0, 5, 19)),
    WriteBack(_HYV4 | _GLM_NEXT, since=(0, 5, 20)),
    WriteBack(QWEN),
    WriteBack(_QWEN4, since=(0, 5, 20)),
    WriteBack(GLM4),
    WriteBack(_MINIMAX3, since=(0, 5, 16), majors=ANY_GPU),
)


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


def is_mxfp8_modelopt(model: Checkpoint) -> bool:
    return str(model.mapping("quantization_config").get("quant_algo", "")).upper() == "MXFP8"


def has_int4_experts(model: Checkpoint) -> bool:
    """Kimi's: groups of 32 weights of four bits, by compressed-tensors."""
    groups = _section(model.mapping("quantization_config"), "config_groups")
    weights = _section(_section(groups, "group_0"), "weights")
    wanted = {"num_bits": 4, "group_size": 32, "strategy": "group", "type": "int"}
    return all(weights.get(name) == value for name, value in wanted.items())


def has_fp4_experts(model: Checkpoint) -> bool:
    """DeepSeek V4's are, unless the weights' headers say otherwise: a config.json does not."""
    section = model.mapping("quantization_config")
    declared = section.get("routed_experts_quant_method") or section.get("store_dtype")
    return declared == "mxfp4" if declared else model.architecture in _DEEPSEEK4


def has_nvfp4_experts(model: Checkpoint) -> bool:
    """A mixed checkpoint of FP8 whose experts are NVFP4."""
    section = model.mapping("quantization_config")
    mixed = section.get("quant_algo") == "MIXED_PRECISION" and section.get("moe_quant_algo") == "NVFP4"
    return mixed and bool(section.get("group_size"))


def has_w4a16_experts(model: Checkpoint) -> bool:
    layers = _section(model.mapping("quantization_config"), "quantized_layers")
    kinds = (_section(layers, name).get("quant_algo") for name in layers if ".experts." in str(name))
    return any(str(kind).upper() == "W4A16_NVFP4" for kind in kinds)


def packs_mxfp4(model: Checkpoint) -> bool:
    return "mxfp4" in _packed_formats(model)


def packs_nvfp4(model: Checkpoint) -> bool:
    return "nvfp4" in _packed_formats(model)


def _packed_formats(model: Checkpoint) -> str:
    section = _section(model.text, "quantization_config") or model.mapping("quantization_config")
    groups = _section(section, "config_groups")
    formats = [section.get("format"), *(_section(groups, name).get("format") for name in groups)]
    return " ".join(map(str, formats))


def _section(of: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


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
    FamilyBackend(_HYV4, "deep_gemm", when=is_mxfp8_modelopt, since=(0, 5, 20)),
    *(
        FamilyBackend(family, _TRTLLM, _PLAIN_FP8_FP4 | _MIXED | {"modelopt_fp8"}, since=since, until=until)
        for family, since, until in (
            (DEEPSEEK, FIRST, NEVER),
            (LONGCAT, (0, 5, 16), (0, 5, 17)),
            (_DOTS, (0, 5, 19), NEVER),
            (_HYV4 | _GLM_NEXT, (0, 5, 20), NEVER),
        )
    ),
    FamilyBackend(DEEPSEEK, _TRTLLM, _methods("compressed-tensors"), when=has_int4_experts),
    FamilyBackend(QWEN | _QWEN4, "marlin", _MIXED, with_a2a=True, when=has_w4a16_experts, since=(0, 5, 20)),
    FamilyBackend(QWEN, _TRTLLM, _PLAIN_FP8_FP4),
    FamilyBackend(QWEN | _QWEN4, _TRTLLM, _PLAIN_FP8_FP4 | _MIXED, since=(0, 5, 20)),
    FamilyBackend(GLM4, _TRTLLM, _methods("modelopt_fp4")),
    FamilyBackend(GLM4, _TRTLLM, _methods(None), since=(0, 5, 15)),
    FamilyBackend(_LLAMA4, _TRTLLM, _methods("fp8", "modelopt_fp8"), with_a2a=True),
    FamilyBackend(
        NEMOTRON, "marlin", _MIXED, "model", ANY_GPU, True, when=has_w4a16_experts, since=(0, 5, 18)
    ),
    FamilyBackend(NEMOTRON, _TRTLLM, _MODELOPT, "model"),
    FamilyBackend(NEMOTRON, _TRTLLM, _methods(None), "model", since=(0, 5, 13)),
    FamilyBackend(
        NEMOTRON,
        "marlin",
        _methods("modelopt_fp4", "modelopt_mixed"),
        "model",
        _BEFORE_BLACKWELL,
        True,
        since=(0, 5, 13),
    ),
    FamilyBackend(NEMOTRON, "flashinfer_cutlass", _MODELOPT, "model", ANY_GPU, True),
    FamilyBackend(NEMOTRON, "flashinfer_cutlass", _methods(None), "model", ANY_GPU, True, since=(0, 5, 13)),
    FamilyBackend(GEMMA4, _TRTLLM, _methods("modelopt_fp4"), "model", with_a2a=True, since=(0, 5, 13)),
    FamilyBackend(
        _DEEPSEEK4, _ROUTED, majors=ANY_GPU, with_a2a=True, when=has_nvfp4_experts, since=(0, 5, 14)
    ),
    FamilyBackend(_DEEPSEEK4, "marlin", majors=(12,), with_a2a=True, since=(0, 5, 13), until=(0, 5, 19)),
    FamilyBackend(_DEEPSEEK4, _MXFP4, majors=_HOPPER_ON, when=has_fp4_experts, since=(0, 5, 19)),
    FamilyBackend(
        _MIMO, _TRTLLM, _methods("fp8"), "declared", with_a2a=True, since=(0, 5, 17), until=(0, 5, 22)
    ),
    FamilyBackend(_MIMO, _MXFP4, _methods("fp8"), "declared", when=has_fp4_experts, since=(0, 5, 22)),
    FamilyBackend(_MIMO, _TRTLLM, _methods("fp8"), "declared", since=(0, 5, 22)),
    FamilyBackend(
        _MIMO, "marlin", _methods("fp8"), "declared", (9,), True, when=has_fp4_experts, since=(0, 5, 22)
    ),
    FamilyBackend(_MINIMAX2, _ROUTED, _methods("modelopt_fp4"), "model", with_a2a=True, since=(0, 5, 18)),
    FamilyBackend(_MINIMAX3, "deep_gemm", _methods("mxfp8"), with_a2a=True, since=(0, 5, 16)),
    FamilyBackend(_MINIMAX3, _ROUTED, _MIXED, with_a2a=True, since=(0, 5, 17)),
    FamilyBackend(
        _MINIMAX3,
        "triton",
        _methods(None),
        majors=ANY_GPU,
        with_a2a=True,
        since=(0, 5, 16),
        also_over=("deep_gemm",),
    ),
    FamilyBackend(_KIMI3, _MXFP4, with_a2a=True, when=packs_mxfp4, since=(0, 5, 17)),
    FamilyBackend(
        frozenset(("InternS2MobiusForConditionalGeneration",)),
        "triton_kernel",
        majors=ANY_GPU,
        with_a2a=True,
        since=(0, 5, 18),
    ),
    FamilyBackend(_COHERE, _TRTLLM, _methods(None), "model", with_a2a=True, since=(0, 5, 19)),
    FamilyBackend(_COHERE, _TRTLLM, with_a2a=True, when=packs_nvfp4, since=(0, 5, 19)),
    FamilyBackend(
        _BAILING3, _MXFP4, _methods("fp8"), "model", _HOPPER_ON, when=has_fp4_experts, since=(0, 5, 21)
    ),
    FamilyBackend(
        frozenset(("BeamForCausalLM",)), _TRTLLM, _methods("modelopt_fp4"), "model", since=(0, 5, 23)
    ),
)

DRAFTS_FROM_ITSELF = {
    FIRST: (
        *("DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV4ForCausalLM", "HYV3ForCausalLM"),
        *("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"),
        *("BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "BailingMoeV2_5ForCausalLM"),
        *("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"),
    ),
    (0, 5, 20): ("HYV4ForCausalLM", "Qwen4ExpForConditionalGeneration"),
}
