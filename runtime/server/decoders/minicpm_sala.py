"""MiniCPM-SALA: a MiniCPM most of whose layers have lightning attention.

Its config class is SGLang's own, srt/configs/minicpm.py, in every release that has it.
"""

from __future__ import annotations

from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.minicpm import scaled_by_smaller
from runtime.server.decoders.parts import check_both, everywhere, heads, model
from runtime.server.decoders.rope import read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.recurrent import LightningConfig
from runtime.server.tensor_names import ServedNames, TensorNames

NAME = "minicpm_sala"
_KINDS = {
    **dict.fromkeys(("minicpm4", "minicpm", "standard", "attention", "attn"), "full"),
    **dict.fromkeys(("lightning", "lightning_attn", "lightning-attn"), "recurrent"),
}
_NAMES = TensorNames(
    recurrent="self_attn",
    value_gate="o_gate",
    state_gate="z_proj",
    state_norm="o_norm",
    served=ServedNames(plain=("lm_head",)),
)


def _minicpm_sala(f: Fields) -> ModelConfig:
    """Where its layers attend, they see all tokens: blocks of them, which `sparse_config` tells of, are seen
    by two backends alone, and those are no part of it here."""
    f.only("hidden_act", "silu")
    f.only("attention_bias", False)
    f.only("num_experts", 0)
    f.only("lightning_scale", "1/sqrt(d)")
    f.only("linear_backend", "seg_la")
    f.only("rope_scaling")
    f.only("rope_parameters")
    f.section("sparse_config")
    return model(
        f,
        {"full": _attention(f)},
        _kinds(f),
        everywhere(f, "dense"),
        activation="silu",
        recurrent=_lightning(f),
        multipliers=scaled_by_smaller(f),
        names=_NAMES,
    )


def _kinds(f: Fields) -> list[str]:
    """Those that a file names take turns."""
    told, layers = f.get("mixer_types") or ["minicpm4"], f.size("num_hidden_layers")
    if not isinstance(told, list) or not all(isinstance(one, str) and one in _KINDS for one in told):
        raise ConfigError(
            f"config.json: mixer_types is {told!r:.60}: a list of {', '.join(_KINDS)} is needed"
        )
    if len(told) > layers:
        raise ConfigError(f"config.json: mixer_types names {len(told)} layers of {layers}")
    kinds = [_KINDS[told[layer % len(told)]] for layer in range(layers)]
    check_both(f, kinds)
    return kinds


def _attention(f: Fields) -> AttentionConfig:
    return heads(
        f,
        rope=_rope(f, _width(f), "attn_use_rope"),
        turns_in_fp32=True,
        value_gate=f.flag("attn_use_output_gate"),
    )


def _lightning(f: Fields) -> LightningConfig:
    count = f.size("lightning_nh", f.size("num_attention_heads"))
    kv_count = f.size("lightning_nkv", f.size("num_key_value_heads"))
    if kv_count != count:
        f.cannot(f"lightning_nkv is {kv_count} beside {count} heads: SGLang has as many of both")
    width = f.size("lightning_head_dim", _width(f))
    return LightningConfig(
        num_heads=count,
        head_dim=width,
        norm_groups=1,
        normed_heads=f.flag("qk_norm"),
        rope=_rope(f, width, "lightning_use_rope"),
        num_layers=f.size("num_hidden_layers"),
        by_depth=f.flag("lightning_layerwise_decay"),
        normed="as one" if f.flag("use_output_norm") else "not",
        gated=f.flag("use_output_gate"),
    )


def _width(f: Fields) -> int:
    return f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))


def _rope(f: Fields, width: int, flag: str) -> RopeConfig | None:
    rope = read_rope(f, width)
    return rope if f.flag(flag) else None


_DEFAULTS: dict[str, Any] = {
    **{"vocab_size": 150528, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32},
    **{"num_key_value_heads": 8, "intermediate_size": 14336, "rms_norm_eps": 1e-6},
    **{"max_position_embeddings": 32768, "tie_word_embeddings": False},
    **{"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256},
    **dict.fromkeys(("qk_norm", "lightning_use_rope", "attn_use_rope"), True),
}
FAMILIES = (Family(NAME, _minicpm_sala, _DEFAULTS),)
