"""Servers that SGLang starts for a model whose class is not written for them: they end, or answer wrongly."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.class_releases import of_transformers
from runtime.server.config import ModelConfig
from runtime.server.families import MINIMAX_NVFP4
from runtime.server.shape import Server
from runtime.server.unserved_compressed import COMPRESSED
from runtime.server.unserved_dense import DENSE, OF_TRANSFORMERS
from runtime.server.unserved_latent import LATENT
from runtime.server.unserved_mixers import MIXERS
from runtime.server.unserved_modelopt import OF_MODELOPT
from runtime.server.unserved_row import (
    A2A,
    BLOCKS_ALONE,
    DRAFTS,
    IN_BLOCKS,
    OF_TOWERS,
    OVER_ALL_RANKS,
    PLAIN_ALONE,
    PLAIN_EXPERTS,
    QUANTIZED,
    QUANTIZED_AT_ALL,
    QUANTIZED_DRAFTS,
    QUANTIZED_FILES,
    SCALED_KEYS,
    STAGES_THAT_SEE,
    UNGATED,
    UNSHARED,
    WITHOUT_HEAD,
    Row,
    in_bfloat16,
)
from runtime.server.unserved_when import (
    attends_to_canvases,
    by_logits,
    by_silu,
    has_mixers_in_fp4,
    moves_experts,
    packs_otherwise,
    quantized_otherwise,
    quantizes_towers,
    tunes_canvases,
    without_scales,
)

# srt/models/granitemoe.py
_GRANITE = (
    A2A,
    Row(moves_experts, "experts that move: its class names none"),
    DRAFTS,
)
# srt/models/afmoe.py, deepseek.py, xverse_moe.py, dbrx.py: heads and experts are split over TP's ranks,
# whatever a server says of them.
_SPLIT_EXPERTS = (
    Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its experts are split over all ranks"),
    Row(lambda _, s: s.ep_size > 1, "--ep: its experts are split over all ranks"),
    Row(moves_experts, "experts that move: SGLang has each of them on every rank"),
)
_TWICE = "quantized weights but those of a checkpoint: each expert is there twice, as it was and quantized"
_LOOSE = (
    Row(lambda m, s: m.encoder is not None and quantizes_towers(m, s), PLAIN_ALONE.said),
    SCALED_KEYS,
    Row(QUANTIZED_AT_ALL.when, _TWICE, plans=True),
)
# srt/models/hunyuan_v3.py: what is split over TP's ranks, and what its load_weights knows. falcon_h1.py: what
# its ranks add up, and that a tied embedding is made float32 with the head.
_ROWS = {
    **DENSE,
    **LATENT,
    **MIXERS,
    "afmoe": (*_SPLIT_EXPERTS, DRAFTS, Row(QUANTIZED.when, _TWICE, plans=True)),
    # srt/models/deepseek.py and xverse_moe.py multiply by whatever experts store as by plain matrices
    **dict.fromkeys(("deepseek", "xverse_moe"), (*_SPLIT_EXPERTS, *_LOOSE, DRAFTS)),
    # srt/models/dbrx.py, whose experts have no method
    "dbrx": (*_SPLIT_EXPERTS, DRAFTS),
    # srt/models/qwen2_moe.py, qwen3_moe.py, qwen3_next.py: what mlp_only_layers or decoder_sparse_step says
    **dict.fromkeys(
        ("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text", "qwen3_next"),
        (Row(lambda m, _: "dense" in m.layer_kinds, "layers of no experts: its class has them in each"),),
    ),
    # srt/models/step3_vl.py: its tower and its head are split over all ranks, and no router is told a kernel
    "step3_text": (
        Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its tower and its head are split over all ranks"),
        UNSHARED,
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        Row(lambda _, s: s.backend.calls == "trtllm", "trtllm kernels: its router names no way to them"),
        DRAFTS,
    ),
    # srt/models/gpt_oss.py; what of srt/layers/quantization makes biases of experts
    **dict.fromkeys(
        ("qwen3_5_text", "qwen3_5_moe_text"),
        (
            Row(
                has_mixers_in_fp4,
                "mixers in nvfp4 before 0.5.17: its class has them plain, whatever a file says",
                plans=True,
            ),
        ),
    ),
    "gpt_oss": (
        Row(
            lambda _, s: s.weights_quantization not in (None, "mxfp4", "fp8", "mxfp8"),
            "weights but in mxfp4, fp8 or mxfp8: SGLang makes experts without their biases of others",
            plans=True,
        ),
    ),
    # srt/models/phimoe.py: what its experts answer is summed over all ranks, and no layer gathers rows.
    "phimoe": (
        Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its layers add up what all ranks answer"),
        Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        Row(moves_experts, "experts that move: its class names none"),
        Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        DRAFTS,
    ),
    # srt/models/glm_ocr.py: its merger's width; glm_ocr_nextn.py drafts
    "glm_ocr_text": (
        Row(
            lambda m, s: m.encoder is not None and m.encoder.is_cut(s.release.number),
            "releases since 0.5.20 but with a projection_intermediate_size as its text's: images are cut",
        ),
        DRAFTS,
    ),
    # srt/models/ernie45_moe_vl.py: heads are split over all ranks, and layers give experts rows of one kind
    "ernie4_5_vl_moe_text": (
        Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        Row(moves_experts, "experts that move: its class names none"),
        Row(
            lambda _, s: s.weights_quantization is not None,
            "quantized weights: its class gives its routers their method, too, which have float32",
        ),
        DRAFTS,
    ),
    # srt/models/bailing_mm.py, around a Ling 2.0
    "bailing_moe": (QUANTIZED_DRAFTS,),
    "bailing_moe_v2": (
        QUANTIZED_DRAFTS,
        STAGES_THAT_SEE,
        Row(
            lambda m, s: m.encoder is not None and s.weights_quantization is not None,
            "quantized weights beside images: SGLang calls its layers otherwise than lists do",
        ),
        Row(
            lambda m, s: m.encoder is not None and s.speculative is not None,
            "drafts beside images: here none stands beside its layers",
        ),
    ),
    # srt/models/pixtral.py names no experts to whoever would move them.
    "mistral_large_3": (
        Row(lambda m, s: m.encoder is not None and moves_experts(m, s), "experts that move beside images"),
        DRAFTS,
    ),
    "granitemoeshared": _GRANITE,
    "granitemoe_swa": _GRANITE,
    "falcon_h1": (
        Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its multipliers are split over all ranks"),
        Row(
            lambda _, s: s.tp_size > 1 and not s.release.falcon_h1_adds_once,
            "--tp before 0.5.21: its ranks add up Mamba's answers twice, and those of its MLPs never",
            plans=True,
        ),
        Row(
            lambda m, s: m.tie_word_embeddings and s.dtype != "float32",
            "a tied embedding but in float32: its rows would be float32, and its layers not",
        ),
        DRAFTS,
    ),
    # srt/models/gemma4_causal.py
    "gemma4_text": (
        Row(
            lambda m, s: m.moe is not None and s.moe_a2a_backend != "none",
            "an all-to-all: its experts go by gelu, and those behind one by silu",
        ),
        Row(
            lambda m, s: m.moe is not None and without_scales(m, s),
            "trtllm kernels before 0.5.23: they leave out how much each of its experts counts",
        ),
        Row(by_silu, "flashinfer_cutlass before 0.5.15: its experts would go by silu"),
        Row(
            lambda _, s: s.pp_size > 1 and not s.release.gemma_4_has_stages,
            "--pp before 0.5.13: its layers are no stages",
        ),
        Row(
            lambda _, s: s.speculative is not None and s.speculative.algorithm == "FROZEN_KV_MTP",
            "drafts that read its own keys: here none stands beside its layers",
        ),
    ),
    # srt/models/gemma4_diffusion.py, srt/dllm/algorithm/gemma4_renoise.py
    "diffusion_gemma_text": (
        PLAIN_ALONE,
        Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its experts go by gelu"),
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        Row(tunes_canvases, "a MoE backend but triton: what its canvases tune is not known here"),
        Row(attends_to_canvases, "attention but on triton: what it makes for canvases is not known here"),
        DRAFTS,
    ),
    "hy_v3": (A2A,),
    # srt/models/minimax_m3.py: what its all-to-alls gather, and what its router multiplies in
    "minimax_m3_vl_text": (
        Row(
            packs_otherwise,
            "experts in nvfp4 beside mxfp8 but since 0.5.23 on marlin, or flashinfer_trtllm_routed: what its "
            "layers take otherwise, as behind megamoe, is not known here",
            plans=True,
        ),
        Row(
            lambda _, s: s.weights_quantization == MINIMAX_NVFP4 and s.speculative is not None,
            "drafts beside experts in nvfp4: here none stands beside its layers",
        ),
        Row(
            lambda _, s: s.moe_a2a_backend not in ("none", "deepep"),
            "an all-to-all but deepep: its shared experts are partial sums",
            plans=True,
        ),
        in_bfloat16("its router has no other"),
        Row(quantized_otherwise, "weights in another format than its checkpoint has, or than mxfp8"),
        Row(
            lambda _, s: (
                s.speculative is not None and not (s.decode_graphs and s.speculative.algorithm != "UNO")
            ),
            "drafts without graphs: here none stands beside its layers",
        ),
    ),
    "sarvam_moe": (DRAFTS,),
    # srt/models/mixtral_quant.py, where a file names it
    "mixtral_quant": (
        UNSHARED,
        Row(moves_experts, "experts that move: each is whole on one rank"),
        DRAFTS,
    ),
    # srt/models/grok.py: its router's kernel is given rows and weights, and no logits are there.
    "grok": (
        Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        Row(lambda _, s: s.ep_size > 1, "--ep: its files have a rank's part of each expert, and none whole"),
        Row(moves_experts, "experts that move: its class names none"),
        Row(by_logits, "a MoE backend but triton and flashinfer_cutlass: its router has no logits for it"),
        Row(by_silu, "flashinfer_cutlass before 0.5.15: its experts would go by silu"),
        QUANTIZED_FILES,
        DRAFTS,
    ),
    "sdar": (*IN_BLOCKS, DRAFTS),
    # srt/models/sdar_moe.py
    "sdar_moe": (
        *IN_BLOCKS,
        UNSHARED,
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        DRAFTS,
    ),
    # srt/models/llada2.py, which tells kernels no way of routing
    "llada2_moe": (
        *IN_BLOCKS,
        UNSHARED,
        Row(moves_experts, "experts that move: its class asks for none"),
        Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        DRAFTS,
    ),
    # srt/models/iquest_q1.py
    "iquest_q1": (
        PLAIN_ALONE,
        UNSHARED,
        Row(moves_experts, "experts that move: its class names none"),
        DRAFTS,
    ),
    # srt/models/muse_spark.py, layers/muse_spark
    "muse_spark_text": (
        in_bfloat16("its kernels have no other"),
        UNSHARED,
        Row(
            lambda _, s: bool(s.asked.others.get("enable_layernorm_sp")),
            "--enable-layernorm-sp: which rows its experts share is not known here",
        ),
        Row(
            lambda m, s: m.checkpoint_quantization is not None and s.gpu.major != 10,
            "experts in nvfp4 but on TRT-LLM's kernels: what marlin keeps of them is not known here",
        ),
        Row(moves_experts, "experts that move: its class names none"),
        DRAFTS,
    ),
    # srt/models/beam.py
    "beam": (
        in_bfloat16("its head stays in that"),
        Row(
            lambda _, s: s.gpu.arch == "sm103" and s.tp_size == 4,
            "four ranks of sm103: what FlashInfer's all-reduce between its layers takes is not known here",
        ),
        DRAFTS,
    ),
    # srt/models/xllm.py, which ends at some of these
    "k2_horizon": (
        in_bfloat16("its class ends"),
        UNSHARED,
        Row(moves_experts, "experts that move: its class ends"),
        Row(lambda _, s: s.asked.enable_two_batch_overlap, "--enable-two-batch-overlap: its class ends"),
        Row(
            lambda m, s: (
                m.main_attention.value_gate_by is not None
                and m.main_attention.num_kv_heads % s.parallel.attn_tp > 0
            ),
            "more of attention's ranks than it has KV heads: its class ends",
        ),
        DRAFTS,
    ),
    # srt/models/interns2_mobius.py, and its drafts srt/models/qwen3_5_mtp.py, whose experts are counted apart
    "interns2_mobius_text": (
        A2A,
        Row(moves_experts, "experts that move: which of a bank's they are is not known here"),
        PLAIN_ALONE,
        DRAFTS,
    ),
    # srt/models/interns1pro.py
    "interns1_pro_text": (
        Row(without_scales, "trtllm kernels before 0.5.23: they choose experts by other rules"),
        BLOCKS_ALONE,
        DRAFTS,
    ),
}


@dataclass(frozen=True, slots=True)
class Unserved:
    """`why` its layers are not known, as they would lie on this server; `plans`: what they look up is."""

    why: str
    plans: bool


def unserved(model: ModelConfig, server: Server, architecture: str) -> Unserved | None:
    """`architecture`: the class that serves the whole."""
    layers = of_transformers(architecture, server.release.number, server.asked)
    if layers and not model.by_transformers:
        return Unserved(f"{model.model_type} does not go with {layers}", plans=False)
    of_class = WITHOUT_HEAD if model.scores is not None else ()
    of_family = OF_TRANSFORMERS if model.by_transformers else _ROWS.get(model.model_type, ())
    of_any = (OVER_ALL_RANKS, PLAIN_EXPERTS, UNGATED, *COMPRESSED, *OF_MODELOPT, *OF_TOWERS)
    rows = (*of_any, *of_class, *of_family)
    said = sorted((row for row in rows if row.when(model, server)), key=lambda row: row.plans)
    return Unserved(f"{model.model_type} does not go with {said[0].said}", said[0].plans) if said else None
