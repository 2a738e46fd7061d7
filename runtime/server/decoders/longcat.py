"""LongCat-Flash: two latent attentions and two dense MLPs a layer, and experts beside half of it.

srt/models/longcat_flash.py, and srt/configs/longcat_flash.py, whose class is not transformers'.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import latents, layered
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MLAConfig, MoEConfig
from runtime.server.tensor_names import TensorNames

MODEL_TYPE = "longcat_flash"
# Whatever model_type a file tells, or none.
ARCHITECTURES = ("LongcatCausalLM", "LongcatFlashForCausalLM", "LongcatFlashNgramForCausalLM")
# The names that transformers takes as well, and the one of each that SGLang reads.
_SPELLED = {
    "intermediate_size": "ffn_hidden_size",
    "moe_intermediate_size": "expert_ffn_hidden_size",
    "num_local_experts": "n_routed_experts",
    "num_experts_per_tok": "moe_topk",
}
# Lists of matrices, beside disable_quant_module.
_PLAIN = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules")
_N_GRAMS = ("ngram_vocab_size_ratio", "oe_vocab_size_ratio")
_INDEXED = ("index_topk", "index_head_dim", "index_n_heads")


def _longcat(f: Fields) -> ModelConfig:
    _check(f)
    attention, mla = _latents(f)
    layers = 2 * f.size("num_layers")
    model = layered(
        f,
        {"full": attention},
        ["full"] * layers,
        ["moe", "dense"] * (layers // 2),
        intermediate_size=f.size("ffn_hidden_size"),
        rms_eps=f.number("rms_norm_eps"),
        names=TensorNames(mlp="mlps"),
        mla=mla,
        moe=_experts(f),
        shortcut=True,
    )
    return replace(model, model_type=MODEL_TYPE)  # which a file may leave out


def _check(f: Fields) -> None:
    f.only("hidden_act", "silu")
    f.only("tie_word_embeddings", False)
    f.only("attention_bias", False)
    f.only("attention_method", "MLA")
    f.only("router_bias", False)
    f.only("rounter_params_dtype", "float32")
    for name in ("mla_scale_q_lora", "mla_scale_kv_lora"):
        f.only(name, True)
    for name, read in _SPELLED.items():
        if f.has(name) and f.get(name) != f.get(read):
            f.cannot(f"{name} is not {read}: SGLang and transformers read one of them each")
    if f.has("num_hidden_layers"):
        f.cannot("num_hidden_layers: SGLang makes as many layers, transformers half as many")
    if not f.has("qk_rope_head_dim"):
        raise ConfigError("config.json: qk_rope_head_dim is missing: SGLang takes 128, transformers 64")
    section = f.section("quantization_config")
    listed = [name for name in _PLAIN if section.get(name)]
    if f.get("disable_quant_module") or listed:
        f.cannot("quantization_config: this runtime keeps none of this family's matrices plain")
    for name in _N_GRAMS:
        if f.has(name):
            f.cannot(f"{name}: this runtime has no embeddings of several tokens")
    for name in _INDEXED:
        if f.has(name):
            f.cannot(f"{name}: this runtime has no indexer of this family")


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    """What scales them, SGLang multiplies the weights of their norms by."""
    f.size("q_lora_rank")
    attention, mla = latents(f)
    assert attention.rope is not None and mla.q_lora_rank is not None
    _check_rope(f, str(attention.rope.parameters["rope_type"]))
    if f.get("head_dim") not in (None, mla.qk_rope_head_dim):
        f.cannot(f"head_dim is not qk_rope_head_dim, which is {mla.qk_rope_head_dim}: transformers turns it")
    if f.get("qk_head_dim") not in (None, mla.qk_head_dim):
        f.cannot(f"qk_head_dim is not qk_nope_head_dim + qk_rope_head_dim, which are {mla.qk_head_dim}")
    hidden = f.size("hidden_size")
    scaled = replace(
        mla,
        query_scale=(hidden / mla.q_lora_rank) ** 0.5,
        latent_scale=(hidden / mla.kv_lora_rank) ** 0.5,
    )
    return attention, scaled


def _check_rope(f: Fields, kind: str) -> None:
    """SGLang's config class leaves rope_parameters out, and any rope_scaling becomes DeepSeek's YaRN."""
    scaling, base = f.section("rope_scaling"), f.get("rope_theta")
    if kind not in ("default", "yarn") or (kind == "default" and scaling):
        f.cannot(f"rope_type is {kind!r}: SGLang computes 'yarn' wherever there is a rope_scaling")
    if scaling.get("rope_theta", base) != base:
        f.cannot("rope_scaling: rope_theta is not the one outside: SGLang reads one or the other")
    parameters = {} if scaling else f.section("rope_parameters")
    if parameters and (kind != "default" or parameters.get("rope_theta", base) != base):
        f.cannot("rope_parameters: SGLang reads rope_theta and rope_scaling")


def _experts(f: Fields) -> MoEConfig:
    zero = f.count("zero_expert_num")
    if zero and f.get("zero_expert_type") != "identity":
        f.cannot(f"zero_expert_type is {f.get('zero_expert_type')!r}: this runtime computes 'identity'")
    return MoEConfig(
        num_experts=f.size("n_routed_experts"),
        top_k=f.size("moe_topk"),
        intermediate_size=f.size("expert_ffn_hidden_size"),
        renormalize=False,
        correction_bias=True,
        routed_scaling_factor=f.number("routed_scaling_factor"),
        router_in_fp32=True,
        zero_experts=zero,
    )


_DEFAULTS = {
    "vocab_size": 131072,
    "hidden_size": 6144,
    "num_layers": 28,
    "num_attention_heads": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000000.0,
    "ffn_hidden_size": 12288,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "moe_topk": 12,
    "n_routed_experts": 512,
    "zero_expert_num": 256,
    "zero_expert_type": "identity",
    "expert_ffn_hidden_size": 2048,
    "routed_scaling_factor": 6.0,
}

FAMILIES = (Family(MODEL_TYPE, _longcat, _DEFAULTS),)
