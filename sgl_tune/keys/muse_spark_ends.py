"""Where Muse Spark ends: most of it is asked of its file alone.

srt/configs/muse_spark.py, models/muse_spark.py, models/muse_spark_omni.py, layers/muse_spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from runtime.server.architectures import MUSE_SPARK
from runtime.server.checkpoint import Checkpoint
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.undivided import undivided

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# What SGLang's config classes take where a file is silent.
_LAYERS, _EXPERTS, _MOE_WIDTH, _WIDTH, _STAGES = 62, 256, 4096, 8192, 4
_HEADS = {"num_attention_heads": 128, "num_key_value_heads": 16}
_SEEN = {"hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 16}
_MERGED, _JOINED, _PROJECTED, _SEEING_LAYERS = 2, 6144, 4096, 50
_KINDS: Mapping[str, frozenset[str]] = {
    "layer_types": frozenset({"sliding_attention", "full_attention"}),
    "mlp_layer_types": frozenset({"sparse", "dense"}),
}
_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,9})(?:\D|$)")
_OUTSIDE = ("lm_head", "vision", "audio")
_OF_BLACKWELL, _OF_OTHERS = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "marlin"), ("auto", "marlin")
_MARLIN_TILE, _OTHERWISE = 64, ("lora", "experimental")
_SEEING_KINDS = frozenset({"window_attention", "full_attention"})


def ends_of_muse_spark(deployment: Deployment) -> Iterator[str]:
    checkpoint = checkpoint_of(deployment)
    if checkpoint.architecture != MUSE_SPARK:
        return
    text = _section(checkpoint, "text_config")
    yield from _text(text)
    yield from _storage(deployment)
    yield from _heads(text, deployment.parallel.attn_tp)
    yield from _experts(text, deployment)
    if deployment.quantization == "modelopt_fp4" and _has_packed_experts(checkpoint, text):
        yield from _packed_experts(text, deployment)
    if not deployment.server.asked.language_only:
        hears = _hearing(_section(checkpoint, "audio_config"), text)
        yield from chain(_tower(checkpoint), _split_tower(deployment), hears)


def _section(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """By itself: SGLang's classes look for nothing of it in the whole file."""
    return Checkpoint(checkpoint.mapping(name))


def _text(text: Checkpoint) -> Iterator[str]:
    layers = text.whole("num_hidden_layers", _LAYERS)
    for name in (*_KINDS, "layer_rope_theta"):
        yield from _listed(name, text.get(name), layers, _KINDS.get(name))
    yield from _other("hidden_act", text.get("hidden_act", "silu"), "silu")
    for name in ("attention_bias", "num_shared_experts", "inference_moe_w13_interleaved"):
        if text.get(name):
            yield f"{name} is {repr(text.get(name))[:60]}: SGLang's Muse Spark has none"
    rope = text.section("rope_parameters")
    yield from _other("rope_type", rope.get("rope_type", "default"), "default")
    if text.has("rope_parameters") and "rope_theta" not in rope and not text.has("layer_rope_theta"):
        yield "rope_parameters have no rope_theta, which SGLang reads there without a layer_rope_theta"


def _listed(name: str, told: Any, layers: int, known: frozenset[str] | None) -> Iterator[str]:
    if told is None:
        return
    if not isinstance(told, list) or len(told) != layers:
        said = f"a list of {len(told)}" if isinstance(told, list) else repr(told)[:60]
        yield f"{name} is {said}: SGLang asks for one of {layers}"
    elif known is not None and not all(isinstance(one, str) and one in known for one in told):
        yield f"{name} names others than {' and '.join(sorted(known))}"


def _other(name: str, told: Any, *known: str) -> Iterator[str]:
    if told not in known:
        yield f"{name} is {repr(told)[:60]}: SGLang's Muse Spark has {' or '.join(known)} alone"


def _storage(deployment: Deployment) -> Iterator[str]:
    if deployment.quantization not in (None, "unquant", "modelopt_fp4"):
        yield f"weights in {deployment.quantization}: SGLang has plain ones of Muse Spark, and modelopt_fp4"
    if deployment.parallel.pp > 1:
        yield f"SGLang's {MUSE_SPARK} has no pipeline stages: --pp-size 1"


def _heads(text: Checkpoint, ranks: int) -> Iterator[str]:
    heads, kv_heads = (text.whole(name, usual, low=1) for name, usual in _HEADS.items())
    yield from undivided(heads, kv_heads, ranks)


def _experts(text: Checkpoint, deployment: Deployment) -> Iterator[str]:
    parallel, groups = deployment.parallel, deployment.server.asked.moe_dp_size
    if text.has("mlp_layer_types") and "sparse" not in text.names("mlp_layer_types"):
        return
    ranks = parallel.moe_tp // groups
    if ranks != 1:
        said = f"--ep-size {parallel.ep} splits each expert over {ranks} ranks"
        yield f"{said}, and SGLang's Muse Spark has whole ones alone: --ep-size {parallel.tp}"
    experts = text.whole("num_local_experts", _EXPERTS)
    if experts % parallel.moe_ep:
        yield f"{experts} experts cannot be divided among {parallel.moe_ep} ranks"


