"""Qwen4's pools beside what each release's own code makes for random servers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from runtime.forward.gqa_pool import PooledKeysPool
from runtime.forward.kv_pool import KVPool, make_kv_pool
from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import find_gpu
from runtime.server.ngrams import NgramConfig
from runtime.server.pool_plan import FreeMemory, plan_pool
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from runtime.server.sizing import kept_layers
from tests.oracle.qwen4_pools import GPU, RECORDED, config_of

META = torch.device("meta")
CASES = json.loads(RECORDED.read_text())


_POINTERS = 48  # to the buffers of a layer, which SGLang keeps on the GPU


def _bytes(pool: KVPool, layers: int) -> int:
    assert isinstance(pool.cache, PooledKeysPool) and pool.states is not None
    held = [*pool.cache.held(), *pool.states.held(), pool.requests.table]
    return sum(one.nbytes for one in held) + _POINTERS * layers


def _unread(case: dict[str, Any], config: NgramConfig | None, slots: int) -> int:
    """0.5.20 keeps the last tokens of requests on stages without n-grams, too."""
    if config is None or case["release"] != "0.5.20" or {*config.layers} & {*range(*case["stage"])}:
        return 0
    return 8 * (config.longest - 1) * (slots + 1)


def _ours(case: dict[str, Any]) -> dict[str, Any]:
    checkpoint, given = Checkpoint(config_of(case)), ["--model-path", "qwen4", *case["argv"]]
    try:
        asked = changed(Asked(), parse(flags_of(case["release"]), given).given)
        row = release_named(case["release"]).release
        server = resolve(asked, checkpoint, None, find_gpu(GPU), row)
        model, layers = checkpoint.model_config(), range(*case["stage"])
        free = FreeMemory(case["rest"], case["rest"])  # of a fraction that is all of it
        runtime = replace(server.runtime, images_mib=0)  # of what is left beside images
        plan = plan_pool(free, 1.0, model, server.parallel, runtime, layers)
        pool = make_kv_pool(plan, model, server.parallel, layers, META)
    except (ConfigError, NoRoomForTokens):
        return {"refused": True}
    assert plan.states is not None
    unread = _unread(case, model.ngrams, plan.states.slots)
    return {
        "tokens": plan.tokens,
        "requests": plan.max_running_requests,
        "table": list(pool.requests.table.shape),
        "bytes": _bytes(pool, len(kept_layers(model, layers))) + unread,
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['release']} {' '.join(case['argv'])}")
def test_as_many_tokens_requests_and_bytes_as_the_release_has(case: dict[str, Any]) -> None:
    told = {"refused": True} if "refused" in case["answer"] else case["answer"]
    assert _ours(case) == told
