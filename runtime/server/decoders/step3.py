"""Step3: queries of all heads out of one narrow row beside one head of keys, experts beside a shared one.

transformers has no class of it: fields are those of SGLang's srt/configs/step3_vl.py, in every release.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model, which
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import MoEConfig, RopeConfig
from runtime.server.tensor_names import TensorNames

NAME = "step3_text"
_NAMES = TensorNames(shared="share_expert", shared_in_mlp=False)
_POSITIONS = 8192  # of SGLang's table of angles, where a file does not tell max_position_embeddings


def _step3(f: Fields) -> ModelConfig:
    f.only("hidden_act", "silu")
    f.only("tie_word_embeddings", False)
    f.only("num_attention_groups", 1)
    for name in ("n_routed_experts", "num_experts"):
        f.only(name)
    layers = f.size("num_hidden_layers")
    mlps = _mlps(f, layers)
    attention = heads(f, kv_count=1, rope=_rope(f), query_rank=f.size("share_q_dim"))
    return model(
        f,
        {"full": attention},
        ["full"] * layers,
        mlps,
        moe=_routed(f),
        names=_NAMES,
        max_position=f.size("max_seq_len"),
        tie_word_embeddings=False,
    )


def _rope(f: Fields) -> RopeConfig:
    told = f.section("rope_scaling") or f.section("rope_parameters")
    kind = told.get("rope_type") or told.get("type") or "default"
    if kind != "default":
        f.cannot(f"rope_type is {repr(kind)[:60]}: of this family no rope is stretched here")
    theta = f.number("rope_theta")
    if told.get("rope_theta") not in (None, theta):
        f.cannot(f"rope_theta is {theta}, and another in rope_scaling: which SGLang takes, releases decide")
    plain = Fields({"max_position_embeddings": f.size("max_position_embeddings", _POSITIONS)}, {})
    return read_rope_alone(
        plain, {"rope_type": "default", "rope_theta": theta}, f.size("head_dim"), share=1.0
    )


def _mlps(f: Fields, layers: int) -> list[str]:
    """SGLang reads a text, and ends at its own class's default, which is none."""
    listed = f.get("moe_layers_enum")
    if not isinstance(listed, str):
        f.cannot(f"moe_layers_enum is {repr(listed)[:60]}: SGLang reads a text of numbers")
        return which(layers, lambda i: i > 0)
    words = listed.strip().split(",")
    if not all(one.strip().isdecimal() for one in words):
        raise ConfigError(f"config.json: moe_layers_enum is {repr(listed)[:60]}: layers are needed, as 3,4,5")
    sparse = {int(one) for one in words}
    return which(layers, lambda i: i in sparse)


def _routed(f: Fields) -> MoEConfig:
    return MoEConfig(
        num_experts=f.size("moe_num_experts"),
        top_k=f.size("moe_top_k"),
        intermediate_size=f.size("moe_intermediate_size"),
        shared_intermediate_size=f.size("share_expert_dim"),
        renormalize=f.flag("norm_expert_weight"),
    )


FAMILIES = (
    Family(
        NAME,
        _step3,
        {
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "num_attention_heads": 64,
            "num_hidden_layers": 61,
            "max_seq_len": 65536,
            "vocab_size": 128815,
            "rms_norm_eps": 1e-5,
            "moe_intermediate_size": 5120,
            "moe_num_experts": 48,
            "moe_top_k": 3,
            "rope_theta": 500000.0,
            "share_expert_dim": 5120,
            "share_q_dim": 2048,
            "head_dim": 256,
            "norm_expert_weight": False,
        },
    ),
)
