"""Attention of drafts: what of it SGLang captures, and what nobody here knows of it."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.block_draft import ALGORITHM
from runtime.server.config import ModelConfig
from runtime.server.own_draft import has_own_draft
from runtime.server.own_layer import layer_of
from runtime.server.releases import Release
from runtime.server.shape import Server
from runtime.server.speculative_config import SpeculativeConfig

_KNOWN = ("triton", "flashinfer", "fa3", "fa4", "trtllm_mha")
_KNOWN_OF_LATENTS = ("triton", "flashinfer", "fa3", "fa4", "flashmla", "trtllm_mla", "dsa")
_AMONG_LAYERS = ".layers.0"  # where SGLang looks for what it captures of prefills


def catches_up_in_graphs(one: SpeculativeConfig, release: Release, latent: bool) -> bool:
    """FlashInfer's for latents is another class, which is in no release's list."""
    if not one.catches_up_by or one.without_overlap:
        return True
    is_another = latent and one.catches_up_by == "flashinfer"
    return one.catches_up_by in release.catches_up_in_graphs and not is_another


def knows_buffers(backends: tuple[str, str], model: ModelConfig) -> bool:
    """What a draft like one of this model's layers holds for its steps, and for catching up."""
    known = _KNOWN if model.mla is None else _KNOWN_OF_LATENTS
    return backends[0] == backends[1] and backends[0] in known


def unknown_of_drafts(server: Server, model: ModelConfig) -> Iterator[str]:
    """A worker of DFLASH's has one backend of its own."""
    by_blocks = server.speculative is not None and server.speculative.algorithm == ALGORITHM
    if server.draft is None or model.compressed is not None or by_blocks:
        return
    backends, is_layer = server.drafting_backends, not has_own_draft(server)
    is_known = knows_buffers(backends, model) if is_layer else backends[0] == backends[1]
    if server.decode_graphs and not is_known:
        yield f"what attention {'/'.join(dict.fromkeys(backends))} holds for its draft"
    pieces = server.prefill_graphs and not (server.compiles_prefills or server.whole_prefills)
    if pieces and is_layer and layer_of(model).name.endswith(_AMONG_LAYERS):
        yield "graphs of its draft's prefills"
