"""Where the class of one family ends while SGLang makes it, of what other families start with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.call_rules import has_loose_experts
from runtime.server.decoders.longcat import MODEL_TYPE as LONGCAT
from runtime.server.recurrent import LightningConfig, Mamba2Config
from runtime.server.sizing import pooled_indexer
from runtime.server.unpredicted import foreign_keys
from sgl_tune.keys.beam_ends import ends_of_beam
from sgl_tune.keys.class_since import too_early
from sgl_tune.keys.config_ends import ends_of_configs
from sgl_tune.keys.dbrx_ends import ends_of_dbrx
from sgl_tune.keys.deepseek_ends import ends_of_deepseek
from sgl_tune.keys.dense_ends import ends_of_dense
from sgl_tune.keys.dots_note_ends import ends_of_dots_note
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.expert_ends import ends_of_experts
from sgl_tune.keys.jet_ends import ends_of_jet
from sgl_tune.keys.llava_ends import ends_of_llava
from sgl_tune.keys.method_ends import ends_of_methods
from sgl_tune.keys.minimax_m3_ends import ends_of_minimax_m3
from sgl_tune.keys.minimax_nvfp4_ends import ends_of_minimax_nvfp4
from sgl_tune.keys.mllama_ends import ends_of_mllama
from sgl_tune.keys.nvila_ends import ends_of_nvila
from sgl_tune.keys.placement_ends import ends_of_placement
from sgl_tune.keys.quantized_ends import ends_of_quantized
from sgl_tune.keys.stage_ends import ends_of_stages
from sgl_tune.keys.uncounted_ends import ends_of_uncounted
from sgl_tune.keys.zaya_ends import ends_of_zaya

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_UNSETTLED = {
    "Lfm2VlForConditionalGeneration": "LFM2-VL",
    "NemotronH_Nano_VL_V2": "Nemotron Nano VL",
    "NemotronH_Nano_Omni_Reasoning_V3": "Nemotron Nano Omni",
    **{f"{one.replace(' ', '')}ForCausalLM": one for one in ("Mamba", "Mamba2", "Falcon Mamba")},
}
_KEY_WIDTH, _PAGE, _COUNTS = 128, 64, (512, 2048)
_WITH_TAILS = ("fa3", "tilelang", "trtllm", "flashmla_sparse")  # the last is one of the others by GPU


def ends_of_class(deployment: Deployment) -> Iterator[str]:
    rules = (
        *_RULES,
        ends_of_configs,
        ends_of_stages,
        ends_of_uncounted,
        ends_of_dense,
        ends_of_quantized,
        ends_of_dots_note,
        ends_of_minimax_m3,
        ends_of_minimax_nvfp4,
        *_OF_OTHERS,
    )
    return chain.from_iterable(rule(deployment) for rule in rules)


_OF_OTHERS = (
    ends_of_methods,
    ends_of_experts,
    ends_of_placement,
    ends_of_dbrx,
    ends_of_deepseek,
    ends_of_zaya,
    ends_of_beam,
    ends_of_jet,
    ends_of_nvila,
    ends_of_mllama,
    ends_of_llava,
)


def _pages_of_states(deployment: Deployment) -> Iterator[str]:
    """Of models with states whose arguments no rule of SGLang settles: srt/mem_cache, where its component for
    Mamba is made, before 0.5.21 mamba_radix_cache.py."""
    server, states = deployment.server, deployment.server.states
    unsettled = _UNSETTLED.get(checkpoint_of(deployment).architecture)
    if deployment.model.recurrent is None:
        return
    if unsettled and states.keeps_prefixes and not states.extra_buffer and server.page_size != 1:
        yield (
            f"{unsettled} keeps prefixes in pages of one token, and these are of {server.page_size}: "
            "--disable-radix-cache, or --page-size 1 on another --attention-backend"
        )


def _groups_of_norms(deployment: Deployment) -> Iterator[str]:
    """srt/models/bailing_moe_linear.py: a rank norms what its own heads answer."""
    recurrent, ranks = deployment.model.recurrent, deployment.parallel.attn_tp
    in_groups = isinstance(recurrent, LightningConfig) and recurrent.normed == "in groups"
    if isinstance(recurrent, LightningConfig) and in_groups and recurrent.norm_groups % ranks:
        yield f"{recurrent.norm_groups} groups of norms cannot be divided among {ranks} ranks"


def _groups_of_heads(deployment: Deployment) -> Iterator[str]:
    """srt/models/deepseek_v4.py: a rank multiplies what whole groups answer."""
    compressed, ranks = deployment.model.compressed, deployment.parallel.attn_tp
    if compressed is not None and compressed.output_groups % ranks:
        yield f"{compressed.output_groups} groups of heads cannot be divided among {ranks} ranks"


def _streams_of_others(deployment: Deployment) -> Iterator[str]:
    """srt/layers/hyperconnection.py multiplies streams by matrices in bfloat16, whatever they are in."""
    dtype = deployment.server.dtype
    if deployment.model.model_type == "qwen4_exp_text" and dtype != "bfloat16":
        yield f"Qwen4 mixes streams by matrices in bfloat16, and they are in {dtype}: --dtype bfloat16"


def _compressed_keys(deployment: Deployment) -> Iterator[str]:
    told = foreign_keys(deployment.model, deployment.server)
    if told is not None:
        yield told


def _loose_experts(deployment: Deployment) -> Iterator[str]:
    """srt/models/mixtral_quant.py: a rank has whole experts, and at least one."""
    model, tp, method = deployment.model, deployment.parallel.tp, deployment.quantization
    if model.moe is not None and model.moe.num_experts < tp and has_loose_experts(model, method):
        kept = f" in {method}" if method else ""
        yield f"--tp {tp}: each of {model.moe.num_experts} experts{kept} is whole on one rank"


def _mixers(deployment: Deployment) -> Iterator[str]:
    """srt/models/falcon_h1.py asks for a head's width, srt/layers/attention/mamba/mamba.py for a bias."""
    recurrent, ranks = deployment.model.recurrent, deployment.parallel.attn_tp
    told, release = checkpoint_of(deployment).get("head_dim"), deployment.server.release
    if deployment.model.model_type == "falcon_h1" and told is None and not release.fills_in_head_dim:
        yield "head_dim is missing, which SGLang reads of config.json before 0.5.14"
    if not isinstance(recurrent, Mamba2Config) or recurrent.conv_bias:
        return
    if recurrent.num_groups == 1 and ranks > 1:
        yield f"convolutions have no bias, which SGLang asks for where {ranks} ranks share one group"


