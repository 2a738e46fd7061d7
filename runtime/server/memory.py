"""What a server keeps free of weights and KV cache, and the sizes that follow from the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.after_capture import is_sized_after_capture
from runtime.server.architectures import ENCODERS, MINIMAX_M3, MUSE_SPARK, QWEN3_VL_TYPES
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.graphs import settle_graph_sizes
from runtime.server.releases import Release
from runtime.server.traits import has_dp_attention, is_mla, is_multimodal

_LARGE_MIB, _LEAST_MIB = 60 * 1024, 10 * 1024
_MIB_A_TOKEN, _FEWEST_TOKENS = 1.5, 2048
_DEEPEP_MIB, _DEEPEP_PREFILL_MIB, _MLA_GRAPHS_MIB = 2048, 1024, 1536
_ENCODER_AFTER_CAPTURE_MIB = 8192
_DRAFT_MIB, _DRAFTS_APART = 4096, {"STANDALONE": 6144, "NGRAM": 0}
# ViT-L/14, by which SGLang measures an encoder.
_USUAL_LAYERS, _USUAL_WIDTH = 24, 1024
_USUALS_CLASS = "llava"  # which transformers' class makes where a file has none
# Of SGLang's config class, where a file says none of it.
_MUSE_SPARKS = 50, 1536
_WIDEST_QWEN3_VL = 512


@dataclass(frozen=True, slots=True)
class GpuDefaults:
    chunked_prefill_size: int
    decode_graph_max_bs: int


def settle_memory(c: Choices) -> None:
    defaults = gpu_defaults(c.gpu.memory_mib, c.tp_size, c.release)
    gpu = f"a GPU of {c.gpu.memory_mib:,} MiB" if c.gpu.memory_mib else "no GPU"
    if c.chunked_prefill_size is None:
        c.settle(gpu, chunked_prefill_size=defaults.chunked_prefill_size)
    if c.decode.max_bs is None:
        c.decode.limit = f"as large as {gpu} gets at tp {c.tp_size}"
        c.decode.max_bs = _decode_top(c, defaults.decode_graph_max_bs)
    settle_graph_sizes(c)
    if c.mem_fraction_static is None:
        _settle_fraction(c)
    elif not 0 < c.mem_fraction_static < 1:
        share = c.mem_fraction_static
        raise ConfigError(f"--mem-fraction-static {share} is no share of the GPU's memory", "between 0 and 1")


def gpu_defaults(gpu_mib: float, tp: int, release: Release) -> GpuDefaults:
    wide = tp >= 4
    if not gpu_mib:
        return GpuDefaults(4096, 160)
    if gpu_mib < 20 * 1024:
        return GpuDefaults(2048, 8)
    if gpu_mib < 35 * 1024:
        few, many = release.small_gpu_graphs
        return GpuDefaults(release.small_gpu_chunk, many if wide else few)
    if gpu_mib < _LARGE_MIB:
        return GpuDefaults(4096, 160 if wide else 32)
    if gpu_mib < 160 * 1024:
        return GpuDefaults(8192, 512 if wide else 256)
    return GpuDefaults(16384, 512)


def _decode_top(c: Choices, default: int) -> int:
    requests: int | None = c.max_running_requests
    if requests is None:
        return default
    top = min(default, requests) if c.release.requests_cap_decode_graphs else default
    if is_large_hopper_qwen3_vl(c) and "sizes" not in c.decode.locked and requests <= _WIDEST_QWEN3_VL:
        top = max(top, requests)
    if top != default:
        c.decode.limit = "as large as --max-running-requests"
    return top


def is_large_hopper_qwen3_vl(c: Choices) -> bool:
    large = c.gpu.major == 9 and c.gpu.memory_mib >= _LARGE_MIB
    known = c.release.has_qwen3_vl_defaults and c.model.model_type in QWEN3_VL_TYPES
    return large and known and is_multimodal(c)


def _settle_fraction(c: Choices) -> None:
    total = c.gpu.memory_mib
    if total:
        reserved = _reserved(c)
        fraction = round((total - sum(reserved.values())) / total, 3)
        kept = ", ".join(f"{what} {mib:,.0f}" for what, mib in reserved.items() if mib)
        rule = f"kept free of {total:,} MiB: {kept}"
    else:
        fraction, rule = c.release.fraction_without_gpu, "no GPU"
    c.settle(rule, mem_fraction_static=fraction)
    c.settle("a multimodal model's encoder", mem_fraction_static=_beside_encoder(c, fraction))


def _reserved(c: Choices) -> dict[str, float]:
    """MiB that are left for what runs beside the weights and the KV cache."""
    if is_sized_after_capture(c):
        return {"the least": 1536, "ranks": c.tp_size * c.pp_size / 8 * 1024}
    mib = {
        "activations": 512 + _activation_tokens(c) * _MIB_A_TOKEN,
        "ranks": c.tp_size * c.pp_size / 8 * 1024,
        **_graphs_mib(c),
    }
    if c.gpu.memory_mib > _LARGE_MIB and sum(mib.values()) < _LEAST_MIB:
        mib = {"the least on a large GPU": _LEAST_MIB}
    if c.release.reserves_for_drafts and c.speculative_algorithm is not None:
        mib["drafts"] = _DRAFTS_APART.get(c.speculative_algorithm, _DRAFT_MIB)
    if c.release.reserves_by_role and c.moe_a2a_backend == "deepep" and _decodes_in_graphs(c):
        mib["DeepEP"] = _DEEPEP_MIB
    return mib


def _activation_tokens(c: Choices) -> int:
    if c.release.reserves_by_role and c.disaggregation_mode == "decode":
        requests = c.max_running_requests or c.decode.max_bs or 1
        return max(requests * (c.speculative_num_draft_tokens or 1), _FEWEST_TOKENS)
    chunk = c.chunked_prefill_size if c.chunked_prefill_size > 0 else c.max_prefill_tokens
    return max(chunk, _FEWEST_TOKENS)


def _graphs_mib(c: Choices) -> dict[str, float]:
    assert c.decode.max_bs is not None and c.prefill.sizes is not None
    by_role, top = c.release.reserves_by_role, c.decode.max_bs
    mib: dict[str, float] = {}
    if not by_role or _decodes_in_graphs(c):
        mib["decode graphs"] = top * 2
    if has_dp_attention(c) and not (by_role and c.disaggregation_mode == "prefill"):
        mib["DP attention"] = top * c.attn_dp_size * (4.5 if top > 300 else 3)
    if c.prefill.is_on and not (by_role and c.disaggregation_mode == "decode"):
        mib["prefill graphs"] = _MLA_GRAPHS_MIB if is_mla(c) else len(c.prefill.sizes) * 8
        if (
            c.release.aligns_deepep_graphs
            and c.prefill.backend == "breakable"
            and c.moe_a2a_backend == "deepep"
        ):
            mib["DeepEP's prefill"] = _DEEPEP_PREFILL_MIB
    return mib


def _decodes_in_graphs(c: Choices) -> bool:
    return c.disaggregation_mode != "prefill" and c.decode.is_on


def _has_encoder(c: Choices) -> bool:
    if c.language_only or c.language_model_only or not is_multimodal(c):
        return False
    return c.disaggregation_mode != "decode" or c.release.pd_decode_has_encoder


def _encoder(c: Choices) -> tuple[int, int] | None:
    """Layers, and how wide they are."""
    if c.model.architecture in ENCODERS:
        return ENCODERS[c.model.architecture]
    has_usual = c.model.architecture != MUSE_SPARK
    if c.model.hf.get("vision_config") is None and has_usual:
        return (_USUAL_LAYERS, _USUAL_WIDTH) if c.model.model_type == _USUALS_CLASS else None
    # Its class keeps the member a dict, without these as attributes; before, transformers' has them.
    if c.model.architecture in MINIMAX_M3 and c.release.has_minimax_m3:
        return _USUAL_LAYERS, _USUAL_WIDTH
    layers, width = (_USUAL_LAYERS, _USUAL_WIDTH) if has_usual else _MUSE_SPARKS
    layers = c.model.whole("num_hidden_layers", layers, within="vision_config")
    return layers, c.model.whole("hidden_size", width, within="vision_config")


def _beside_encoder(c: Choices, fraction: float) -> float:
    """A multimodal model's encoder runs in what is left free."""
    if not _has_encoder(c):
        return fraction
    if is_sized_after_capture(c):
        total = c.gpu.memory_mib
        return fraction - _ENCODER_AFTER_CAPTURE_MIB / total if total else fraction
    size = _encoder(c)
    if size is None:
        return fraction
    layers, width = size
    ratio = layers * width**2 / (_USUAL_LAYERS * _USUAL_WIDTH**2)
    return fraction * 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0)))
