"""States, and what they leave for tokens, as each release's own arithmetic has them for random servers."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import NoRoomForTokens
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.recurrent import (
    GatedDeltaConfig,
    KimiDeltaConfig,
    LightningConfig,
    Mamba2Config,
    RecurrentConfig,
    StateRules,
)
from runtime.server.releases import RELEASES
from runtime.server.requests import max_running_requests
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.state_sizes import plan_states, requests_for
from tests.memory.checkpoints import published_config
from tests.oracle.state_sizes import read
from tests.server.servers import server


def _recurrent(case: dict[str, Any]) -> RecurrentConfig:
    heads, groups, width, state = case["heads"], case["groups"], case["head_dim"], case["state_size"]
    if case["kind"] == "delta":
        return GatedDeltaConfig(groups, heads, state, width, case["conv_kernel"], "heads")
    if case["kind"] == "kimi":
        return KimiDeltaConfig(heads, width, case["conv_kernel"])
    if case["kind"] == "lightning":
        return LightningConfig(heads, width, heads, True, RopeConfig(width, 1e4, 64), case["layers"])
    return Mamba2Config(heads, width, groups, state, case["conv_kernel"], True, False, 0.0, 128)


def _model(case: dict[str, Any]) -> ModelConfig:
    kinds = tuple("recurrent" if (i + 1) % case["every"] else "full" for i in range(case["layers"]))
    if case["kind"] == "beside":
        kinds = ("full",) * case["layers"]
    return ModelConfig(
        *("qwen3_next", 64, case["layers"], 64, 64, case["context"]),
        attention={"full": AttentionConfig(4, 4, 16, None, 1.0)},
        attention_kinds=kinds,
        recurs_beside=case["kind"] == "beside",
        layer_kinds=("dense",) * case["layers"],
        recurrent=_recurrent(case),
    )


def _slots_each(case: dict[str, Any]) -> int:
    if not case["radix"]:
        return 1
    if case["strategy"] == "no_buffer":
        return 3
    return 5 if case["overlap"] and case["strategy"] == "extra_buffer" else 4


def _runtime(case: dict[str, Any]) -> RuntimeConfig:
    drafts, rules = case["draft_tokens"], {} if case["share"] is None else {"share": case["share"]}
    return RuntimeConfig(
        sglang_version=case["release"],
        max_running_requests=case["requests"],
        context_length=case["context"],
        speculative=SpeculativeConfig("EAGLE", num_draft_tokens=drafts) if drafts else None,
        states=StateRules(
            slots=case["slots"],
            slots_each=_slots_each(case),
            keeps_prefixes=case["radix"],
            recurrent_dtype=case["dtype"],
            **rules,
        ),
    )


def _ours(case: dict[str, Any]) -> dict[str, Any]:
    runtime = _runtime(case)
    parallel = ParallelConfig(tp=case["tp"], pp=case["pp"], dp=case["dp"], enable_dp_attention=case["dp"] > 1)
    try:
        budget = plan_states(case["rest"], _model(case), parallel, runtime)
        tokens = max(int(budget.left), 0) // case["cell"]
        requests = max_running_requests(
            tokens, case["context"], case["requests"], parallel.attn_dp, runtime.release
        )
        allowed = requests_for(budget.plan, requests, runtime)
    except NoRoomForTokens:
        return {"refused": True}
    return {"slots": budget.plan.slots, "left": int(budget.left), "requests": allowed}


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return read()


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_as_many_states_tokens_and_requests_as_the_release_has(
    release: str, cases: list[dict[str, Any]]
) -> None:
    own = [case for case in cases if case["release"] == release]
    assert len(own) >= 30
    apart = [(_ours(case), case) for case in own if _ours(case) != case["answer"]]
    assert not apart


@pytest.mark.parametrize("share", [0.0, -1.0, float("inf"), float("nan")])
def test_a_share_that_is_none_leaves_no_room(share: float, cases: list[dict[str, Any]]) -> None:
    case = {**cases[-1], "share": share, "slots": None, "radix": True}
    assert _ours(case) == {"refused": True}


@pytest.mark.parametrize(
    ("release", "drafts", "verifies"),
    [
        ("0.5.17", True, True),
        ("0.5.18", True, False),
        ("0.5.21", True, False),
        ("0.5.22", False, False),
    ],
)
def test_a_prefill_role_verifies_nothing(release: str, drafts: bool, verifies: bool) -> None:
    """mem_cache/kv_cache_configurator.py: states of drafted tokens had room before none were made."""
    model = published_config("Qwen/Qwen3-Next-80B-A3B-Instruct")
    told = {"speculative_algorithm": "NEXTN", "tp_size": 4, "mamba_radix_cache_strategy": "extra_buffer"}
    for role in ("prefill", "decode"):
        rules = server(model, version=release, disaggregation_mode=role, **told).states
        found = (drafts, verifies) if role == "prefill" else (True, True)
        assert (rules.drafts, rules.verifies) == found
