"""Where servers of dots.note end: its class is written for FlashAttention, for bfloat16, and with towers.

srt/models/dots3_common/modeling.py, srt/layers/attention/dots_hybrid_backend.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.decoders.dots3 import NAME
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_FLASH, _PAGE = ("fa3", "fa4"), 64
_TOWERS = ("vision_config", "audio_config")


def ends_of_dots_note(deployment: Deployment) -> Iterator[str]:
    if deployment.model.model_type != NAME:
        return
    rules = _towers, _dtype, _ranks, _prefills, _decodes
    yield from chain.from_iterable(rule(deployment) for rule in rules)


def _towers(deployment: Deployment) -> Iterator[str]:
    missing = [name for name in _TOWERS if not checkpoint_of(deployment).has(name)]
    if missing and not deployment.server.asked.language_only:
        yield f"{missing[0]} is missing, of which SGLang's dots.note makes a tower"


def _dtype(deployment: Deployment) -> Iterator[str]:
    if deployment.server.dtype != "bfloat16":
        yield f"--dtype {deployment.server.dtype}: SGLang's dots.note folds its keys in bfloat16 alone"


def _ranks(deployment: Deployment) -> Iterator[str]:
    model, parallel = deployment.model, deployment.parallel
    for attention in model.attention.values():
        if attention.num_heads % parallel.attn_tp:
            yield f"{attention.num_heads} heads cannot be split over {parallel.attn_tp} ranks"
    if model.moe is not None and parallel.tp > model.moe.num_experts:
        yield f"{model.moe.num_experts} experts are fewer than {parallel.tp} ranks"


def _prefills(deployment: Deployment) -> Iterator[str]:
    """Layers behind windows ask FlashAttention's plan for what each prompt begins with."""
    backend = deployment.server.prefill_attention_backend
    if backend not in _FLASH:
        yield (
            f"layers of dots.note behind windows prefill on fa3 or fa4, and not on {backend}: "
            f"--attention-backend fa3 --page-size {_PAGE}"
        )


def _decodes(deployment: Deployment) -> Iterator[str]:
    """Beside an indexer these layers decode on what prefills, else on fa3, fa4 or Triton."""
    model, server = deployment.model, deployment.server
    has_indexer = model.mla is not None and model.mla.indexer is not None
    backend = server.prefill_attention_backend if has_indexer else server.decode_attention_backend
    if backend in _FLASH and server.page_size != _PAGE:
        yield f"layers of dots.note behind windows decode in pages of {_PAGE}: --page-size {_PAGE}"
    if backend not in (*_FLASH, "triton"):
        yield f"layers of dots.note behind windows decode on fa3, fa4 or triton, and not on {backend}"
