"""Families of models by architecture, and whose quantization becomes the argument.

Read in srt/arg_groups/model_overrides/ (before, in srt/server_args.py). No release serves a family that is
newer than itself, so only what changed for a known one has a release.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.backends import FIRST, Number

BLACKWELL_SERVER = (10,)
ANY_GPU: tuple[int, ...] = ()
BY_DEEP_GEMM = (9, 10)

DEEPSEEK = frozenset(
    (
        *("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"),
        *("KimiK25ForConditionalGeneration", "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration"),
    )
)
LONGCAT = frozenset(("LongcatFlashForCausalLM", "LongcatFlashForCausalLMNextN"))
DOTS = frozenset(("Dots3NoteForCausalLM",))
HYV4 = frozenset(("HYV4ForCausalLM", "HYV4ForCausalLMNextN"))
GLM_NEXT = frozenset(("Glm5NextForConditionalGeneration",))
QWEN = frozenset(
    (
        *("Qwen3MoeForCausalLM", "Qwen3VLMoeForConditionalGeneration", "Qwen3NextForCausalLM"),
        *("Qwen3_5MoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration"),
        "InternS2PreviewForConditionalGeneration",
    )
)
QWEN4 = frozenset(("Qwen4ExpForConditionalGeneration",))
GLM4 = frozenset(("Glm4MoeForCausalLM",))
GPT_OSS = frozenset(("GptOssForCausalLM",))
NEMOTRON = frozenset(("NemotronHForCausalLM", "NemotronHPuzzleForCausalLM", "NemotronH_Omni_Reasoning_V3"))
LLAMA4 = frozenset(("Llama4ForConditionalGeneration", "Llama4ForCausalLM"))
GEMMA4 = frozenset(
    (
        *("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM"),
        *("Gemma4UnifiedForConditionalGeneration", "DiffusionGemmaForBlockDiffusion"),
    )
)
DEEPSEEK4 = frozenset(("DeepseekV4ForCausalLM",))
MIMO = frozenset(("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"))
MINIMAX2 = frozenset(("MiniMaxM2ForCausalLM",))
MINIMAX3 = frozenset(("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"))
MINIMAX_NVFP4 = "minimax_m3_nvfp4"  # 3.1: experts in nvfp4, all else in mxfp8
KIMI3 = frozenset(("KimiK3ForConditionalGeneration",))
COHERE = frozenset(("Cohere2VisionForConditionalGeneration", "Cohere2MoeForCausalLM"))
BAILING3 = frozenset(("BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"))
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
    WriteBack(DOTS | HYV4 | GLM_NEXT),
    WriteBack(QWEN | QWEN4),
    WriteBack(GLM4),
    WriteBack(MINIMAX3, majors=ANY_GPU, since=(0, 5, 16)),
)
