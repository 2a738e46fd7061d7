"""Where Inkling ends: most of it is asked of its file alone.

srt/configs/inkling.py, models/inkling.py, models/inkling_common, and get_hybrid_layer_ids of
configs/model_config.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runtime.server.checkpoint import Checkpoint
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.undivided import undivided

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# What SGLang's config classes take where a file is silent.
_LAYERS, _WIDTH, _EXPERT_WIDTH, _HEADS, _KV_HEADS = 16, 1536, 768, 12, 4
_PATCH, _SEEING_LAYERS = 16, 1
_CLASS = "InklingForConditionalGeneration"
_ATTENTION, _BY_PHASE = ("fa4", "triton"), (0, 5, 18)
_WEIGHTS = ("modelopt_quant_config", "quant_cfg", "*weight_quantizer")


def ends_of_inkling(deployment: Deployment) -> Iterator[str]:
    checkpoint = checkpoint_of(deployment)
    if checkpoint.architecture != _CLASS or deployment.server.is_draft:
        return
    if checkpoint.model_type != "inkling_mm_model":
        yield f"model_type is {checkpoint.model_type!r}: SGLang's Inkling reads an inkling_mm_model"
    if deployment.parallel.pp > 1:
        yield "SGLang's Inkling has no pipeline stages: --pp-size 1"
    text = Checkpoint(checkpoint.mapping("text_config"))
    yield from _caches(deployment)
    yield from _attention(deployment)
    yield from _windows(text, deployment.server.page_size)
    yield from _heads(text, deployment.parallel.attn_tp)
    yield from _widths(text, deployment)
    yield from _storage(checkpoint)
    if deployment.server.asked.enable_multimodal:
        yield from _towers(checkpoint)


def _caches(deployment: Deployment) -> Iterator[str]:
    """A server that decodes for others keeps no prefixes of its own."""
    server = deployment.server
    if server.is_pd_decode:
        return
    if not server.states.extra_buffer:
        yield (
            "SGLang's Inkling keeps prefixes, and states of them in an extra buffer: "
            "--mamba-radix-cache-strategy extra_buffer without --disable-radix-cache"
        )
    if server.asked.others.get("disable_hybrid_swa_memory"):
        yield "SGLang's Inkling keeps windows apart: it does not go with --disable-hybrid-swa-memory"


def _attention(deployment: Deployment) -> Iterator[str]:
    """Of flags that tell two, releases before 0.5.18 look at the one that is for both."""
    server, asked = deployment.server, deployment.server.asked
    used = {"prefill": server.prefill_attention_backend, "decode": server.decode_attention_backend}
    if server.release.number < _BY_PHASE and (
        asked.prefill_attention_backend or asked.decode_attention_backend
    ):
        used = dict.fromkeys(used, asked.attention_backend or "triton")
    for role, backend in used.items():
        runs = server.disaggregation_mode in ("null", role)
        if runs and backend not in _ATTENTION:
            yield f"Inkling attends on fa4 and triton alone, and not on {backend}: --attention-backend triton"


def _windows(text: Checkpoint, page: int) -> Iterator[str]:
    layers, told = text.whole("num_hidden_layers", _LAYERS), text.get("local_layer_ids")
    local = _listed(told)
    if not isinstance(told, list | None) or not all(type(one) is int and 0 <= one < layers for one in local):
        yield f"local_layer_ids is {repr(told)[:60]}: SGLang asks for numbers of {layers} layers"
    elif len(set(local)) != len(local):
        yield "local_layer_ids names a layer twice, which SGLang does not take"
    elif not local:
        yield "local_layer_ids names no layer: SGLang's pools want one behind a window"
    elif len(local) == layers and page > 1:
        yield f"all layers are behind windows: SGLang's pool of them takes no pages of {page}: --page-size 1"


def _listed(told: Any) -> list[Any]:
    return told if isinstance(told, list) else []


def _heads(text: Checkpoint, ranks: int) -> Iterator[str]:
    heads = text.whole("num_attention_heads", _HEADS, low=1)
    kv_heads = text.whole("num_key_value_heads", _KV_HEADS, low=1)
    local = (
        text.whole("swa_num_attention_heads", heads, low=1),
        text.whole("swa_num_key_value_heads", kv_heads, low=1),
    )
    layers, windows = text.whole("num_hidden_layers", _LAYERS), len(_listed(text.get("local_layer_ids")))
    kinds = {"": (heads, kv_heads, windows < layers), " behind windows": (*local, windows > 0)}
    for where, (queries, keys, are_there) in kinds.items():
        if are_there:
            yield from undivided(queries, keys, ranks, where)


def _widths(text: Checkpoint, deployment: Deployment) -> Iterator[str]:
    parallel, experts = deployment.parallel, text.whole("n_routed_experts", 0)
    width, attended = text.whole("hidden_size", _WIDTH, low=1), parallel.attn_tp
    narrow = text.whole("intermediate_size", _EXPERT_WIDTH, low=1)
    layers, dense = text.whole("num_hidden_layers", _LAYERS), text.whole("dense_mlp_idx", 0)
    split = parallel.moe_tp // deployment.server.asked.moe_dp_size
    wide = text.whole("dense_intermediate_size", narrow, low=1)
    if min(dense, layers) and wide % attended:
        yield f"dense_intermediate_size is {wide}, no multiple of {attended} ranks"
    if dense < layers and experts % parallel.moe_ep:
        yield f"{experts} experts cannot be divided among {parallel.moe_ep} ranks"
    if dense < layers and narrow % split:
        yield f"intermediate_size is {narrow}, no multiple of {split} ranks"
    if deployment.server.asked.others.get("enable_scattered_sconv"):
        if not text.get("use_sconv"):
            yield "--enable-scattered-sconv needs convolutions, and use_sconv is not told"
        if width % attended:
            yield f"--enable-scattered-sconv: hidden_size is {width}, no multiple of {attended} ranks"


def _storage(checkpoint: Checkpoint) -> Iterator[str]:
    """Its class looks for what ModelOpt was asked to do, in whatever section a file has."""
    section: Any = _section(checkpoint)
    if section is None:
        return
    if isinstance(section, Mapping) and "quantization" in section:
        section = section["quantization"]
    for name in _WEIGHTS:
        if not isinstance(section, Mapping) or name not in section:
            yield f"quantization_config has no {'.'.join(_WEIGHTS)}, which SGLang's Inkling reads"
            return
        section = section[name]


def _section(checkpoint: Checkpoint) -> Any:
    whole, text = checkpoint.hf, checkpoint.mapping("text_config")
    told = (
        whole.get("quantization_config"),
        text.get("quantization_config"),
        whole.get("compression_config"),
    )
    return next((one for one in told if one is not None), checkpoint.quant_file or None)


def _towers(checkpoint: Checkpoint) -> Iterator[str]:
    audio, vision = (Checkpoint(checkpoint.mapping(name)) for name in ("audio_config", "vision_config"))
    if audio.has("decoder_dmodel") and audio.get("audio_mode", "dmel") != "dmel":
        yield f"audio_config: audio_mode is {repr(audio.get('audio_mode'))[:60]}: SGLang has dmel alone"
    if not vision.has("decoder_dmodel"):
        return
    kind = vision.get("vision_encoder_type", "hmlp")
    if kind != "hmlp":
        yield f"vision_config: vision_encoder_type is {repr(kind)[:60]}: SGLang has hmlp alone"
    for name, usual, least in (("patch_size", _PATCH, 2), ("n_layers", _SEEING_LAYERS, 1)):
        told = vision.whole(name, usual)
        if told < least:
            yield f"vision_config: {name} is {told}: SGLang asks for {least} at least"
