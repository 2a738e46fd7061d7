"""Of families with latents, with states beside their attention, or with streams in place of a residual.

srt/models/kimi_linear.py, hunyuan_v4.py: what is split over TP's ranks, and what their load_weights know.
longcat_flash.py: which rows its halves have behind an all-to-all, and what of a checkpoint stays plain.
"""

from __future__ import annotations

from runtime.server.unserved_row import (
    A2A,
    BLOCKS_ALONE,
    DRAFTS,
    FILES_IN_BLOCKS,
    PLAIN_ALONE,
    QUANTIZED,
    QUANTIZED_AT_ALL,
    QUANTIZED_DRAFTS,
    STAGES_THAT_SEE,
    UNSHARED,
    Row,
    in_bfloat16,
)
from runtime.server.unserved_when import (
    attends_otherwise,
    by_trtllm,
    fuses_in_fp4,
    fuses_others,
    in_blocks_of_deepgemms,
    moves_experts,
    mxfp4_elsewhere,
    other_values,
    other_widths,
    pads_shared,
    quantizes_latents,
    reads_inverses_alone,
    situ_tuned,
    stretched,
    without_scales,
)

LATENT = {
    "longcat_flash": (
        Row(
            lambda _, s: s.moe_a2a_backend != "none",
            "an all-to-all: which rows its halves then share is not known here",
        ),
        Row(moves_experts, "experts that move: SGLang has none beside those that compute nothing"),
        Row(stretched, "a stretched rope before 0.5.16: SGLang leaves it as it was"),
        BLOCKS_ALONE,
        Row(
            lambda _, s: s.weights_quantization is not None and s.gpu.major != 9,
            "fp8 blocks but on sm90: its class takes away the scales that DeepGEMM has elsewhere",
            plans=True,
        ),
        QUANTIZED_DRAFTS,
    ),
    "kimi_linear": (
        Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its delta layers are split over all ranks"),
        A2A,
        Row(
            lambda _, s: s.pp_size > 1 and not s.release.kimi_linear_has_own_parts,
            "--pp before 0.5.17: a stage reads the layers of the others, too",
        ),
        Row(other_values, "values of latents and of delta layers of two widths before 0.5.17"),
        DRAFTS,
    ),
    # srt/models/glm5_next.py, and srt/layers/attention/dsa/dsa_indexer_kpool.py
    "glm5_next_text": (
        in_bfloat16("its indexer has no other"),
        DRAFTS,
        Row(fuses_others, "shared experts stored otherwise than those that its class runs them among"),
        Row(
            fuses_in_fp4,
            "experts in nvfp4 but on flashinfer_cutlass and TRT-LLM's: what others keep of a shared one "
            "among these is not known here",
        ),
    ),
    # srt/models/sarvam_moe.py
    "sarvam_mla": (
        Row(
            attends_otherwise,
            "attention but fa3 and triton, and flashinfer in decodes: its prefills give others absorbed rows",
        ),
        Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        UNSHARED,
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        Row(
            lambda _, s: s.asked.enable_dp_attention and s.attn_dp_size == 1,
            "DP attention of one group: whether a rank then has the whole embedding, releases decide",
        ),
        QUANTIZED_AT_ALL,
        Row(quantizes_latents, "a quantized kv_b_proj: what its class takes of it is not known here"),
        DRAFTS,
    ),
    # srt/models/deepseek_vl2.py
    "deepseek_vl2_text": (
        PLAIN_ALONE,
        Row(moves_experts, "experts that move: its class names none"),
        DRAFTS,
    ),
    # srt/models/dots_vlm.py, which says neither where a stage begins nor which experts move
    "dots_vlm_text": (
        Row(lambda _, s: s.pp_size > 1, "--pp: each stage keeps a place for the tokens of all layers"),
        Row(moves_experts, "experts that move: its class names none"),
        DRAFTS,
    ),
    # srt/models/dots3_common/modeling.py
    "dots3_note_text": (
        Row(lambda _, s: s.release.number < (0, 5, 19), "releases before 0.5.19: they have no class of it"),
        UNSHARED,
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        PLAIN_ALONE,
        Row(
            lambda _, s: s.asked.language_only or s.asked.language_model_only,
            "its text alone: how much of its towers is then left out is not known here",
        ),
        DRAFTS,
    ),
    # srt/models/kimi_k3.py, and srt/layers/quantization/mxfp4.py
    "kimi_k3_text": (
        Row(
            lambda _, s: s.release.number < (0, 5, 23),
            "releases before 0.5.23: what their class makes of it is not known here",
        ),
        UNSHARED,
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        QUANTIZED,
        Row(
            mxfp4_elsewhere,
            "experts in mxfp4 but on marlin, or on flashinfer_mxfp4 on sm100: others make them plain",
        ),
        Row(
            situ_tuned,
            "kernels of FlashInfer for plain experts: how they are told its gates is not known here",
        ),
        DRAFTS,
    ),
    # srt/models/gigachat35.py
    "gigachat3_5": (
        Row(
            lambda _, s: s.attn_dp_size > 1,
            "DP attention: its embedding is split over all ranks, and summed over rows of other requests",
        ),
        UNSHARED,
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        FILES_IN_BLOCKS,
        DRAFTS,
    ),
    # srt/models/hunyuan_v4.py, and srt/layers/attention/dsa/dsa_indexer.py
    "hy_v4": (
        in_bfloat16("its indexer has no other"),
        Row(
            reads_inverses_alone,
            "quantized weights of a checkpoint but in fp8 blocks and mxfp8: its class looks for scales by "
            "the name that these have",
        ),
        Row(
            lambda _, s: s.speculative is not None and s.weights_quantization is not None,
            "drafts of quantized weights: what theirs are is not known here",
        ),
    ),
    # srt/models/qwen4_exp.py, srt/layers/hyperconnection.py, srt/layers/attention/qsa
    "qwen4_exp_text": (
        in_bfloat16("its streams have no other"),
        Row(
            lambda _, s: s.pp_size > 1 and not s.release.qwen4_has_stages,
            "--pp-size before 0.5.21: each stage there begins with the embedding, and ends with all streams",
            plans=True,
        ),
        DRAFTS,
    ),
    # srt/models/bailing_moe_linear.py, and srt/layers/attention/linear's seg_la
    "bailing_hybrid": (
        Row(
            lambda _, s: 1 < s.attn_dp_size < s.tp_size,
            "DP attention of several ranks a group: each of them holds the whole embedding",
        ),
        A2A,
        Row(by_trtllm, "trtllm kernels before 0.5.23: its files leave out that shares are made one"),
        Row(other_widths, "heads of other widths than 128: its kernel of a decode has no part for them"),
        DRAFTS,
        BLOCKS_ALONE,
        Row(
            in_blocks_of_deepgemms,
            "fp8 blocks on Blackwell where DeepGEMM may be: its class makes their scales a second time",
        ),
    ),
    # srt/models/bailing_moe_v3.py
    "bailing_hybrid_v3": (
        Row(
            lambda _, s: not s.release.bailing_v3_routes_as_told,
            "releases before 0.5.23: there its routers are bfloat16, whatever its file says",
        ),
        Row(
            lambda _, s: s.dtype == "float32", "--dtype float32: its head is bfloat16, whatever is asked for"
        ),
        STAGES_THAT_SEE,
        DRAFTS,
        BLOCKS_ALONE,
        Row(pads_shared, "quantized shared experts by themselves: it pads them where blocks are cut"),
    ),
}
