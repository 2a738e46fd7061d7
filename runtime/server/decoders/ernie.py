"""ERNIE 4.5's text models, dense or of experts, and that of ERNIE 4.5 VL, whose experts are for text or for
images: pairs of neighbours are turned. In PaddleOCR-VL's, halves are."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.of_transformers import ERNIE as OF_TRANSFORMERS
from runtime.server.decoders.parts import MLPS, everywhere, heads, model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig

_ALL_BEFORE = {"full_attention": "full"}


def _dense(f: Fields) -> ModelConfig:
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "dense"))


def _paddle_ocr(f: Fields) -> ModelConfig:
    """What its file leaves out, its own class and transformers' say otherwise."""
    if f.get("rope_is_neox_style") is not True:
        f.cannot("rope_is_neox_style is not true: SGLang then turns neighbours, and transformers halves")
    if not f.tells("rope_theta") and "rope_theta" not in f.section("rope_parameters"):
        f.cannot("rope_theta is missing: what it is then, the checkpoint's own class says")
    f.only("use_bias", False)
    f.per_layer("layer_types", f.size("num_hidden_layers"), _ALL_BEFORE)
    attention = heads(f, theta=500000.0)
    return model(f, {"full": attention}, everywhere(f, "full"), everywhere(f, "dense"))


def _of_experts(f: Fields) -> ModelConfig:
    f.only("moe_norm_min", 1e-12)
    inner = f.size("moe_intermediate_size")
    moe = MoEConfig(
        num_experts=f.size(f.spelled("moe_num_experts", "num_experts")),
        top_k=f.size(f.spelled("moe_k", "num_experts_per_tok")),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("moe_num_shared_experts"),
        correction_bias=True,
        correction_in_fp32=False,
    )
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), _mlps(f), moe=moe)


def _beside_images(f: Fields) -> ModelConfig:
    f.only("moe_norm_min", 1e-12)
    experts, inner = _pair(f, "moe_num_experts"), _pair(f, "moe_intermediate_size")
    if experts[0] != experts[1]:
        raise ConfigError(f"config.json: moe_num_experts is {list(experts)}: as many for text as for images")
    moe = MoEConfig(
        num_experts=experts[0],
        top_k=f.size(f.spelled("moe_k", "num_experts_per_tok")),
        intermediate_size=inner[0],
        image_intermediate_size=inner[1],
        shared_intermediate_size=inner[0] * f.count("moe_num_shared_experts"),
        correction_bias=True,
        router_in_fp32=True,
    )
    attention = _attention(f)
    _of_places(f, attention.head_dim // 2)
    return model(f, {"full": attention}, everywhere(f, "full"), _mlps_of_two(f), moe=moe)


def _pair(f: Fields, name: str) -> tuple[int, int]:
    """For text, and for images."""
    told = f.get(name)
    both = told if isinstance(told, list) else [told, told]
    if len(both) != 2:
        raise ConfigError(f"config.json: {name} is {told!r:.60}: two numbers are needed")
    return f.checked_size(name, both[0]), f.checked_size(name, both[1])


def _of_places(f: Fields, pairs: int) -> None:
    """What SGLang turns by time; the others go by height and by width, in turn."""
    by_time = f.count("freq_allocation")
    if by_time > pairs or (pairs - by_time) % 2:
        f.cannot(f"freq_allocation is {by_time}: heights and widths cannot share {pairs - by_time} pairs")


def _mlps_of_two(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    told = f.per_layer("mlp_layer_types", layers, MLPS)
    if not f.tells("moe_layer_start_index"):
        return which(layers, lambda i: i > 0) if told is None else told
    starts, ends = _layers_of(f, "moe_layer_start_index", 0), _layers_of(f, "moe_layer_end_index", layers - 1)
    every = f.size("moe_layer_interval", 1)
    first, last = min(starts), max(ends)
    found = which(layers, lambda i: first <= i <= last and (i + 1) % every == 0)
    of_both = range(max(starts), min(ends) + 1)
    if any(kind == "moe" and layer not in of_both for layer, kind in enumerate(found)):
        f.cannot("moe_layer_start_index, moe_layer_end_index: layers with experts of one kind alone")
    return found


def _layers_of(f: Fields, name: str, otherwise: int) -> tuple[int, int]:
    told = f.get(name)
    both = [otherwise] * 2 if told is None else told
    if not isinstance(both, list) or len(both) != 2 or not all(type(one) is int for one in both):
        raise ConfigError(f"config.json: {name} is {told!r:.60}: two layers are needed")
    return both[0], both[1]


def _attention(f: Fields) -> AttentionConfig:
    f.only("use_bias", False)
    return heads(f, theta=500000.0, is_interleaved=True)


def _mlps(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    first, every = f.count("moe_layer_start_index"), f.size("moe_layer_interval")
    end = -1 if f.get("moe_layer_end_index") == -1 else f.count("moe_layer_end_index")
    last = layers if end == -1 else end
    kinds = which(layers, lambda i: first <= i <= last and (i + 1) % every == 0)
    if kinds != which(layers, lambda i: first <= i <= end and (i - first) % every == 0):
        f.cannot(
            f"moe_layer_start_index {first}, moe_layer_end_index {end}, moe_layer_interval {every}: "
            "SGLang counts other layers by them than transformers"
        )
    return kinds


_COMMON = {"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}

FAMILIES = (
    Family(
        "ernie4_5",
        _dense,
        {**_COMMON, "intermediate_size": 3072, "num_key_value_heads": 2, "head_dim": 128},
        {"Ernie4_5ForCausalLM": OF_TRANSFORMERS},
    ),
    Family(
        "paddleocr_vl_text",
        _paddle_ocr,
        {**_COMMON, "intermediate_size": 3072, "num_key_value_heads": 2, "head_dim": 128},
    ),
    Family(
        "ernie4_5_moe",
        _of_experts,
        {
            **_COMMON,
            "intermediate_size": 12288,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 1536,
            "moe_k": 6,
            "moe_num_experts": 64,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": -1,
            "moe_layer_interval": 1,
        },
    ),
    Family(
        "ernie4_5_vl_moe_text",
        _beside_images,
        {
            **_COMMON,
            "intermediate_size": 12288,
            "num_key_value_heads": 4,
            "moe_intermediate_size": [1536, 512],
            "moe_k": 6,
            "moe_num_experts": 64,
            "moe_num_shared_experts": 2,
            "freq_allocation": 20,
        },
    ),
)
