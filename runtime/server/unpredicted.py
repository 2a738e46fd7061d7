"""Starts of DeepSeek-V4, Qwen4, DiffusionGemma, Muse Spark, Inkling, EmbeddingGemma, Jet-Nemotron,
MiniCPM-SALA, of transformers' layers and of MiniMax-M3.1 are known up to their first forward: what that takes
is not, nor are all pools of the first; on Blackwell those of the last up to their attention. So are those
whose decodes are kept to pass back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtime.server.call_rules import gates_residuals
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.flags.spelling import spelled
from runtime.server.recurrent import AddedConvolutionsConfig, DynamicDeltaConfig
from runtime.server.shape import Server
from runtime.server.sizing import packs_pages, pooled_indexer

ATTENTION = "attention backend"
_OTHERWISE: Mapping[str, Callable[[Server], object]] = {
    "speculative_algorithm": lambda s: s.asked.speculative_algorithm,
    "disaggregation_mode": lambda s: s.is_pd_decode,
    "dsv4_attn_backend": lambda s: s.asked.others.get("dsv4_attn_backend") == "trtllm",
    "attn_cp_size": lambda s: s.asked.attn_cp_size > 1,
    "dcp_size": lambda s: s.asked.dcp_size > 1,
    **{
        name: lambda s, name=name: s.asked.others.get(name)  # type: ignore[misc]
        for name in (
            *("enable_hisparse", "enable_deepseek_v4_fp4_indexer", "enable_unified_memory"),
            *("enable_prefill_cp", "enable_prefill_context_parallel", "enforce_shared_experts_fusion"),
            *("enable_dsa_prefill_context_parallel", "enable_nsa_prefill_context_parallel"),
        )
    },
}

# By kernels of their own, or by torch: a request after the other, each with taps of all its tokens
_CONVOLVE_OTHERWISE = (AddedConvolutionsConfig, DynamicDeltaConfig)
_LEARNS = ("gpt2", "gptj", "opt", "orion", "persimmon", "phi", "phi3small", "starcoder2")


def foreign_keys(model: ModelConfig, server: Server) -> str | None:
    """srt/mem_cache/deepseek_v4_memory_pool.py asserts that a key is kept in bytes, as fp8 is."""
    if model.compressed is None or server.kv_cache_dtype == "fp8_e4m3":
        return None
    flag = spelled(server.release, "kv_cache_dtype", server.kv_cache_dtype)
    return f"{flag}: SGLang's pool of compressed keys is of fp8_e4m3 alone"


def unknown_pools(model: ModelConfig, server: Server) -> str | None:
    """Why nobody here knows how large its pools are, or what is there before them."""
    if model.compressed is None:
        return None
    for name, is_asked in _OTHERWISE.items():
        if is_asked(server):
            told = getattr(server.asked, name, server.asked.others.get(name))
            flag = spelled(server.release, name, told)
            return f"{flag}: how large DeepSeek-V4's pools are then, or its draft, is not known here"
    return foreign_keys(model, server)


def knows_forwards(model: ModelConfig) -> bool:
    of_others = model.by_transformers or isinstance(model.recurrent, _CONVOLVE_OTHERWISE)
    experts = model.quantized.experts
    if experts is not None and experts.name == "nvfp4_beside_mxfp8":
        return False
    if gates_residuals(model) or of_others:
        return False
    if model.activation == "gegelu" or model.model_type == "minicpm_sala":
        return False
    sees_both_ways = any(one.both_ways for one in model.attention.values())
    is_usual = model.compressed is None and pooled_indexer(model) is None
    return is_usual and not model.canvas and not sees_both_ways


def knows_starts(model: ModelConfig, runtime: RuntimeConfig) -> bool:
    """srt/models: classes of torch's own norms, whose parameters learn, and whose forward does not say that
    nobody asks for a pass back."""
    keeps = runtime.release.captures_for_backward and bool(runtime.decode_graphs)
    return knows_forwards(model) and not (keeps and model.model_type in _LEARNS)


def unpredicted(model: ModelConfig, runtime: RuntimeConfig, prefills: bool) -> tuple[str, ...]:
    """Phases from the first forward on, of whose kernels nobody here knows what they take: those of
    compressed keys, those of srt/layers/attention/qsa, those of a canvas: srt/dllm, those of
    srt/layers/muse_spark, those of srt/models/inkling_common, those of experts in nvfp4 beside mxfp8, where
    attention on Blackwell is by kernels of MiniMax's own, and torch's own of transformers' layers.

    The `dsv4` backend makes nothing of its own without drafts: __init__ and init_cuda_graph_state of
    srt/layers/attention/deepseek_v4_backend.py, 0.5.12 to 0.5.23.
    """
    if knows_starts(model, runtime):
        return ()
    phases = [ATTENTION, "eager buffers"] if packs_pages(model, runtime.sm_major) else []
    phases += [] if runtime.disable_autotune else ["autotune"]
    phases += ["prefill graphs"] if prefills else []
    phases += ["decode graphs"] if runtime.decode_graphs else []
    opens = runtime.moe_a2a_backend != "none"  # at the first forward, which is then the first request's
    return (*phases, "ready") if phases or opens else ()
