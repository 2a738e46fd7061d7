"""SDAR, dense and of experts: Qwen3's layers, which write a block of tokens at a time.

srt/models/sdar.py, sdar_moe.py. Their config classes are files of their checkpoints, which nobody here has
read: what a file leaves out is named.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.layer_config import AttentionConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames())


def _sdar(f: Fields) -> ModelConfig:
    _told(f, _DENSE)
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "dense"), names=_NAMES)


def _sdar_moe(f: Fields) -> ModelConfig:
    _told(f, _MOE)
    f.only("mlp_only_layers", [])  # SGLang has experts in every layer
    f.only("decoder_sparse_step", 1)
    f.only("norm_topk_prob", True)  # else what kernels are told is another choice than its router's
    moe = routed(f, "moe_intermediate_size")
    return model(
        f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "moe"), moe=moe, names=_NAMES
    )


def _told(f: Fields, names: dict[str, object]) -> None:
    for name in names:
        if not f.tells(name):
            f.cannot(f"{name} is missing: what it is then, the checkpoint's own class says")


def _attention(f: Fields) -> AttentionConfig:
    f.only("use_sliding_window", False)  # SGLang's layers have no window
    f.only("tie_word_embeddings", False)  # its dense class ends on one rank, and several hold both
    bias = f.flag("attention_bias")
    return heads(f, bias=bias, output_bias=bias, qk_norm="head")


_DENSE: dict[str, object] = {
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
}
_MOE: dict[str, object] = {
    **_DENSE,
    "intermediate_size": 6144,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
    "norm_topk_prob": True,
}

FAMILIES = (Family("sdar", _sdar, _DENSE), Family("sdar_moe", _sdar_moe, _MOE))
