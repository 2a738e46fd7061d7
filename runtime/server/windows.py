"""What SGLang tells its attention of layers that see the last tokens alone: resolve_sliding_window_size of
srt/model_executor, by a method of a model's class, or by the pool that such layers have."""

from __future__ import annotations

from runtime.server.attention_buffers import Windows
from runtime.server.config import ModelConfig
from runtime.server.recurrent import StateRules
from runtime.server.releases import Release
from runtime.server.sizing import has_window_pool, windows_alone

# Whose classes tell their window whatever pools they have: get_attention_sliding_window_size of srt/models.
_TELLING = frozenset({
    "afmoe", "beam", "diffusion_gemma_text", "embedding_gemma", "exaone4", "exaone_moe", "gemma2",
    "gemma3_text", "gemma3n_text", "gemma4_text", "gpt_oss", "inkling_model", "jet_nemotron", "mellum",
    "muse_glimmer_text", "muse_spark_text", "olmo2", "olmo3", "spark2_5",
})  # fmt: skip


def windows_of(model: ModelConfig) -> Windows:
    kinds = model.attention.values()
    chunk = next((kind.chunk for kind in kinds if kind.chunk is not None), None)
    apart = has_window_pool(model) or windows_alone(model, range(model.num_layers))
    told = [kind.window for kind in kinds if kind.window is not None]
    tells = model.model_type in _TELLING or _drafts_blocks(model)
    if told and (apart or tells):
        return Windows(max(told), apart, chunk)
    return Windows(chunk, apart, chunk)


def _drafts_blocks(model: ModelConfig) -> bool:
    return model.fusion is not None and model.fusion.drafts_block


def bounds_windows(release: Release, requests: int | None, states: StateRules) -> bool:
    """The pool of layers behind a window, if the model has one, is then no share of the other; `requests`: as
    many as were asked for."""
    return release.bounds_windows_by_requests and requests is not None and not states.keeps_prefixes
