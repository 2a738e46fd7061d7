"""EAGLE's drafts: srt/models/llama_eagle.py, qwen2_eagle.py. Layers of Llama or Qwen 2 that are given a
token's embedding beside what the target made of the token, as one row; the first has no norm before
attention, and nothing norms what the last one makes. Embedding and head are their target's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.llama import FAMILIES as LLAMA
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.qwen import FAMILIES as QWEN
from runtime.server.errors import Unsupported
from runtime.server.layer_config import FusionConfig

_FAMILIES = {family.model_type: family for family in (*LLAMA, *QWEN)}
_MODEL_TYPES = {"LlamaForCausalLMEagle": "llama", "Qwen2ForCausalLMEagle": "qwen2"}
ARCHITECTURES = tuple(_MODEL_TYPES)
# Neither class asks for these, or no size follows from the answer.
_WITHOUT_SIZE = frozenset(
    (
        *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range", "pretraining_tp"),
        *("attention_dropout", "quantization_config"),
    )
)
_OF_LLAMA = frozenset(
    ("mlp_bias", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
)


def read_eagle(hf: HF, architecture: str) -> ModelConfig:
    kind = _MODEL_TYPES[architecture]
    if hf.get("model_type") != kind:
        raise Unsupported(f"{architecture} of model_type {hf.get('model_type')!r}: here are drafts of {kind}")
    f = Fields(hf, _FAMILIES[kind].defaults)
    f.only("tie_word_embeddings", False)  # a head that is the embedding cannot be given up for its target's
    found = _llama(f) if kind == "llama" else _FAMILIES[kind].read(f)
    width = found.hidden_size
    fusion = FusionConfig(1, width, bias=True, is_fed=False, beside_token=True)
    unread = (f"config.json: {name} is not read here" for name in _unread(f, hf, kind))
    obstacles = (*found.obstacles, *unread)
    return replace(found, norms="late", fusion=fusion, obstacles=obstacles)


def _llama(f: Fields) -> ModelConfig:
    """Of which SGLang's layer asks by two names whether attention is biased."""
    bias = any([f.flag("attention_bias"), f.flag("bias")])
    attention = heads(f, bias=bias, output_bias=bias)
    return model(f, {"full": attention}, everywhere(f, "full"), everywhere(f, "dense"))


def _unread(f: Fields, hf: HF, kind: str) -> Iterator[str]:
    """What is null says nothing."""
    known = f.seen | _WITHOUT_SIZE | (_OF_LLAMA if kind == "llama" else set())
    yield from sorted({name for name, value in hf.items() if value is not None} - known)
