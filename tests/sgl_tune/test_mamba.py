"""Servers of states alone: which of them end, what of them is not known, and what their pools have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.attention_modules import attention_modules
from runtime.server.flashinfer import flashinfer_of
from runtime.server.pool_plan import FreeMemory, PoolPlan, plan_pool
from runtime.server.start_sizes import start_sizes
from runtime.server.state_sizes import state_bytes
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

_NAMES = {
    "mamba": "state-spaces/mamba-2.8b-hf",
    "falcon_mamba": "tiiuae/falcon-mamba-7b",
    "mamba2": "mistralai/Mamba-Codestral-7B-v0.1",
}
_CONFIGS = {family: published_config(name) for family, name in _NAMES.items()}
_GIB = 1 << 30


def _deployment(
    folder: Path,
    family: str,
    command: str = "",
    without: str = "",
    release: str = "0.5.23",
    gpu: str = "H200",
    **told: Any,
) -> Deployment:
    file = {name: value for name, value in {**_CONFIGS[family], **told}.items() if name != without}
    (folder / "config.json").write_text(json.dumps(file))
    server = f"python -m sglang.launch_server --model-path {folder} {command}"
    [one] = select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command=server.split())
    return one


@pytest.mark.parametrize("release", ["0.5.20", "0.5.23"])
@pytest.mark.parametrize("attention", ["", "--attention-backend triton", "--attention-backend flashinfer"])
@pytest.mark.parametrize("family", _NAMES)
def test_any_attention_starts_as_none_is_made(
    family: str, attention: str, release: str, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, family, attention, release=release)
    assert never_starts(found) is None
    assert not expected_keys(found)
    flashinfer = flashinfer_of(found.flashinfer_version)
    assert not [*attention_modules(found.server, found.model, flashinfer)]


@pytest.mark.parametrize("family", _NAMES)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--tp 2 --dp 2 --enable-dp-attention", "DP attention"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts"),
        ("--disaggregation-mode decode", "prefills and decodes apart"),
        ("--enable-hierarchical-cache", "--enable-unified-memory or"),
    ],
)
def test_what_is_not_known_is_named(family: str, command: str, said: str, tmp_path: Path) -> None:
    refused = _deployment(tmp_path, family, command)
    assert refused.shape.model is None and refused.server.key
    assert f"{family} does not go with {said}" in refused.shape.unknown


@pytest.mark.parametrize(
    ("family", "command", "gpu", "why"),
    [
        ("mamba2", "--tp 8", "H200", None),
        ("falcon_mamba", "", "B200", "Falcon Mamba keeps prefixes in pages of one token"),
        ("falcon_mamba", "--disable-radix-cache", "B200", None),
        ("mamba2", "--pp-size 2", "H200", "has no pipeline stages"),
    ],
)
def test_where_servers_end(family: str, command: str, gpu: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, family, command, gpu=gpu))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize("family", _NAMES)
def test_a_release_that_looks_for_heads_ends(family: str, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, family, release="0.5.19"))
    assert found is not None and "before 0.5.20" in found


@pytest.mark.parametrize(
    ("missing", "release", "ends"),
    [
        ("intermediate_size", "0.5.20", True),
        ("rms_norm", "0.5.21", False),
        ("rms_norm", "0.5.22", True),
        ("chunk_size", "0.5.23", False),
    ],
)
def test_what_its_class_asks_a_file_of_mamba_2_for(
    missing: str, release: str, ends: bool, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, "mamba2", without=missing, release=release))
    assert (found is not None and f"{missing} is missing" in found) is ends


@pytest.mark.parametrize("family", _NAMES)
def test_a_width_that_is_null_makes_no_mixer(family: str, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, family, intermediate_size=None))
    assert found is not None and "intermediate_size is null" in found


@pytest.mark.parametrize(
    ("family", "told", "said"),
    [
        ("mamba2", {"rms_norm": False}, "rms_norm is False"),
        ("mamba2", {"intermediate_size": 4096}, "intermediate_size is 4096, by which SGLang"),
        ("mamba2", {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ("mamba2", {"time_step_limit": [0.0, 0.1]}, "time_step_limit is"),
        ("mamba", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ],
)
def test_what_sglangs_classes_have_otherwise_is_named(
    family: str, told: dict[str, Any], said: str, tmp_path: Path
) -> None:
    model = _deployment(tmp_path, family, **told).model
    assert [said in why for why in model.obstacles] == [True]


@pytest.mark.parametrize(
    ("command", "tokens", "requests"),
    [
        ("", 2048, 1024),
        ("--context-length 1000", 1000, 500),
        ("--max-total-tokens 5000", 5000, 2048),
        ("--max-running-requests 7", 2048, 7),
    ],
)
def test_as_many_tokens_as_a_context_has_and_as_many_requests_as_half_of_them(
    command: str, tokens: int, requests: int, tmp_path: Path
) -> None:
    """Whatever memory is left: DefaultPoolConfigurator and resolve_max_num_reqs of every release."""
    plan = _plan(_deployment(tmp_path, "mamba", f"--disable-radix-cache {command}"), 130 * _GIB)
    assert (plan.tokens, plan.max_running_requests) == (tokens, requests)


@pytest.mark.parametrize(
    ("family", "tp", "each"),
    [
        *(("mamba", 1, 22937600), ("mamba", 4, 5734400)),
        *(("falcon_mamba", 1, 36700160), ("falcon_mamba", 4, 9175040)),
        *(("mamba2", 1, 272367616), ("mamba2", 4, 68091904)),
    ],
)
def test_a_request_has_the_states_that_sglangs_config_classes_say(
    family: str, tp: int, each: int, tmp_path: Path
) -> None:
    """mamba_cache_per_req, which was asked in 0.5.20 and 0.5.23."""
    found = _deployment(tmp_path, family, f"--tp {tp}")
    assert state_bytes(found.model, found.parallel, found.runtime) == each


@pytest.mark.parametrize("family", _NAMES)
def test_states_take_their_share_of_what_is_left(family: str, tmp_path: Path) -> None:
    found = _deployment(tmp_path, family)
    each = state_bytes(found.model, found.parallel, found.runtime)
    plan = _plan(found, 100 * _GIB)
    share = found.server.mem_fraction_static * 100 * _GIB
    assert plan.states is not None
    assert plan.states.slots == int((share * 0.9 / 1.9 - each) // each)
    assert plan.max_running_requests == min(1024, plan.states.slots // 3)


def _plan(found: Deployment, free: int) -> PoolPlan:
    layers = range(found.model.num_layers)
    fraction = found.server.mem_fraction_static
    return plan_pool(FreeMemory(free, free), fraction, found.model, found.parallel, found.runtime, layers)


@pytest.mark.parametrize("family", _NAMES)
def test_prefills_are_not_captured(family: str, tmp_path: Path) -> None:
    found = _deployment(tmp_path, family)
    assert found.runtime.prefill_graphs and not start_sizes(found.model, found.runtime, 1).prefill_graphs