def _has_packed_experts(checkpoint: Checkpoint, text: Checkpoint) -> bool:
    """Where a list names layers by numbers, or by how those begin; of any other it is not known here."""
    section = Checkpoint(checkpoint.quantized).section("quantization_config", within_text=False)
    named = (section.get("ignore"), section.get("exclude_modules"), section.get("modules_to_not_convert"))
    listed = [str(one) for names in named if isinstance(names, list) for one in names]
    met = [_LAYER.search(one) for one in listed if not any(word in one for word in _OUTSIDE)]
    plain = tuple(one[1] for one in met if one is not None)
    kinds = text.names("mlp_layer_types") or ("sparse",) * text.whole("num_hidden_layers", _LAYERS)
    packed = (kind == "sparse" and not str(n).startswith(plain) for n, kind in enumerate(kinds))
    return None not in met and any(packed)


def _packed_experts(text: Checkpoint, deployment: Deployment) -> Iterator[str]:
    """layers/muse_spark/muse_spark_fp4_moe.py, whose method takes no kernel by itself on Blackwell."""
    backend, is_blackwell = deployment.server.moe_runner_backend, deployment.server.gpu.major >= 10
    known = _OF_BLACKWELL if is_blackwell else _OF_OTHERS
    if backend not in known and not backend.startswith(_OTHERWISE):
        way = "flashinfer_trtllm" if is_blackwell else "marlin"
        yield f"Muse Spark's experts in nvfp4 do not run on {backend}: --moe-runner-backend {way}"
    for name in ("moe_hidden_size", "moe_intermediate_size"):
        size = text.whole(name, _MOE_WIDTH)
        if size % _MARLIN_TILE and backend in _OF_OTHERS:
            yield f"{name} is {size}: marlin takes multiples of {_MARLIN_TILE} of experts in nvfp4"


def _tower(checkpoint: Checkpoint) -> Iterator[str]:
    vision = _section(checkpoint, "vision_config")
    width, merged = vision.whole("hidden_size", _SEEN["hidden_size"]), vision.whole("merge_size", _MERGED)
    joined = _outer(checkpoint, "out_hidden_size", _JOINED)
    if joined != width * merged**2:
        yield f"out_hidden_size is {joined}: its tower makes rows of {width * merged**2}"
    yield from _other("projector_hidden_act", checkpoint.hf.get("projector_hidden_act", "gelu"), "gelu")
    yield from _other("vision_config: hidden_act", vision.get("hidden_act", "gelu"), "gelu")
    turned = vision.section("rope_parameters").get("rope_type", "axial")
    yield from _other("vision_config: rope_type", turned, "axial", "default")
    layers = vision.whole("num_hidden_layers", _SEEING_LAYERS)
    yield from _listed("vision_config: layer_types", vision.get("layer_types"), layers, _SEEING_KINDS)
    heads = vision.whole("num_attention_heads", _SEEN["num_attention_heads"], low=1)
    if width % heads:
        yield f"vision_config: {width} values cannot be divided among {heads} heads"


def _split_tower(deployment: Deployment) -> Iterator[str]:
    """Over all ranks, but under DP attention, and where it is asked for whole."""
    checkpoint, parallel = checkpoint_of(deployment), deployment.parallel
    if parallel.attn_tp != parallel.tp or deployment.server.encoder != "split":
        return
    vision = _section(checkpoint, "vision_config")
    sizes = {f"vision_config: {name}": vision.whole(name, usual) for name, usual in _SEEN.items()}
    sizes["projector_hidden_size"] = _outer(checkpoint, "projector_hidden_size", _PROJECTED)
    for name, size in sizes.items():
        if size % parallel.tp:
            yield f"{name} is {size}, no multiple of {parallel.tp} ranks: --mm-enable-dp-encoder"


def _hearing(audio: Checkpoint, text: Checkpoint) -> Iterator[str]:
    stages = audio.whole("num_hidden_layers", _STAGES)
    for name in ("patch_sizes", "hidden_sizes", "depths"):
        told = [None] * _STAGES if audio.get(name) is None else audio.get(name)
        yield from _listed(f"audio_config: {name}", told, stages, None)
    yield from _other("audio_config: hidden_act", audio.get("hidden_act", "gelu"), "gelu")
    made, width = audio.whole("out_hidden_size", _WIDTH), text.whole("hidden_size", _WIDTH)
    if made != width:
        yield f"audio_config: out_hidden_size is {made}, and text is {width} wide"


def _outer(checkpoint: Checkpoint, name: str, usual: int) -> int:
    return Checkpoint({name: checkpoint.hf.get(name)}).whole(name, usual)
