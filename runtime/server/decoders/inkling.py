"""Inkling: short convolutions of keys, values and answers, and scores by distance: srt/configs/inkling.py.

Its files are those that SGLang reads, whose names for widths transformers reads as they are meant, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.parts import heads, model
from runtime.server.errors import ConfigError
from runtime.server.excluded import Excluded
from runtime.server.layer_config import AttentionConfig, DistanceConfig, FloorGrowth, MoEConfig, Multipliers
from runtime.server.recurrent import AddedConvolutionsConfig
from runtime.server.tensor_names import TensorNames

NAME = "inkling_model"
_ROWS = 64  # of a vocabulary, that tables come in
_NAMES = TensorNames(
    layers="model.llm.layers",
    embedding="model.llm.embed",
    norm="model.llm.norm",
    head="model.llm.unembed",
    attention="attn",
    attention_out="wo_ud",
    recurrent="attn",
    gate_up="w13_dn",
    down="w2_md",
    interleaves=True,
)
# What SGLang has without it, and transformers never has.
_ALWAYS = (
    *("use_embed_norm", "use_sconv", "use_gate_bias", "use_global_scale", "shared_expert_sink"),
    *("norm_after_topk", "inference_moe_w13_interleaved"),
)
_NEVER = ("q_bias", "o_bias", "tie_word_embeddings")
# What the two take each for something else where it is not told.
_TOLD = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "intermediate_size"),
    *("dense_intermediate_size", "n_routed_experts", "n_shared_experts", "num_experts_per_tok"),
    *("route_scale", "logits_mup_width_multiplier", "local_layer_ids"),
)
# By these names transformers writes what it reads by others, and SGLang does not read them.
_OF_TRANSFORMERS = ("layer_types", "mlp_layer_types", "moe_intermediate_size", "conv_kernel_size")


def _inkling(f: Fields) -> ModelConfig:
    _check(f)
    layers, behind = f.size("num_hidden_layers"), f.layer_numbers("local_layer_ids")
    dense, vocab = f.count("dense_mlp_idx"), f.size("vocab_size")
    kinds = ["sliding" if layer in behind else "full" for layer in range(layers)]
    every = {"full": _attention(f, False), "sliding": _attention(f, True)}
    named = f.spelled("model_max_length", "max_position_embeddings")
    return model(
        f,
        {kind: every[kind] for kind in dict.fromkeys(kinds)},
        kinds,
        ["dense" if layer < dense else "moe" for layer in range(layers)],
        intermediate_size=f.size("dense_intermediate_size"),
        max_position=f.size(named),
        norms="short",
        embedding_norm="model.llm.embed_norm",
        scaled_mlps=True,
        recurrent=AddedConvolutionsConfig(
            tuple((kind, one.num_kv_heads, one.head_dim) for kind, one in every.items()),
            f.size("hidden_size"),
            f.size("sconv_kernel_size"),
        ),
        recurs_beside=True,
        moe=_routed(f) if dense < layers else None,
        head_vocab=_head(f, vocab),
        head_padding=-(-vocab // _ROWS) * _ROWS,
        logits_in_fp32=True,
        multipliers=Multipliers(logits=1 / f.positive("logits_mup_width_multiplier")),
        names=_NAMES,
    )


def _check(f: Fields) -> None:
    for name in _OF_TRANSFORMERS:
        if f.has(name):
            f.cannot(f"{name} is told, which SGLang does not read")
    for name in _TOLD:
        if not f.tells(name):
            f.cannot(f"{name} is missing: SGLang then has something else than transformers")
    f.always(dict.fromkeys(_ALWAYS, True))
    for name in _NEVER:
        f.only(name, False)
    for name in ("padded_vocab_size", "final_logit_softcapping"):
        f.only(name)
    f.only("gate_activation", "sigmoid")
    f.only("mtp_local_layer_ids", [])
    f.only("enable_lm_head_output_fp32", True)
    for prefix in ("", "swa_"):
        f.only(f"{prefix}v_head_dim", f.size(f"{prefix}head_dim"))
    if f.size("sconv_kernel_size") < 2:
        f.cannot("sconv_kernel_size is 1: this runtime convolves two tokens and more")


def _attention(f: Fields, slides: bool) -> AttentionConfig:
    prefix, window = ("swa_", f.size("sliding_window_size")) if slides else ("", None)
    count, kv = (f.size(f"{prefix}{name}") for name in ("num_attention_heads", "num_key_value_heads"))
    if count % kv:
        raise ConfigError(f"config.json: {count} heads are not evenly those of {kv} KV heads")
    width, growth, strength = f.size(f"{prefix}head_dim"), None, f.number("log_scaling_alpha")
    if not slides and f.has("log_scaling_n_floor"):
        growth = FloorGrowth(strength, f.positive("log_scaling_n_floor"))
    return heads(
        f,
        count=count,
        kv_count=kv,
        width=width,
        rope=None,
        scale=1 / width,
        qk_norm="head",
        window=window,
        growth=growth,
        distance=DistanceConfig(f.size("d_rel"), window or f.size("rel_extent")),
    )


def _routed(f: Fields) -> MoEConfig:
    experts, asked = f.size("n_routed_experts"), f.size("num_experts_per_tok")
    return MoEConfig(
        num_experts=experts,
        top_k=asked,
        intermediate_size=f.size("intermediate_size"),
        scoring="sigmoid",
        correction_bias=True,
        routed_scaling_factor=f.number("route_scale"),
        sinks=f.size("n_shared_experts"),
        keeps_rows=True,  # which those that all ask are given, too
    )


def _head(f: Fields, vocab: int) -> int | None:
    known = f.size_or_none("unpadded_vocab_size")
    return known if known is not None and known < vocab else None


# What lists call a matrix, and its class.
_SERVED = ((".mlp.w13_dn", ".mlp.gate_up_proj"), (".mlp.w2_md", ".mlp.down_proj"))


def with_packed_experts(model: ModelConfig, hf: HF) -> ModelConfig:
    """Of experts alone. What is listed is meant where it is a part of a name: inkling_common/quantization."""
    if model.checkpoint_quantization is None:
        return model
    if model.checkpoint_quantization != "modelopt_fp4":
        said = f"quantization_config: {model.checkpoint_quantization[:60]}: SGLang's Inkling has nvfp4 alone"
        return replace(model, obstacles=(*model.obstacles, said))
    listed = tuple(_listed(hf))
    packed = next((one for one in _others(model) if not any(map(one.count, listed))), None)
    if packed is not None:
        said = f"exclude_modules mean no {packed}: here experts alone are in nvfp4"
        return replace(model, obstacles=(*model.obstacles, f"quantization_config: {said}"))
    experts = [f"llm.layers.{layer}.mlp.experts" for layer in _of_kind(model, "moe")]
    plain = tuple(f"model.{one}" for one in experts if any(map(one.count, listed)))
    weights = replace(model.quantized, linear=None, head=None, excluded=Excluded(plain))
    said = "quantization_config: this runtime reads no experts in nvfp4 by Inkling's names"
    return replace(model, quantized=weights, uncomputed=(*model.uncomputed, said))


def _listed(hf: HF) -> Iterator[str]:
    section = hf.get("quantization_config")
    told = section.get("exclude_modules") if isinstance(section, Mapping) else None
    if not isinstance(told, list | None) or not all(isinstance(one, str) for one in told or ()):
        raise ConfigError(f"quantization_config: exclude_modules is {repr(told)[:60]}: a list is needed")
    for one in told or ():
        name = one.removeprefix("model.")
        for stored, served in _SERVED:
            name = name.replace(stored, served)
        yield name


def _others(model: ModelConfig) -> Iterator[str]:
    """As its class calls what a list has to keep plain."""
    for layer in range(model.num_layers):
        yield from (f"llm.layers.{layer}.attn.{one}" for one in ("qkvr", "wo_ud"))
    for layer in _of_kind(model, "dense"):
        yield from (f"llm.layers.{layer}.mlp.{one}_proj" for one in ("gate_up", "down"))
    for layer in _of_kind(model, "moe"):
        yield f"llm.layers.{layer}.mlp.shared_experts.shared_w13_weight"


def _of_kind(model: ModelConfig, kind: str) -> Iterator[int]:
    return (layer for layer, one in enumerate(model.layer_kinds) if one == kind)


FAMILIES = (
    Family(
        NAME,
        _inkling,
        {
            **{"vocab_size": 201024, "hidden_size": 1536, "intermediate_size": 768, "num_hidden_layers": 16},
            **{"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 128, "swa_head_dim": 128},
            **{"swa_num_attention_heads": 12, "swa_num_key_value_heads": 4, "dense_intermediate_size": 768},
            **{"d_rel": 16, "rel_extent": 1024, "sliding_window_size": 512, "rms_norm_eps": 1e-6},
            **{"hidden_act": "silu", "sconv_kernel_size": 4, "dense_mlp_idx": 0, "n_routed_experts": 1},
            **{"n_shared_experts": 1, "num_experts_per_tok": 1, "route_scale": 1.0},
            **{"norm_after_topk": True, "inference_moe_w13_interleaved": True, "log_scaling_alpha": 0.1},
            **{"logits_mup_width_multiplier": 1.0, "model_max_length": 131072},
        },
    ),
)
