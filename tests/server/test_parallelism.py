"""Prefills that ranks share: which layouts SGLang makes of them, and which it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.errors import ConfigError
from tests.server.servers import H200, LLAMA, R1, V32, server

_PAIR: dict[str, Any] = {"dp_size": 2, "enable_dp_attention": True}
_TOLD = "--dp-size under DP attention"


def _shared(model: dict[str, Any], version: int, strategy: str, **flags: Any) -> Any:
    others = {"enable_prefill_cp": True, "cp_strategy": strategy}
    return server(model, H200, f"0.5.{version}", **{"tp_size": 8, "others": others, **flags})


@pytest.mark.parametrize(
    ("version", "strategy", "flags", "layout"),
    [
        (17, "interleave", {}, (1, 1, "none")),
        (17, "zigzag", {}, (1, 8, "deepep")),
        (19, "zigzag", _PAIR, (2, 8, "deepep")),
        (19, "zigzag", {"dp_size": 2}, (2, 8, "deepep")),
        (22, "interleave", _PAIR, (2, 1, "none")),
        (23, "interleave", {"dp_size": 2}, (2, 1, "none")),
        (23, "interleave", {"attn_cp_size": 4, **_PAIR}, (2, 1, "none")),
    ],
)
def test_sparse_attention_shares_prefills_by_strategy(
    version: int, strategy: str, flags: dict[str, Any], layout: tuple[int, int, str]
) -> None:
    found = _shared(V32, version, strategy, **flags)
    assert (found.attn_dp_size, found.ep_size, found.moe_a2a_backend) == layout
    width = "attn_cp_size" in flags
    rule = "no prefill graphs with context parallelism" if width else "prefills shared among ranks"
    assert (found.prefill_graphs, found.why["prefill_graphs"]) == ((), rule)


@pytest.mark.parametrize(
    ("version", "strategy", "flags", "said"),
    [
        (21, "interleave", _PAIR, "interleaved prefills do not go with --dp"),
        (17, "interleave", {"dp_size": 2}, "interleaved prefills do not go with --dp"),
        (17, "zigzag", {"tp_size": 16}, "--tp 16: prefills are shared by at most 8 ranks"),
        (23, "interleave", {"tp_size": 16}, "--tp 16: prefills are shared by at most 8 ranks"),
    ],
)
def test_some_layouts_share_no_prefill(version: int, strategy: str, flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        _shared(V32, version, strategy, **flags)
    assert refusal.value.message == said


def test_latent_attention_that_is_not_sparse_spreads_its_experts() -> None:
    found = _shared(R1, 19, "zigzag")
    assert (found.ep_size, found.moe_a2a_backend) == (8, "deepep")


def test_other_families_keep_their_layout() -> None:
    found = server(LLAMA, H200, "0.5.19", tp_size=8)
    assert (found.attn_dp_size, found.prefill_graphs[-1]) == (1, 8192)


def test_groups_say_whether_they_were_asked_for() -> None:
    assert server(R1, H200, tp_size=8, **_PAIR).why["attn_dp_size"] == _TOLD
    assert server(R1, H200, tp_size=8).why["attn_dp_size"] == "no DP attention"
    assert _shared(V32, 22, "interleave", **_PAIR).why["attn_dp_size"] == _TOLD
    shared = _shared(V32, 22, "interleave", dp_size=2).reasons["attn_dp_size"]
    assert [one.rule for one in shared] == ["no DP attention", "prefills shared among ranks"]


def test_a_head_of_its_own_for_groups_needs_groups() -> None:
    asked: dict[str, Any] = {"tp_size": 4, "enable_dp_lm_head": True}
    assert server(R1, H200, **asked, dp_size=2, enable_dp_attention=True).attn_dp_size == 2
    assert server(R1, H200, **asked).attn_dp_size == 1
    with pytest.raises(ConfigError, match="--enable-dp-lm-head needs DP attention"):
        server(R1, H200, **asked, dp_size=2)
