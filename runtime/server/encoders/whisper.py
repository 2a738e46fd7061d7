"""Whisper's encoder as Qwen2-Audio, GLM-ASR and MiniCPM-o have it, transformers' own on every rank
(srt/models/qwen2_audio.py, glmasr.py, minicpmo.py), and as Voxtral does, whose layers ranks share
(voxtral.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EAR,
    Weights,
    column,
    layer_norm,
    layers,
    linear,
    named,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]

_AUDIO, _JOINER, _QUANTIZED = "audio_config", "multi_modal_projector", "quantization_config"
_TIES, _BASE = "tie_word_embeddings", 10000
_WHISPER = {
    "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
    "num_mel_bins": 128, "max_source_positions": 1500,
}  # fmt: skip
_GLM = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
    "num_mel_bins": 128,
}  # fmt: skip
_VOXTRAL = {**_GLM, "max_source_positions": 1500}
_HEARD = {"num_mel_bins": 80, "max_source_positions": 1500}  # by WhisperConfig, whatever else it would say
# By which of two names a size goes is told by the class, which has the other for the same.
_OTHERS = {
    "d_model": "hidden_size", "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads", "encoder_ffn_dim": "intermediate_size",
}  # fmt: skip


def qwen2_audio(hf: HF, text_width: int) -> Weights:
    _head_of_its_own(hf)
    a = _section(hf, "qwen2_audio_encoder", _WHISPER, _OTHERS)
    yield from _whole_ear(a)
    yield from linear(f"{_JOINER}.linear", text_width, a.size("d_model"))


def minicpm_o(hf: HF, text_width: int) -> Weights:
    """What joins it to the text is as if its MLPs were four times wider than its layers."""
    a = _section(hf, "whisper", _HEARD, _OTHERS)
    yield from _whole_ear(a)
    yield from linear("audio_projection_layer.linear1", text_width, a.size("encoder_ffn_dim") // 4)
    yield from linear("audio_projection_layer.linear2", text_width, text_width)


def glm_asr(hf: HF, text_width: int) -> Weights:
    """Its positions are angles, and a head may be as wide as is told."""
    _one_rope(hf)
    _one_head(hf)
    a = _section(hf, "glmasr_encoder", _GLM)
    width, inner, heads = a.size("hidden_size"), a.size("intermediate_size"), a.size("num_attention_heads")
    key_heads = heads if a.get("num_key_value_heads") is None else a.size("num_key_value_heads")
    each = max(1, width // heads) if a.get("head_dim") is None else a.size("head_dim")
    _joins(a, inner, width)
    ear = chain(
        _convolutions(a, width),
        layers(
            "layers", a.size("num_hidden_layers"), _whole_layer(width, heads * each, key_heads * each, inner)
        ),
        layer_norm("norm", width),
    )
    yield from named(EAR, ear)
    yield from linear(f"{_JOINER}.linear_1", 2 * text_width, inner)
    yield from linear(f"{_JOINER}.linear_2", text_width, 2 * text_width)


def voxtral(hf: HF, text_width: int) -> Weights:
    """Keys have a bias, too, which no file has."""
    _head_of_its_own(hf)
    if _text(hf).get(_QUANTIZED) is not None:
        raise Unsupported(f"config.json: text_config: {_QUANTIZED}: which of two SGLang reads is not known")
    a = _section(hf, "voxtral_encoder", _VOXTRAL, {other: own for own, other in _OTHERS.items()})
    width, inner, heads = a.size("hidden_size"), a.size("intermediate_size"), a.size("num_attention_heads")
    _whole_heads(a, width, heads)
    _joins(a, inner, width)
    if a.get("downsample_factor") not in (None, inner // width):
        raise Unsupported(
            f"{a.where}downsample_factor is {a.get('downsample_factor')!r:.60}: {inner // width} joins"
        )
    ear = chain(
        _convolutions(a, width),
        whole("embed_positions.weight", a.size("max_source_positions"), width),
        layers("layers", a.size("num_hidden_layers"), _split_layer(width, heads, inner)),
        layer_norm("layer_norm", width),
    )
    yield from named(EAR, ear)
    yield from linear(f"{_JOINER}.w_in", text_width, inner, bias=False)
    yield from linear(f"{_JOINER}.w_out", text_width, text_width, bias=False)


def _head_of_its_own(hf: HF) -> None:
    if _text(hf).get(_TIES):
        told = f"config.json: text_config: {_TIES} is {_text(hf)[_TIES]!r:.60}"
        raise Unsupported(f"{told}: SGLang then ties its head, transformers none")


def _one_head(hf: HF) -> None:
    """SGLang asks the text's section, transformers the file."""
    whole, own = hf.get(_TIES), bool(_text(hf).get(_TIES))
    if whole is not None and bool(whole) != own:
        raise Unsupported(f"config.json: {_TIES} is {whole!r:.60}: SGLang reads that of text_config, {own}")