def _longcat(deployment: Deployment) -> Iterator[str]:
    """srt/models/longcat_flash.py: an expert a rank, and a rope of what its config class keeps of one."""
    model, server = deployment.model, deployment.server
    if model.model_type != LONGCAT or model.moe is None:
        return
    yield from _ranks_without_experts(deployment)
    told = checkpoint_of(deployment).mapping("rope_scaling")
    asks = server.release.longcat_rope
    if asks == "nothing" and server.speculative is not None:
        asks = "its base"  # longcat_flash_nextn.py
    wanted = [name for name in ("rope_theta", "factor") if name not in told]
    if (asks == "its base" and "rope_theta" in wanted) or (asks == "a factor" and "factor" in wanted):
        yield (
            "rope_scaling has not what SGLang reads there: one of rope_type yarn, with its rope_theta, "
            "a factor of 1.0 and original_max_position_embeddings, stretches nothing: "
            "--json-model-override-args"
        )


def _canvases(deployment: Deployment) -> Iterator[str]:
    """srt/models/gemma4_diffusion.py has no logits of a prompt, which the first request asks for."""
    if deployment.model.canvas and deployment.server.asked.dllm_algorithm is None:
        yield "DiffusionGemma answers canvases alone: --dllm-algorithm Gemma4Renoise"


def _tied_dots(deployment: Deployment) -> Iterator[str]:
    """srt/models/dots_ocr.py looks for an embedding where its Qwen2 has none."""
    is_dots = checkpoint_of(deployment).architecture == "DotsOCRForCausalLM"
    if is_dots and deployment.model.tie_word_embeddings:
        yield "tie_word_embeddings is true, and SGLang's dots.ocr finds no embedding to tie its head to"


def _before(deployment: Deployment) -> Iterator[str]:
    yield from too_early(checkpoint_of(deployment).architecture, deployment.server.release.number)


def _afmoe(deployment: Deployment) -> Iterator[str]:
    """srt/models/afmoe.py"""
    if deployment.model.model_type != "afmoe":
        return
    if "moe" in deployment.model.layer_kinds:
        yield from _ranks_without_experts(deployment)
    if checkpoint_of(deployment).get("rope_parameters", {}) is None:
        yield "rope_parameters is null, and SGLang reads its rope_theta"


