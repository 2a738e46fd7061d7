"""Where servers of Mllama and MOSS-VL end: layers that attend to images are on some backends alone, and ask
forwards of their images, of which nobody tells a dummy's.

srt/layers/attention/attention_registry.py, srt/models (mllama.py, moss_vl.py), _dummy_run of
srt/model_executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.decoders import mllama, moss_vl

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_WITHOUT_IMAGES = ("triton", "hpc_ops")
_CALLED = {mllama.NAME: "Mllama", moss_vl.NAME: "MOSS-VL"}


def ends_of_mllama(deployment: Deployment) -> Iterator[str]:
    if deployment.model.model_type in _CALLED:
        yield from chain.from_iterable(rule(deployment) for rule in (_backends, _dummies, _heads))


def _backends(deployment: Deployment) -> Iterator[str]:
    server, called = deployment.server, _CALLED[deployment.model.model_type]
    for backend in dict.fromkeys((server.prefill_attention_backend, server.decode_attention_backend)):
        if backend in _WITHOUT_IMAGES:
            yield f"{called} attends to images, which {backend} has not: --attention-backend flashinfer"


def _dummies(deployment: Deployment) -> Iterator[str]:
    """Mllama asks each how long its images are, and MOSS-VL a prefill which of them are kept already."""
    server, is_mllama = deployment.server, deployment.model.model_type == mllama.NAME
    if server.tunes and (is_mllama or server.tunes_prefills):
        asked = "how long images are" if is_mllama else "which images are kept"
        yield (
            f"SGLang's class asks {asked}, and the dummy that its kernels are tuned with does not say: "
            "--disable-flashinfer-autotune"
        )


def _heads(deployment: Deployment) -> Iterator[str]:
    """Where several ranks hold a KV head, each is taken to hold none."""
    heads, ranks = deployment.model.main_attention.num_kv_heads, deployment.parallel.tp
    if ranks > heads and deployment.server.decode_graphs:
        called = _CALLED[deployment.model.model_type]
        yield f"{heads} KV heads are fewer than {ranks} ranks, which {called}'s graphs take to have none"
