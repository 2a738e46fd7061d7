"""InternLM 2 and 2.5: a Llama with queries, keys and values in one matrix, a group of heads after another."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    embedding="model.tok_embeddings",
    head="output",
    attention="attention",
    packed_qkv="wqkv",
    packs_groups=True,
    attention_out="wo",
    mlp="feed_forward",
    gate="w1",
    up="w3",
    down="w2",
    served=ServedNames(
        ((r"\.w1$", ".gate_proj"), (r"\.w3$", ".up_proj")),
        plain=("lm_head",),
        by_rows="attention.wqkv",
    ),
)


def _internlm2(f: Fields) -> ModelConfig:
    f.only("bias", False)  # SGLang reads no biases of theirs, and has no head but their own
    f.only("tie_word_embeddings", False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    return model(
        f,
        {"full": heads(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        names=_NAMES,
        norms="attention",
    )


FAMILIES = (
    Family(
        "internlm2",
        _internlm2,
        {"intermediate_size": 11008, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "bias": True},
    ),
)
