"""Where servers of Mllama end: layers that attend to images are on some backends alone, and ask each forward
how long its images are, which nobody tells a dummy's.

srt/layers/attention/attention_registry.py, srt/models/mllama.py, _dummy_run of srt/model_executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.decoders.mllama import NAME

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_WITHOUT_IMAGES = ("triton", "hpc_ops")


def ends_of_mllama(deployment: Deployment) -> Iterator[str]:
    if deployment.model.model_type == NAME:
        yield from chain.from_iterable(rule(deployment) for rule in (_backends, _dummies, _heads))


def _backends(deployment: Deployment) -> Iterator[str]:
    server = deployment.server
    for backend in dict.fromkeys((server.prefill_attention_backend, server.decode_attention_backend)):
        if backend in _WITHOUT_IMAGES:
            yield f"Mllama attends to images, which {backend} has not: --attention-backend flashinfer"


def _dummies(deployment: Deployment) -> Iterator[str]:
    if deployment.server.tunes:
        yield (
            "SGLang's class asks how long images are, and the dummy that its kernels are tuned with does not "
            "say: --disable-flashinfer-autotune"
        )


def _heads(deployment: Deployment) -> Iterator[str]:
    """Where several ranks hold a KV head, each is taken to hold none."""
    heads, ranks = deployment.model.main_attention.num_kv_heads, deployment.parallel.tp
    if ranks > heads and deployment.server.decode_graphs:
        yield f"{heads} KV heads are fewer than {ranks} ranks, which Mllama's graphs take to have none"