def _one_rope(hf: HF) -> None:
    """A base beside no rope_parameters is behind those of transformers' own defaults."""
    text = _text(hf)
    is_lost = "rope_parameters" not in text and not text.get("rope_scaling")
    if is_lost and text.get("rope_theta") not in (None, _BASE):
        raise Unsupported(
            f"config.json: text_config: rope_theta is {text['rope_theta']!r:.60} without rope_parameters: "
            f"transformers then turns by {_BASE}"
        )


def _text(hf: HF) -> HF:
    found = hf.get("text_config")
    return found if isinstance(found, Mapping) else {}


def _section(hf: HF, kind: str, defaults: HF, others: HF | None = None) -> Section:
    """Of another `kind` transformers makes another config, which has not what is asked for."""
    a = Section(hf, _AUDIO, defaults)
    if a.get("model_type") not in (None, kind):
        raise Unsupported(f"{a.where}model_type is {a.get('model_type')!r:.60}: SGLang's class reads {kind}")
    for own, other in (others or {}).items():
        if a.get(other) is not None and a.get(other) != a.get(own):
            raise Unsupported(f"{a.where}{other} is {a.get(other)!r:.60}, and {own} {a.get(own)!r:.60}")
    return a


def _whole_ear(a: Section) -> Weights:
    width, inner = a.size("d_model"), a.size("encoder_ffn_dim")
    heads = _whole_heads(a, width, a.size("encoder_attention_heads"))
    ear = chain(
        _convolutions(a, width),
        whole("embed_positions.weight", a.size("max_source_positions"), width),
        layers("layers", a.size("encoder_layers"), _whole_layer(width, heads, heads, inner)),
        layer_norm("layer_norm", width),
    )
    return named(EAR, ear)


def _whole_heads(a: Section, width: int, heads: int) -> int:
    if width % heads:
        raise ConfigError(f"{a.where}{width} cannot be divided among {heads} heads")
    return width


def _joins(a: Section, inner: int, width: int) -> None:
    """As many rows become one as a layer's MLP is times wider."""
    if inner % width:
        raise ConfigError(f"{a.where}intermediate_size is {inner}, no multiple of {width}")


def _convolutions(a: Section, width: int) -> Weights:
    for number, read in enumerate((a.size("num_mel_bins"), width), start=1):
        yield from whole(f"conv{number}.weight", width, read, 3)
        yield from whole(f"conv{number}.bias", width)


def _norms(width: int) -> Weights:
    yield from layer_norm("self_attn_layer_norm", width)
    yield from layer_norm("final_layer_norm", width)


def _whole_layer(width: int, queries: int, keys: int, inner: int) -> Weights:
    yield from _norms(width)
    yield from linear("self_attn.q_proj", queries, width)
    yield from linear("self_attn.k_proj", keys, width, bias=False)
    yield from linear("self_attn.v_proj", keys, width)
    yield from linear("self_attn.out_proj", width, queries)
    yield from linear("mlp.fc1", inner, width)
    yield from linear("mlp.fc2", width, inner)


def _split_layer(width: int, heads: int, inner: int) -> Weights:
    yield from _norms(width)
    yield from column("self_attn.qkv_proj", 3 * width, width, units=heads)
    yield from row("self_attn.out_proj", width, width, units=heads)
    yield from column("mlp.fc1", inner, width)
    yield from row("mlp.fc2", width, inner)
