"""IQuest Coder: a Llama whose config class is a file of its checkpoints."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import as_stretched
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames())


def _iquestcoder(f: Fields) -> ModelConfig:
    """srt/models/llama.py has no clips and no windows, and reads `bias` as attention's."""
    f.only("clip_qkv")
    for name in ("use_sliding_window", "mlp_bias", "bias"):
        f.only(name, False)
    for name in ("num_key_value_heads", "head_dim"):
        if not f.has(name):
            f.cannot(f"{name} is null: SGLang's class has no other in its place")
    if not f.tells("max_position_embeddings"):
        f.cannot("max_position_embeddings is missing: transformers says 131072, its checkpoints' class 16384")
    if not _tells_base(f):
        f.cannot("rope_theta is missing: transformers says 10000, its checkpoints' class 500000")
    f.only("rope_is_neox_style", True)
    bias = f.flag("attention_bias")
    attention = heads(f, bias=bias, output_bias=bias)
    as_stretched(f, attention.rope)
    return model(f, {"full": attention}, everywhere(f, "full"), everywhere(f, "dense"), names=_NAMES)


def _tells_base(f: Fields) -> bool:
    """The file itself, where SGLang's transformers looks for it."""
    ropes = (f.section(name) for name in ("rope_parameters", "rope_scaling"))
    return f.tells("rope_theta") or any(rope.get("rope_theta") is not None for rope in ropes)


FAMILIES = (
    Family(
        "iquestcoder",
        _iquestcoder,
        {
            "intermediate_size": 27648,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
        },
    ),
)
