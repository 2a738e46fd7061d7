"""What Phi-4-multimodal sees and hears with (srt/models/phi4mm.py, phi4mm_audio.py, phi4mm_utils.py): SigLIP
of one size by Idefics 2's class, whatever a file says, and a Conformer that every rank has whole.

Its adapters are in its files, and SGLang leaves them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section, known_section, object_in
from runtime.server.encoders.siglip import patch_embedding, patches, split_blocks
from runtime.server.encoders.weight import EAR, Weights, layer_norm, layers, linear, named, whole
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]

# srt/utils/hf_transformers/config.py: the last layer is cut, and what is behind it.
_SEES = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26, "num_attention_heads": 16,
    "num_channels": 3, "image_size": 448, "patch_size": 14,
}  # fmt: skip
# Of each section: what has to be told so, or may be left out where None is among it; what decides a size;
# what neither.
_FIXED: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "image_embd_layer": {
        "crop_size": (448,), "hd_transform_order": ("sub_glb",), "projection_cls": ("mlp",),
        "image_token_compression_cls": ("avg_pool_2d",), "use_hd_transform": (True,),
        "with_learnable_separator": (True,),
    },
    "audio_embd_layer": {
        "projection_cls": ("mlp",), "use_conv_downsample": (None, False), "use_qformer": (None, False),
    },
    "audio_processor": {"name": ("cascades",)},
    "config": {
        "input_layer": (None, "nemo_conv"), "activation": ("swish",), "conv_activation": ("swish",),
        "conv_glu_type": ("swish",), "batch_norm": (None, False), "bias_in_glu": (None, True),
        "causal": (None, True), "depthwise_multiplier": (None, 1), "ext_pw_kernel_size": (None, 1),
        "chunk_size": (-1,), "left_chunk": (18,),
    },
    "relative_attention_bias_args": {"type": ("t5",), "t5_bias_symmetric": (None, False)},
}  # fmt: skip
_SIZES = {
    "audio_embd_layer": ("downsample_rate",),
    "audio_processor": ("config",),
    "config": (
        *("input_size", "attention_dim", "attention_heads", "linear_units", "num_blocks", "kernel_size"),
        *("time_reduction", "ext_pw_out_channel", "depthwise_seperable_out_channel", "nemo_conv_settings"),
        *("encoder_embedding_config", "relative_attention_bias_args"),
    ),
    "encoder_embedding_config": ("input_size",),
    "nemo_conv_settings": ("conv_channels",),
    "relative_attention_bias_args": ("t5_bias_max_distance",),
}
_IDLE = {
    "image_embd_layer": ("embedding_cls", "enable_gradient_checkpointing"),
    "audio_embd_layer": (
        *("compression_rate", "embedding_cls", "enable_gradient_checkpointing", "freeze_audio_processor"),
    ),
    "config": ("activation_checkpointing", "cnn_layer_norm", "dropout_rate"),
}
# What its config class or a Llama's layers would read, which its files have not or have so.
_UNTOLD: HF = {
    **dict.fromkeys(("n_embd", "img_processor", "text_config", "vision_config", "rope_parameters"), (None,)),
    **dict.fromkeys(("attention_bias", "mlp_bias", "lm_head_bias", "bias"), (None, False)),
    **dict.fromkeys(("full_attn_mod", "interpolate_factor"), (None, 1)),
    **{"rope_is_neox_style": (None, True), "is_hybrid_swa": (None, False)},
}
_FACTORS = ("short_factor", "long_factor")
_RENAMED = (
    "base_layer",
    "q_proj",
    "k_proj",
    "v_proj",
    "gate_proj",
)  # what stands in no name of a text's matrix
_PLACES, _TAPS = 5000, 3
_REDUCTIONS = (2, 4, 8, 16)


def phi4mm(hf: HF, text_width: int) -> Weights:
    _check(hf)
    layer = object_in(hf, "embd_layer")
    _known(layer, "image_embd_layer")
    yield from named("vision_encoder", _eye(Section({}, defaults=_SEES), text_width))
    sounds = _known(layer, "audio_embd_layer")
    rate = sounds.size("downsample_rate") if "downsample_rate" in layer["audio_embd_layer"] else 1
    processor = object_in(hf, "audio_processor")
    _known(hf, "audio_processor")
    a = _known(processor, "config")
    told = object_in(processor, "config")
    yield from named(EAR, named("encoder", _ear(a, told)))
    yield from named(EAR, _joined(rate * a.size("attention_dim"), text_width))


def _check(hf: HF) -> None:
    for name, known in _UNTOLD.items():
        if hf.get(name) not in known:
            raise Unsupported(f"config.json: {name} is {hf[name]!r:.60}: published files have {known[-1]!r}")
    renamed = next((one for one in _RENAMED if one in str(hf.get("quantization_config"))), None)
    if renamed is not None:
        raise Unsupported(f"quantization_config: what {renamed} means by SGLang's names is not known here")
    rope = hf.get("rope_scaling")
    if rope is None:
        return
    if not isinstance(rope, Mapping) or set(rope) != {"type", *_FACTORS} or rope["type"] != "longrope":
        known = " and ".join(_FACTORS)
        raise Unsupported(
            f"config.json: rope_scaling is {rope!r:.60}: here is a longrope by its {known} alone"
        )


def _known(hf: HF, name: str) -> Section:
    return known_section(hf, name, _FIXED.get(name, {}), (*_SIZES.get(name, ()), *_IDLE.get(name, ())))


def _eye(v: Section, text_width: int) -> Weights:
    width = v.size("hidden_size")
    tower = chain(
        patch_embedding(v, width),
        whole("embeddings.position_embedding.weight", patches(v), width),
        split_blocks(v, width),
    )
    yield from named("img_processor", tower)
    yield from whole("glb_GN", 1, 1, width)
    yield from whole("sub_GN", 1, 1, 1, width)
    yield from linear("img_projection.0", text_width, width)
    yield from linear("img_projection.2", text_width, text_width)


def _joined(read: int, text_width: int) -> Weights:
    """Twice: of sounds alone, and of those beside images."""
    for name in ("audio_projection", "audio_projection_for_vision"):
        yield from linear(f"{name}.0", text_width, read)
        yield from linear(f"{name}.2", text_width, text_width)


def _ear(a: Section, told: HF) -> Weights:
    """Its table of places is kept beside its weights, and a number of its dtype."""
    width, heads = a.size("attention_dim"), a.size("attention_heads")
    _check_widths(a, width, heads)
    bands, bias = _known(told, "encoder_embedding_config"), _known(told, "relative_attention_bias_args")
    if bands.size("input_size") != a.size("input_size"):
        raise ConfigError(
            f"{bands.where}input_size is {bands.size('input_size')}: its Conformer reads another"
        )
    for name in ("global_mean", "global_invstd"):
        yield from whole(f"encoder_embedding.{name}", a.size("input_size"))
    channels = _known(told, "nemo_conv_settings").size("conv_channels")
    yield from named("embed", _sampled(a, channels, width))
    yield from whole("pos_emb.pe", 1, _PLACES, width)
    distances = 2 * bias.size("t5_bias_max_distance")
    yield from whole("relative_attention_bias_layer.bias_values.weight", distances, heads)
    yield from layers("encoders", a.size("num_blocks"), _block(a, width))
    yield from whole("dev_type")


def _check_widths(a: Section, width: int, heads: int) -> None:
    if width % heads or width % 2:
        raise ConfigError(f"{a.where}attention_dim {width} cannot be divided among {heads} heads, or by two")
    for name in ("ext_pw_out_channel", "depthwise_seperable_out_channel"):
        if a.size(name) != width:
            raise Unsupported(
                f"{a.where}{name} is {a.size(name)}: here are as many as attention_dim, {width}"
            )
    if a.size("time_reduction") not in _REDUCTIONS:
        known = ", ".join(map(str, _REDUCTIONS))
        raise Unsupported(f"{a.where}time_reduction is {a.size('time_reduction')}: here are {known}")


def _sampled(a: Section, channels: int, width: int) -> Weights:
    """Each convolution halves what it is given: moments, and bands."""
    bands = a.size("input_size")
    for number in range(a.size("time_reduction").bit_length() - 1):
        bands = (bands + 1) // 2
        yield from whole(f"conv.{number}.weight", channels, 1, _TAPS, _TAPS)
        yield from whole(f"conv.{number}.bias", channels)
        if number:
            yield from whole(f"conv.{number}.pointwise.weight", channels, channels, 1, 1)
            yield from whole(f"conv.{number}.pointwise.bias", channels)
    yield from linear("out", width, channels * bands)


def _block(a: Section, width: int) -> Weights:
    for name in ("feed_forward_in", "feed_forward_out"):
        yield from layer_norm(f"{name}.layer_norm", width)
        yield from linear(f"{name}.net.0.linear", 2 * a.size("linear_units"), width)
        yield from linear(f"{name}.net.2", width, a.size("linear_units"))
    for name in ("linear_q", "linear_k", "linear_v", "linear_out"):
        yield from linear(f"self_attn.{name}", width, width)
    yield from named("conv", _convolved(width, a.size("kernel_size")))
    yield from layer_norm("layer_norm_att", width)
    yield from layer_norm("layer_norm", width)


def _convolved(width: int, taps: int) -> Weights:
    """By each moment alone twice, once of them gated, and between by each channel alone."""
    yield from layer_norm("layer_norm", width)
    yield from linear("glu.ext_pw_conv_1d", 2 * width, width)
    for name in ("b1", "b2"):
        yield from whole(f"glu.{name}", 1, width, 1)
    yield from linear("ext_pw_conv_1d", width, width)
    yield from whole("dw_sep_conv_1d.dw_conv.weight", width, 1, taps)
    yield from whole("dw_sep_conv_1d.dw_conv.bias", width)
    yield from linear("dw_sep_conv_1d.pw_conv", width, width)
