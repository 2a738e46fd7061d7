"""Where a server ends at its attention: the backend, and what a model tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.attention_buffers import OVER_LATENTS_BY_FLASHINFER, SPARSE
from runtime.server.recurrent import (
    DynamicDeltaConfig,
    GatedDeltaConfig,
    LightningConfig,
    Mamba2Config,
    ShortConvConfig,
)
from runtime.server.sizing import kv_heads_per_rank
from runtime.server.unserved_when import writes_fewer_heads
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from runtime.server.shape import Server
    from sgl_tune.deployment.deployment import Deployment

_LARGE_PAGE = 128
_SAY_NO_WINDOW = ("cohere2", "cohere2_moe", "exaone_moe", "granite_swa", "granitemoe_swa")
_ASKED_FOR_KEYS = (Mamba2Config, ShortConvConfig, LightningConfig)
# What srt/configs/model_config.py does not set of them, and FlashInfer's attention over latents asks for
_UNTOLD = {
    "DeepseekVL2ForCausalLM": "how wide values are",
    "KimiVLForConditionalGeneration": "the scale of its scores",
    "MiniCPM3ForCausalLM": "how wide keys without rope are",
}


def ends_of_attention(deployment: Deployment) -> Iterator[str]:
    yield from _heads_of_all(deployment)
    yield from _flash_attention_3(deployment)
    yield from _large_pages(deployment)
    yield from _untold_windows(deployment)
    yield from _first_layer(deployment)
    yield from _of_another_kind(deployment)
    yield from _untold_latents(deployment)
    yield from _beside_deltas(deployment)
    yield from _without_indexer(deployment)


def _heads_of_all(deployment: Deployment) -> Iterator[str]:
    """As the first keys are written."""
    model, parallel = deployment.model, deployment.parallel
    if writes_fewer_heads(model, parallel):
        yield (
            f"--enable-dp-attention: SGLang's class of {model.model_type} splits its heads over all "
            f"{parallel.tp} ranks, and its cache has those of {parallel.attn_tp}"
        )


def _flash_attention_3(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/attention_registry.py, in every release: a draft's worker asks it, too."""
    server, major = deployment.server, deployment.server.gpu.major
    asked = "fa3" in (*_used(server), *(server.drafting_backends if server.draft is not None else ()))
    if asked and major != 9 and (major != 8 or deployment.model.is_mla):
        yield f"attention on fa3 has no kernels for {server.gpu.arch}"


def _large_pages(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/trtllm_mha_backend.py: pages of 128 on sm100 are for grouped heads."""
    server = deployment.server
    if "trtllm_mha" not in _used(server) or server.page_size < _LARGE_PAGE or server.gpu.major != 10:
        return
    attention = deployment.model.main_attention
    heads = attention.num_heads // deployment.parallel.attn_tp
    is_grouped = heads // kv_heads_per_rank(attention, deployment.parallel) > 1
    if not is_grouped or attention.head_dim != attention.value_width:
        yield (
            f"trtllm_mha takes pages of {server.page_size} tokens where several heads share keys as wide as "
            "values: --page-size 64"
        )


def _untold_windows(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/triton_backend.py plans windows of models that say one."""
    server, model = deployment.server, deployment.model
    says_none = model.by_transformers or model.model_type in _SAY_NO_WINDOW
    if _by_triton(server) and says_none and "sliding" in model.attention_kinds:
        yield "its class tells the triton attention backend of no window, and its layers ask for one"


def _first_layer(deployment: Deployment) -> Iterator[str]:
    """... and asks the first of all layers how wide values are, but beside deltas, where it asks the pool."""
    server, model = deployment.server, deployment.model
    asks = server.release.triton_asks_first_layer and isinstance(model.recurrent, _ASKED_FOR_KEYS)
    if asks and _by_triton(server) and (not model.keeps_tokens(0) or deployment.parallel.pp > 1):
        yield "the triton attention backend asks a stage for keys of the first layer, and it has none"


def _by_triton(server: Server) -> bool:
    return "triton" in _used(server)


def _used(server: Server) -> set[str]:
    return {server.prefill_attention_backend, server.decode_attention_backend}


def _of_another_kind(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention: attention_registry.py, and what these backends read of a model's settings."""
    server, is_mla = deployment.server, deployment.model.is_mla
    others = _used(server) & ({"trtllm_mha"} if is_mla else {*OVER_LATENTS_BY_FLASHINFER} - {"flashinfer"})
    if others:
        kinds = ("heads", "latents") if is_mla else ("latents", "heads")
        yield f"attention on {min(others)} is over {kinds[0]}, and this model attends over {kinds[1]}"


def _untold_latents(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/flashinfer_mla_backend.py, which others are made from."""
    server, untold = deployment.server, _UNTOLD.get(checkpoint_of(deployment).architecture)
    asked = _used(server) & {*OVER_LATENTS_BY_FLASHINFER}
    if deployment.model.is_mla and untold is not None and asked:
        backend = min(asked)
        yield f"attention on {backend} asks for {untold}, which SGLang's settings of this class do not have"


def _beside_deltas(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/attention_registry.py: on Blackwell not each backend goes with them."""
    server, model = deployment.server, deployment.model
    if not isinstance(model.recurrent, GatedDeltaConfig | DynamicDeltaConfig) or model.is_mla:
        return
    known = {10: server.release.beside_deltas[0], 12: server.release.beside_deltas[1]}.get(server.gpu.major)
    others = _used(server) - {*(known or ())}
    if known is not None and others:
        way, arch = ", ".join(known), server.gpu.arch
        yield f"attention on {min(others)} does not go with gated deltas on {arch}, where {way} do"


def _without_indexer(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/dsa_backend.py, nsa_backend.py: is_deepseek_dsa of a file, as it is made."""
    server, mla = deployment.server, deployment.model.mla
    asked = _used(server) & {*SPARSE}
    if asked and (mla is None or mla.indexer is None) and not server.is_draft:
        yield f"attention on {min(asked)} is for latents that an indexer chooses, and this model has none"
