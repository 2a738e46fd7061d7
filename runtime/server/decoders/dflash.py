"""DFLASH's drafts: srt/models/dflash.py. Layers of Qwen 3 that attend to a block of tokens, all of which are
drafted at once, beside what some layers of the target made of those before. Embedding and head are the
target's from the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.llama import FAMILIES as LLAMA
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model
from runtime.server.decoders.qwen import FAMILIES as QWEN
from runtime.server.errors import Unsupported
from runtime.server.layer_config import AttentionConfig, FusionConfig

ARCHITECTURE = "DFlashDraftModel"
_DEFAULTS = {one.model_type: one.defaults for one in (*LLAMA, *QWEN) if one.model_type in ("llama", "qwen3")}
# The class does not ask for these, or no size follows from the answer.
_WITHOUT_SIZE = frozenset(
    (
        *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "_name_or_path"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range", "pretraining_tp"),
        *("attention_dropout", "mlp_bias", "quantization_config", "block_size", "mask_token"),
        *("mask_token_id", "tie_word_embeddings", "use_sliding_window"),
    )
)
_SECTION = "dflash_config"
_SECTION_WITHOUT_SIZE = frozenset(("block_size", "mask_token", "mask_token_id"))


def read_dflash(hf: HF) -> ModelConfig:
    kind = str(hf.get("model_type", ""))
    if kind not in _DEFAULTS:
        known = " and ".join(_DEFAULTS)
        raise Unsupported(f"{ARCHITECTURE} of model_type {kind!r}: here are drafts of {known}")
    f = Fields(hf, _DEFAULTS[kind])
    section = f.section(_SECTION)
    window = _window(f, kind)
    kinds = _kinds(f, kind, window)
    attention = {one: _attention(f, window if one == "sliding" else None) for one in kinds}
    found = model(f, attention, kinds, everywhere(f, "dense"), fusion=_fusion(f, section))
    unread = (f"config.json: {name} is not read here" for name in _unread(f, hf, section))
    return replace(found, obstacles=(*found.obstacles, *unread), tie_word_embeddings=False)


def _window(f: Fields, kind: str) -> int | None:
    """Qwen's config class has none where no one is said to be used; Llama's keeps what is told."""
    window = f.size_or_none("sliding_window") if f.tells("sliding_window") else None
    return window if kind == "llama" or f.flag("use_sliding_window") else None


def _kinds(f: Fields, kind: str, window: int | None) -> list[str]:
    layers, first = f.size("num_hidden_layers"), f.count("max_window_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES)
    if kinds is None and kind == "qwen3":
        kinds = ["sliding" if window and layer >= first else "full" for layer in range(layers)]
    if kinds is not None and "sliding" in kinds and window is None:
        raise Unsupported("config.json: layer_types names sliding_attention without a sliding_window")
    return kinds or everywhere(f, "full")


def _attention(f: Fields, window: int | None) -> AttentionConfig:
    """Both ways, within the block."""
    bias = f.flag("attention_bias")
    return heads(f, theta=1e6, window=window, bias=bias, output_bias=bias, qk_norm="head")


def _fusion(f: Fields, section: HF) -> FusionConfig:
    """Of as many of the target's layers as it has itself, where it does not say of which."""
    inside = Fields({**_beside(f), **section}, {})
    told = inside.get("target_layer_ids")
    layers = inside.layer_numbers("target_layer_ids")
    if told is not None and (not layers or len(layers) != len(told)):
        f.cannot(f"target_layer_ids tells {told}: this runtime knows drafts of different layers")
    states = len(layers) or f.size("num_hidden_layers")
    return FusionConfig(
        states,
        f.size("hidden_size"),
        layers=tuple(sorted(layers)),
        drafts_block=True,
        of_layers=inside.size_or_none("num_target_layers"),
    )


def _beside(f: Fields) -> dict[str, Any]:
    return {name: f.get(name) for name in ("target_layer_ids", "num_target_layers")}


def _unread(f: Fields, hf: HF, section: HF) -> Iterator[str]:
    """What is null says nothing."""
    known = {"target_layer_ids", "num_target_layers"} | _SECTION_WITHOUT_SIZE
    told = {name for name, value in hf.items() if value is not None}
    yield from sorted(told - f.seen - _WITHOUT_SIZE)
    inner = {name for name, value in section.items() if value is not None}
    yield from (f"{_SECTION}: {name}" for name in sorted(inner - known))
