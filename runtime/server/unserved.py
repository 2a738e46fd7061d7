"""Servers that SGLang starts for a model whose class is not written for them: they end, or answer wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from runtime.server.config import ModelConfig
from runtime.server.families import MINIMAX_NVFP4
from runtime.server.shape import Server
from runtime.server.unserved_when import (
    attends_otherwise,
    by_logits,
    by_silu,
    by_trtllm,
    moves_experts,
    mxfp4_elsewhere,
    not_in_blocks,
    not_in_blocks_on_hopper,
    other_values,
    other_widths,
    pads_shared,
    quantized_otherwise,
    situ_tuned,
    splits_over_all,
    stretched,
    without_scales,
)


@dataclass(frozen=True, slots=True)
class _Row:
    when: Callable[[ModelConfig, Server], bool]
    said: str


_OVER_ALL_RANKS = _Row(splits_over_all, "DP attention: its heads are split over all ranks")
_A2A = _Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its shared experts are partial sums")
_DRAFTS = _Row(lambda _, s: s.speculative is not None, "drafts: here none stands beside its layers")
_BLOCKS_ALONE = "quantized weights but in fp8 blocks on sm90: of others nothing is known here"
_QUANTIZED = _Row(
    lambda m, s: s.weights_quantization is not None and m.checkpoint_quantization is None,
    "quantized weights but those of a checkpoint: what its class makes of others is not known here",
)
# srt/arg_groups/dllm_hook.py, srt/dllm: of SDAR
_BLOCKS_OF_TOKENS = _Row(
    lambda _, s: s.asked.dllm_algorithm is not None,
    "--dllm-algorithm: what its batches of blocks tune and take is not known here",
)
_PLAIN_ALONE = _Row(
    lambda _, s: s.weights_quantization is not None,
    "quantized weights: what its class makes of them is not known here",
)
_UNSHARED = _Row(
    lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: which rows its experts share is not known here"
)
# srt/models/granitemoe.py
_GRANITE = (
    _Row(
        lambda _, s: s.release.number < (0, 5, 19),
        "releases before 0.5.19: they have no class of it, and run transformers' own",
    ),
    _A2A,
    _Row(moves_experts, "experts that move: its class names none"),
    _DRAFTS,
)
# srt/models/kimi_linear.py, hunyuan_v3.py: what is split over TP's ranks, and what their load_weights know.
# falcon_h1.py: what its ranks add up, and that a tied embedding is made float32 with the head.
# longcat_flash.py: which rows its halves have behind an all-to-all, and what of a checkpoint stays plain.
_ROWS = {
    "longcat_flash": (
        _Row(
            lambda _, s: s.moe_a2a_backend != "none",
            "an all-to-all: which rows its halves then share is not known here",
        ),
        _Row(moves_experts, "experts that move: SGLang has none beside those that compute nothing"),
        _Row(stretched, "a stretched rope before 0.5.16: SGLang leaves it as it was"),
        _Row(not_in_blocks, "quantized weights but fp8 in blocks on sm90: how others lie is not known here"),
        _Row(
            lambda _, s: s.speculative is not None and s.weights_quantization is not None,
            "drafts of quantized weights: their first matrix is quantized, too, and here it is plain",
        ),
    ),
    # srt/models/afmoe.py: heads and experts are split over TP's ranks, whatever a server says of them.
    "afmoe": (
        _Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its experts are split over all ranks"),
        _Row(lambda _, s: s.ep_size > 1, "--ep: its experts are split over all ranks"),
        _Row(moves_experts, "experts that move: SGLang has each of them on every rank"),
        _DRAFTS,
        _QUANTIZED,
    ),
    # srt/models/phimoe.py: what its experts answer is summed over all ranks, and no layer gathers rows.
    "phimoe": (
        _Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its layers add up what all ranks answer"),
        _Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        _Row(moves_experts, "experts that move: its class names none"),
        _Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        _DRAFTS,
    ),
    "starcoder2": (_DRAFTS,),
    # srt/models/glm_ocr.py: its merger's width; glm_ocr_nextn.py drafts
    "glm_ocr_text": (
        _Row(
            lambda m, s: m.encoder is not None and m.encoder.is_cut(s.release.number),
            "releases since 0.5.20 but with a projection_intermediate_size as its text's: images are cut",
        ),
        _DRAFTS,
    ),
    # srt/models/ernie45_moe_vl.py: heads are split over all ranks, and layers give experts rows of one kind
    "ernie4_5_vl_moe_text": (
        _Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        _Row(moves_experts, "experts that move: its class names none"),
        _Row(
            lambda _, s: s.weights_quantization is not None,
            "quantized weights: its class gives its routers their method, too, which have float32",
        ),
        _DRAFTS,
    ),
    "mistral4": (_Row(lambda m, _: m.encoder is None, "any release: each runs transformers' own layers"),),
    # srt/models/pixtral.py names no experts to whoever would move them.
    "mistral_large_3": (
        _Row(lambda m, s: m.encoder is not None and moves_experts(m, s), "experts that move beside images"),
        _DRAFTS,
    ),
    "granitemoeshared": _GRANITE,
    "granitemoe_swa": _GRANITE,
    "falcon_h1": (
        _Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its multipliers are split over all ranks"),
        _Row(
            lambda _, s: s.tp_size > 1 and not s.release.falcon_h1_adds_once,
            "--tp before 0.5.21: its ranks add up Mamba's answers twice, and those of its MLPs never",
        ),
        _Row(
            lambda m, s: m.tie_word_embeddings and s.dtype != "float32",
            "a tied embedding but in float32: its rows would be float32, and its layers not",
        ),
        _DRAFTS,
        _QUANTIZED,
    ),
    # srt/models/gemma4_causal.py
    "gemma4_text": (
        _Row(
            lambda m, s: m.moe is not None and s.moe_a2a_backend != "none",
            "an all-to-all: its experts go by gelu, and those behind one by silu",
        ),
        _Row(
            lambda m, s: m.moe is not None and without_scales(m, s),
            "trtllm kernels before 0.5.23: they leave out how much each of its experts counts",
        ),
        _Row(by_silu, "flashinfer_cutlass before 0.5.15: its experts would go by silu"),
        _Row(
            lambda _, s: s.pp_size > 1 and not s.release.gemma_4_has_stages,
            "--pp before 0.5.13: its layers are no stages",
        ),
        _Row(
            lambda _, s: s.speculative is not None and s.speculative.algorithm == "FROZEN_KV_MTP",
            "drafts that read its own keys: here none stands beside its layers",
        ),
    ),
    "hy_v3": (_A2A,),
    "kimi_linear": (
        _Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its delta layers are split over all ranks"),
        _A2A,
        _Row(
            lambda _, s: s.pp_size > 1 and not s.release.kimi_linear_has_own_parts,
            "--pp before 0.5.17: a stage reads the layers of the others, too",
        ),
        _Row(other_values, "values of latents and of delta layers of two widths before 0.5.17"),
        _DRAFTS,
        _QUANTIZED,
    ),
    # srt/models/minimax_m3.py: what its all-to-alls gather, and what its router multiplies in
    "minimax_m3_vl_text": (
        _Row(
            lambda _, s: not s.release.has_minimax_m3,
            "releases before 0.5.16: they have no class of it, and run transformers' own",
        ),
        _Row(
            lambda _, s: s.weights_quantization == MINIMAX_NVFP4,
            "experts in nvfp4 beside mxfp8: how SGLang runs MiniMax-M3.1's layers is not known here",
        ),
        _Row(
            lambda _, s: s.moe_a2a_backend not in ("none", "deepep"),
            "an all-to-all but deepep: its shared experts are partial sums",
        ),
        _Row(lambda _, s: s.dtype != "bfloat16", "another dtype than bfloat16: its router has no other"),
        _Row(quantized_otherwise, "weights in another format than its checkpoint has, or than mxfp8"),
        _Row(
            lambda _, s: (
                s.speculative is not None and not (s.decode_graphs and s.speculative.algorithm != "UNO")
            ),
            "drafts without graphs: here none stands beside its layers",
        ),
    ),
    # srt/models/glm5_next.py, and srt/layers/attention/dsa/dsa_indexer_kpool.py
    "glm5_next_text": (
        _Row(lambda _, s: s.dtype != "bfloat16", "another dtype than bfloat16: its indexer has no other"),
        _DRAFTS,
        _QUANTIZED,
    ),
    "sarvam_moe": (_DRAFTS,),
    # srt/models/grok.py: its router's kernel is given rows and weights, and no logits are there.
    "grok": (
        _Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        _Row(lambda _, s: s.ep_size > 1, "--ep: its files have a rank's part of each expert, and none whole"),
        _Row(moves_experts, "experts that move: its class names none"),
        _Row(by_logits, "a MoE backend but triton and flashinfer_cutlass: its router has no logits for it"),
        _Row(by_silu, "flashinfer_cutlass before 0.5.15: its experts would go by silu"),
        _PLAIN_ALONE,
        _DRAFTS,
    ),
    # srt/models/sarvam_moe.py
    "sarvam_mla": (
        _Row(
            attends_otherwise,
            "attention but fa3 and triton, and flashinfer in decodes: its prefills give others absorbed rows",
        ),
        _Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        _UNSHARED,
        _Row(moves_experts, "experts that move: which rank then has them is not known here"),
        _Row(
            lambda _, s: s.asked.enable_dp_attention and s.attn_dp_size == 1,
            "DP attention of one group: whether a rank then has the whole embedding, releases decide",
        ),
        _PLAIN_ALONE,
        _DRAFTS,
    ),
    "sdar": (_BLOCKS_OF_TOKENS, _DRAFTS),
    # srt/models/sdar_moe.py
    "sdar_moe": (
        _BLOCKS_OF_TOKENS,
        _UNSHARED,
        _Row(moves_experts, "experts that move: which rank then has them is not known here"),
        _DRAFTS,
    ),
    # srt/models/interns1pro.py
    "interns1_pro_text": (
        _Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        _Row(
            lambda m, s: (
                s.weights_quantization is not None
                and (m.checkpoint_quantization != "fp8" or m.quantization_block is None)
            ),
            "quantized weights but in fp8 blocks of a checkpoint: of others nothing is known here",
        ),
        _DRAFTS,
    ),
    # srt/models/kimi_k3.py, and srt/layers/quantization/mxfp4.py
    "kimi_k3_text": (
        _Row(
            lambda _, s: s.release.number < (0, 5, 23),
            "releases before 0.5.23: what their class makes of it is not known here",
        ),
        _UNSHARED,
        _Row(moves_experts, "experts that move: which rank then has them is not known here"),
        _QUANTIZED,
        _Row(
            mxfp4_elsewhere,
            "experts in mxfp4 but on marlin, or on flashinfer_mxfp4 on sm100: others make them plain",
        ),
        _Row(
            situ_tuned,
            "kernels of FlashInfer for plain experts: how they are told its gates is not known here",
        ),
        _DRAFTS,
    ),
    # srt/models/hunyuan_v4.py, and srt/layers/attention/dsa/dsa_indexer.py
    "hy_v4": (
        _Row(lambda _, s: s.dtype != "bfloat16", "another dtype than bfloat16: its indexer has no other"),
        _QUANTIZED,
    ),
    # srt/models/qwen4_exp.py, srt/layers/hyperconnection.py, srt/layers/attention/qsa
    "qwen4_exp_text": (
        _Row(lambda _, s: s.dtype != "bfloat16", "another dtype than bfloat16: its streams have no other"),
        _Row(
            lambda _, s: s.pp_size > 1 and not s.release.qwen4_has_stages,
            "--pp-size before 0.5.21: each stage there begins with the embedding, and ends with all streams",
        ),
        _DRAFTS,
        _QUANTIZED,
    ),
    # srt/models/bailing_moe_linear.py, and srt/layers/attention/linear's seg_la
    "bailing_hybrid": (
        _Row(
            lambda _, s: 1 < s.attn_dp_size < s.tp_size,
            "DP attention of several ranks a group: each of them holds the whole embedding",
        ),
        _A2A,
        _Row(by_trtllm, "trtllm kernels before 0.5.23: its files leave out that shares are made one"),
        _Row(other_widths, "heads of other widths than 128: its kernel of a decode has no part for them"),
        _DRAFTS,
        _Row(not_in_blocks_on_hopper, _BLOCKS_ALONE),
    ),
    # srt/models/bailing_moe_v3.py
    "bailing_hybrid_v3": (
        _Row(
            lambda _, s: not s.release.bailing_v3_routes_as_told,
            "releases before 0.5.23: there its routers are bfloat16, whatever its file says",
        ),
        _Row(
            lambda _, s: s.dtype == "float32", "--dtype float32: its head is bfloat16, whatever is asked for"
        ),
        _DRAFTS,
        _Row(not_in_blocks_on_hopper, _BLOCKS_ALONE),
        _Row(pads_shared, "quantized shared experts by themselves: it pads them where blocks are cut"),
    ),
}


def unserved(model: ModelConfig, server: Server) -> str | None:
    """Why its layers are not known, as they would lie on this server."""
    rows = (_OVER_ALL_RANKS, *_ROWS.get(model.model_type, ()))
    said = next((row.said for row in rows if row.when(model, server)), None)
    return None if said is None else f"{model.model_type} does not go with {said}"
