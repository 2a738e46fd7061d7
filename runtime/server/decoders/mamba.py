"""Mamba, Falcon Mamba and Mamba-2: layers that have a mixer each and nothing else, and no attention."""

from __future__ import annotations

from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.granite_hybrid import without_step_limits
from runtime.server.decoders.parts import everywhere, model
from runtime.server.errors import ConfigError
from runtime.server.recurrent import Mamba2Config
from runtime.server.selective_scan import SelectiveScanConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames("backbone.layers", "backbone.embeddings", "backbone.norm_f", recurrent="mixer")
_TOKENS = 2048  # what SGLang takes where a file tells no length, and no class of these has one
_A_STEP = 16  # columns of a row for each of what a step is made of, where a file says "auto"


def _mamba(f: Fields) -> ModelConfig:
    return _of_mixers(f, _scan(f))


def _falcon_mamba(f: Fields) -> ModelConfig:
    return _of_mixers(f, _scan(f, norm_eps=f.positive("mixer_rms_eps")))


def _mamba2(f: Fields) -> ModelConfig:
    """srt/models/mamba2.py asks for a head of its own and does not tie it, and for a width and norms by
    fields that transformers' class has no more: keys/uncounted_ends.py."""
    f.only("tie_word_embeddings", False)
    f.only("rms_norm", True)
    return _of_mixers(f, _heads(f))


def _of_mixers(f: Fields, mixer: SelectiveScanConfig | Mamba2Config) -> ModelConfig:
    return model(
        f,
        {},
        everywhere(f, "recurrent"),
        everywhere(f, "none"),
        rms_eps=f.number("layer_norm_epsilon"),
        norms="alone",
        names=_NAMES,
        recurrent=mixer,
        intermediate_size=0,
        max_position=_TOKENS,
    )


def _scan(f: Fields, **own: Any) -> SelectiveScanConfig:
    hidden = f.size("hidden_size")
    told = f.get("time_step_rank")
    return SelectiveScanConfig(
        channels=f.size("intermediate_size", f.size("expand") * hidden),
        state_size=f.size("state_size"),
        conv_kernel=f.size("conv_kernel"),
        step_rank=-(-hidden // _A_STEP) if told == "auto" else f.size("time_step_rank"),
        conv_bias=f.flag("use_conv_bias"),
        bias=f.flag("use_bias"),
        **own,
    )


def _heads(f: Fields) -> Mamba2Config:
    without_step_limits(f)
    count, width = f.size("num_heads"), f.size("head_dim")
    inner = f.size("expand") * f.size("hidden_size")
    if count * width != inner:
        raise ConfigError(f"config.json: num_heads is {count}: heads of {width} are not {inner} together")
    told = f.size("intermediate_size", inner)
    if told != inner:
        f.cannot(f"intermediate_size is {told}, by which SGLang makes a mixer, and its heads are {inner}")
    return Mamba2Config(
        num_heads=count,
        head_dim=width,
        num_groups=f.size("n_groups"),
        state_size=f.size("state_size"),
        conv_kernel=f.size("conv_kernel"),
        conv_bias=f.flag("use_conv_bias"),
        bias=f.flag("use_bias"),
        least_step=0.0,
        chunk=f.size("chunk_size"),
    )


_USUAL = {"layer_norm_epsilon": 1e-5, "expand": 2, "conv_kernel": 4, "use_conv_bias": True}
_DEFAULTS = {
    **_USUAL,
    "vocab_size": 50280,
    "hidden_size": 768,
    "state_size": 16,
    "num_hidden_layers": 32,
    "hidden_act": "silu",
    "time_step_rank": "auto",
    "tie_word_embeddings": True,
}
_DEFAULTS_2 = {
    **_USUAL,
    "vocab_size": 32768,
    "hidden_size": 4096,
    "num_hidden_layers": 64,
    "num_heads": 128,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 8,
    "hidden_act": "silu",
    "chunk_size": 256,
}

FAMILIES = (
    Family("mamba", _mamba, _DEFAULTS),
    Family("falcon_mamba", _falcon_mamba, {**_DEFAULTS, "mixer_rms_eps": 1e-6}),
    Family("mamba2", _mamba2, _DEFAULTS_2),
)
