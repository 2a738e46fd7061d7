"""DeepSeek-V4's pools beside what each release's own code makes for random servers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.forward.compressed_pool import PagedPool
from runtime.forward.kv_pool import make_paged_pool
from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.compressed_sizes import second_tables
from runtime.server.config import RuntimeConfig
from runtime.server.errors import ConfigError, NoRoomForTokens, Unsupported
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import find_gpu
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import FreeMemory, plan_pool
from runtime.server.releases import RELEASES, release_named
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from runtime.server.units import GIB
from tests.oracle.deepseek_v4 import FLASH
from tests.oracle.v4_pools import GPU, config_of, read

META = torch.device("meta")


def _server(release: str, argv: list[str], config: dict[str, Any] = FLASH) -> Server:
    given = parse(flags_of(release), ["--model-path", "v4", *argv]).given
    row = release_named(release).release
    return resolve(changed(Asked(), given), Checkpoint(config), None, find_gpu(GPU), row)


def _ours(case: dict[str, Any]) -> dict[str, Any]:
    checkpoint = Checkpoint(config_of(case))
    try:
        server = _server(case["release"], case["argv"], config_of(case))
        model, layers = checkpoint.model_config(), range(*case["stage"])
        free = FreeMemory(case["rest"], case["rest"])  # of a fraction that is all of it
        plan = plan_pool(free, 1.0, model, server.parallel, server.runtime, layers)
        pool = make_paged_pool(plan, model, server.runtime, layers, META)
    except (ConfigError, NoRoomForTokens):
        return {"refused": True}
    assert plan.compressed is not None and isinstance(pool.cache, PagedPool)
    return {
        "tokens": plan.tokens,
        "window": plan.compressed.window_tokens,
        "requests": plan.max_running_requests,
        "table": list(pool.requests.table.shape),
        "bytes": pool.cache.nbytes + pool.requests.table.nbytes,
    }


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return read()


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_as_many_tokens_requests_and_bytes_as_the_release_has(
    release: str, cases: list[dict[str, Any]]
) -> None:
    own = [case for case in cases if case["release"] == release]
    assert len(own) >= 20 and sum("tokens" in case["answer"] for case in own) >= 10
    for case in own:
        told = {"refused": True} if "refused" in case["answer"] else case["answer"]
        assert _ours(case) == told, (case, case["answer"])


def test_keys_of_another_width_are_refused_by_name(cases: list[dict[str, Any]]) -> None:
    """As SGLang's pool refuses them, in an assertion."""
    checkpoint = Checkpoint({**config_of(cases[0]), "head_dim": 256})
    runtime = RuntimeConfig(max_running_requests=256)
    with pytest.raises(Unsupported, match="head_dim is 256, qk_rope_head_dim 64"):
        plan_pool(FreeMemory(GIB, GIB), 1.0, checkpoint.model_config(), ParallelConfig(), runtime, range(2))


@pytest.mark.parametrize(
    ("release", "positions"),
    [
        ("0.5.12", []),
        ("0.5.13", [1 << 19, 1 << 19]),
        ("0.5.17", [1 << 19, 1 << 19]),
        ("0.5.18", [1 << 20, 1 << 19]),
        ("0.5.22", [1 << 20, 1 << 19]),
    ],
)
def test_further_tables_of_angles_are_as_long_as_the_classes_of_these_releases_make_them(
    release: str, positions: list[int]
) -> None:
    """Of a million positions, stretched to half as many."""
    scaling = {**FLASH["rope_scaling"], "factor": 8}
    model = Checkpoint({**FLASH, "rope_scaling": scaling}).model_config()
    runtime = RuntimeConfig(sglang_version=release)
    assert list(second_tables(model, runtime, range(model.num_layers))) == positions
    assert list(second_tables(model, runtime, range(2, 4))) == positions[1:]


def test_a_share_of_windows_that_is_the_usual_one_is_none_before_0_5_20() -> None:
    shares = {
        release: _server(release, ["--swa-full-tokens-ratio", "0.8"]).sliding_share
        for release in ("0.5.19", "0.5.20")
    }
    assert shares == {"0.5.19": 0.1, "0.5.20": 0.8}