def _mistral_4(deployment: Deployment) -> Iterator[str]:
    """srt/models/llava.py asks transformers for a text's class, which lists Mistral 4 among none of text."""
    if checkpoint_of(deployment).model_type == "mistral3" and deployment.model.model_type == "mistral4":
        yield (
            "text_config is of mistral4, of which SGLang finds no class: it reads the params.json of a model "
            "whose path has mistral-small-4 in it"
        )


def _pools_of_keys(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/dsa: dsa_indexer_kpool.py, dsa_backend_kpool.py; srt/mem_cache/memory_pool.py."""
    mla, server = deployment.model.mla, deployment.server
    if mla is None or mla.indexer is None:
        return
    if mla.indexer.head_dim != _KEY_WIDTH:
        yield f"index_head_dim is {mla.indexer.head_dim}: SGLang keeps keys of {_KEY_WIDTH} alone"
    page = _PAGE * (mla.indexer.pool if server.release.pools_sparse_pages else 1)
    if server.page_size != page:
        yield f"keys of an indexer lie in pages of {page} tokens, and this server's are of {server.page_size}"
    if deployment.model.model_type == "hy_v4":
        yield from _ranks_without_experts(deployment)
    if mla.indexer.pool == 1:
        return
    if _PAGE % mla.indexer.pool:
        yield f"index_kpool is {mla.indexer.pool}: SGLang has none that does not divide {_PAGE}"
    decode = server.sparse_kernels.decode if server.sparse_kernels is not None else None
    if decode not in (None, *_WITH_TAILS):
        known = ", ".join(_WITH_TAILS)
        yield f"--dsa-decode-backend {decode} takes no tokens beside pools of them: {known} do"
    yield from _ranks_without_experts(deployment)


def _means_of_keys(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/qsa/config.py, srt/mem_cache/qsa_kv_pool.py"""
    model = deployment.model
    indexer = pooled_indexer(model)
    if indexer is None:
        return
    count = indexer.top_k // indexer.pool
    if count not in _COUNTS:
        known = " or ".join(map(str, _COUNTS))
        yield f"indexer_budget is {indexer.top_k}, {count} groups of tokens: SGLang chooses {known}"
    if indexer.pool == 1 or _PAGE % indexer.pool:
        yield f"indexer_compress_ratio is {indexer.pool}: SGLang has those that divide {_PAGE}, and not 1"
    yield from _ranks_without_experts(deployment)


def _interns1_pro(deployment: Deployment) -> Iterator[str]:
    """srt/models/interns1pro.py: its layers take no such number, and its rope lies in layer 0 of a stage."""
    if checkpoint_of(deployment).architecture != "InternS1ProForConditionalGeneration":
        return
    if deployment.server.release.tells_layers_their_stage:
        yield "since 0.5.13 SGLang tells layers where their stage begins: Intern-S1-Pro's take no such word"
    if deployment.parallel.pp > 1 and deployment.server.asked.load_format != "dummy":
        yield "Intern-S1-Pro's rope is loaded into layer 0, which other stages have not: --pp-size 1"


def _experts_for_all(deployment: Deployment) -> Iterator[str]:
    """srt/models/sarvam_moe.py, deepseek.py, xverse_moe.py"""
    if deployment.model.model_type in ("sarvam_mla", "deepseek", "xverse_moe"):
        yield from _ranks_without_experts(deployment)


def _whole_norms(deployment: Deployment) -> Iterator[str]:
    """srt/models/olmoe.py, whose kernel compares the two."""
    if deployment.model.model_type == "olmoe" and deployment.parallel.tp > 1:
        yield "OLMoE's norms are as wide as all heads, and what a rank has of those is not: --tp-size 1"


def _sdar(deployment: Deployment) -> Iterator[str]:
    if deployment.model.model_type != "sdar_moe":
        return
    yield from _ranks_without_experts(deployment)
    if deployment.parallel.attn_tp < deployment.parallel.tp:
        yield "SDAR's class of experts makes queries for all ranks, and reads a group's: no DP attention"


def _ranks_without_experts(deployment: Deployment) -> Iterator[str]:
    moe, ranks = deployment.model.moe, deployment.parallel.tp
    if moe is not None and ranks > moe.num_experts:
        yield f"{moe.num_experts} experts are fewer than {ranks} ranks"


_RULES = (
    *(_tied_dots, _before),
    *(_pages_of_states, _groups_of_norms, _groups_of_heads, _streams_of_others, _compressed_keys, _mixers),
    _loose_experts,
    *(_longcat, _canvases),
    *(_afmoe, _pools_of_keys, _means_of_keys, _mistral_4, _sdar),
    *(_interns1_pro, _experts_for_all, _whole_norms),
)
