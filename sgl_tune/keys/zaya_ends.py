"""Where SGLang's class of Zaya ends while it is made: srt/models/zaya.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def ends_of_zaya(deployment: Deployment) -> Iterator[str]:
    model, ranks = deployment.model, deployment.parallel.tp
    if model.model_type != "zaya":
        return
    kv_heads = model.main_attention.num_kv_heads
    if kv_heads % ranks:
        yield f"{kv_heads} KV heads are not evenly those of {ranks} ranks: Zaya's class keeps each on one"
    if model.moe is not None and ranks > model.moe.num_experts:
        yield f"{model.moe.num_experts} experts are fewer than {ranks} ranks"
