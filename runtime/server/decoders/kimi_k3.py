"""Kimi K3's text: delta attention in most layers, latents that nothing turns in some, both behind gates;
experts that work on latents, and open by tangents; residuals that are kept at the ends of blocks of layers.

transformers has no class of it: fields are those of SGLang's srt/configs/kimi_linear.py, and what they mean
is told by srt/models/kimi_k3.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.kimi_linear import delta_sizes, kinds_of_layers
from runtime.server.decoders.parts import model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MLAConfig, MoEConfig
from runtime.server.recurrent import KimiDeltaConfig
from runtime.server.residual_config import SnapshotsConfig
from runtime.server.tensor_names import ServedNames, TensorNames

NAME, ARCHITECTURE = "kimi_k3_text", "KimiK3LinearForCausalLM"
_OWN_OF_OTHERS = {"n_routed_experts": "num_experts", "num_experts_per_tok": "num_experts_per_token"}
_SITU = "situ"
_DELTA_EPS = 1e-5  # whatever rows have
_NEEDED = {"moe_router_activation_func": "sigmoid", "topk_method": "noaux_tc"}
_SERVED = ServedNames(
    files=((r"\.mlp\.(shared_)?experts", r".block_sparse_moe.\1experts"),),
    experts=("experts.0.w1", "experts.0.w2", "experts.0.w3"),
)


def _kimi_k3(f: Fields) -> ModelConfig:
    _check(f)
    layers, linear = f.size("num_hidden_layers"), f.section("linear_attn_config")
    attention, mla = _latents(f)
    activation, heights = _activation(f)
    mlps = _mlps(f, layers)
    read = model(
        f,
        {"full": attention},
        kinds_of_layers(f, linear, layers),
        mlps,
        moe=_routed(f) if "moe" in mlps else None,
        mla=mla,
        recurrent=_delta(f, linear),
        snapshots=_snapshots(f),
        names=TensorNames(recurrent="self_attn", served=_SERVED),
        activation=activation,
        swiglu=heights,
    )
    return replace(read, model_type=NAME)


def _check(f: Fields) -> None:
    for name, value in _NEEDED.items():
        if f.get(name) != value:
            f.cannot(f"{name} is {repr(f.get(name))[:60]}: this runtime computes {value!r}")
    f.only("logit_scale", 1.0)
    for name in ("tie_word_embeddings", "attention_bias"):
        f.only(name, False)
    for name in ("rope_scaling", "routing_method_type"):
        f.only(name)
    for theirs, read in _OWN_OF_OTHERS.items():
        if f.has(theirs) and f.get(theirs) != f.get(read):
            f.cannot(f"{theirs} is {repr(f.get(theirs))[:60]}, {read} another: SGLang reads both")
    if f.has("quantization_config") and "mxfp4" not in _packed(f.section("quantization_config")):
        f.cannot("quantization_config: this runtime has its layers plain, or with experts packed in mxfp4")


def _packed(section: HF) -> str:
    """The format of its experts, as SGLang's class looks for it."""
    groups = section.get("config_groups")
    listed = groups.values() if isinstance(groups, Mapping) else ()
    formats = [one.get("format") for one in listed if isinstance(one, Mapping)]
    return " ".join(map(str, (section.get("format"), *formats)))


def _activation(f: Fields) -> tuple[str, tuple[float, float] | None]:
    told = f.get("hidden_act")
    if told != _SITU:
        if told != "silu":
            f.cannot(f"hidden_act is {repr(told)[:60]}: SGLang has silu and situ")
        return "silu", None
    if not f.has("activation_situ_beta"):
        f.cannot("activation_situ_beta is missing: SGLang's experts then take 4.0, and its other MLPs 1.0")
        return _SITU, (1.0, 0.0)
    heights = [f.number("activation_situ_beta")]
    heights.append(f.number("activation_situ_linear_beta") if f.has("activation_situ_linear_beta") else 0.0)
    if heights[0] <= 0 or (f.has("activation_situ_linear_beta") and heights[1] <= 0):
        raise ConfigError(f"config.json: activation_situ_beta, or that of ups, is {heights}: not above 0")
    return _SITU, (heights[0], heights[1])


def _mlps(f: Fields, layers: int) -> list[str]:
    first, every = f.count("first_k_dense_replace"), f.size("moe_layer_freq", 1)
    return which(layers, lambda i: f.has("num_experts") and i >= first and i % every == 0)


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = {name: f.size(name) for name in names}
    eps = f.number("rms_norm_eps")
    mla = MLAConfig(q_lora_rank=f.size_or_none("q_lora_rank"), indexer=None, norm_eps=eps, **sizes)
    count, is_gated = f.size("num_attention_heads"), f.flag("mla_use_output_gate")
    return AttentionConfig(
        count, count, mla.qk_head_dim, None, mla.qk_head_dim**-0.5, value_gate=is_gated
    ), mla


def _delta(f: Fields, linear: HF) -> KimiDeltaConfig:
    heads, width, taps = delta_sizes(f, linear)
    own = Fields(linear, {})
    bound = own.number("gate_lower_bound") if own.has("gate_lower_bound") else None
    if bound is not None and not bound < 0:
        raise ConfigError(f"config.json: gate_lower_bound is {bound}: a number below 0 is needed")
    is_whole = own.flag("use_full_rank_gate")
    return KimiDeltaConfig(heads, width, taps, whole_gate=is_whole, lower_bound=bound, norm_eps=_DELTA_EPS)


def _routed(f: Fields) -> MoEConfig:
    inner, latents = f.size("moe_intermediate_size"), f.size_or_none("routed_expert_hidden_size")
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("num_experts_per_token"),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("num_shared_experts"),
        scoring="sigmoid",
        renormalize=f.flag("moe_renormalize"),
        correction_bias=True,
        num_groups=f.size("num_expert_group", 1),
        top_k_groups=f.size("topk_group", 1),
        routed_scaling_factor=f.number("routed_scaling_factor"),
        latent_size=latents,
        sums_latents=latents is not None,
        norms_latents=latents is not None and f.flag("latent_moe_use_norm"),
    )


def _snapshots(f: Fields) -> SnapshotsConfig | None:
    return SnapshotsConfig(f.size("attn_res_block_size")) if f.has("attn_res_block_size") else None


DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 163840,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "routed_scaling_factor": 1.0,
    "num_shared_experts": 0,
    "first_k_dense_replace": 0,
    "moe_layer_freq": 1,
    "num_expert_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "max_position_embeddings": 4096,
}

FAMILIES = (Family(NAME, _kimi_k3, DEFAULTS),)
