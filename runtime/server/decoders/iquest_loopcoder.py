"""IQuest LoopCoder: a Llama whose layers run in rounds. From the second on a layer sees a window by keys of
that round, and all tokens by those of the first, as gates say of each head."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model
from runtime.server.errors import ConfigError

# What the config class of its checkpoints says of each is not known.
_NEEDED = (
    *("num_key_value_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps"),
    *("tie_word_embeddings", "hidden_act", "loop_num", "loop_window_size"),
)
_PLAIN = "default"


def _iquest_loopcoder(f: Fields) -> ModelConfig:
    """srt/models/iquest_loopcoder.py, which has no biases but of gates, and no windows in the first round."""
    for name in _NEEDED:
        if not f.has(name):
            raise ConfigError(
                f"config.json: {name} is missing: what it is then, the checkpoint's own class says"
            )
    for name in ("attention_bias", "mlp_bias", "bias", "use_sliding_window"):
        f.only(name, False)
    for name in ("clip_qkv", "sliding_window"):
        f.only(name)
    f.only("rope_is_neox_style", True)
    f.only("hidden_act", "silu")
    rounds, layers = f.size("loop_num"), f.size("num_hidden_layers")
    if rounds == 1:
        f.cannot("loop_num is 1: SGLang then keeps gates that nobody asks")
    window = f.size("loop_window_size") + 1  # with the token itself: srt/layers/attention
    width = _width(f)
    _check_rope(f)
    return model(
        f,
        {
            "full": heads(f, width=width),
            "sliding": heads(f, width=width, window=window),
        },
        ["full"] * layers + ["sliding"] * (rounds - 1) * layers,
        ["dense"] * rounds * layers,
        activation="silu",
        norms="apart",
        rounds=rounds,
        gates_rounds=True,
        idle_rounds=True,
    )


def _width(f: Fields) -> int:
    """SGLang's class divides, whatever is told."""
    count = f.size("num_attention_heads")
    width = f.size("hidden_size") // count
    if width and f.size("head_dim", width) != width:
        f.cannot(f"head_dim is {f.get('head_dim')}: SGLang's class has heads of {width}")
    return width


def _check_rope(f: Fields) -> None:
    if not f.tells("rope_theta"):
        f.cannot("rope_theta is missing: what it is then, the checkpoint's own class says")
    for name in ("rope_scaling", "rope_parameters"):
        told = f.section(name)
        kind = told.get("rope_type", told.get("type", _PLAIN))
        if kind != _PLAIN or told.get("rope_theta", f.get("rope_theta")) != f.get("rope_theta"):
            f.cannot(f"{name} is {dict(told)!r:.60}: of this family no rope is stretched here")


FAMILIES = (Family("iquestloopcoder", _iquest_loopcoder, {"rope_theta": 500000.0}),)
