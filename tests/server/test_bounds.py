"""Sizes that nobody means are refused before anything of their size is made."""

import time
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest

from runtime.models.known import FAMILIES, family_named, model_config
from runtime.models.reading import read
from runtime.server.asked import Asked
from runtime.server.bounds import ASKED, MOST_RANKS, check_size, is_number
from runtime.server.cache_key import cache_key
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import SpeculativeConfig
from runtime.server.errors import ConfigError
from runtime.server.layer_config import GatedDeltaConfig, Mamba2Config
from runtime.server.parallel import ParallelConfig, rank_layout
from sgl_tune.deployment.options import LONG, ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError

DENSE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
}
EXPERTS = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts_per_tok": 2}
ENDLESS = int("9" * 4000)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("value", [10**12, ENDLESS, -(10**12)])
def test_no_argument_of_a_server_is_endless(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is "):
        Asked(**{name: value})


@pytest.mark.parametrize("name", ASKED)
def test_no_flag_is_endless(name: str) -> None:
    with pytest.raises(UsageError, match="it must be between"):
        ServerFlags.of(**{{long: short for short, long in LONG.items()}.get(name, name): ENDLESS})


@pytest.mark.parametrize("name", ["page_size", "context_length", "max_running_requests", "cuda_graph_max_bs"])
def test_what_is_divided_by_is_not_zero(name: str) -> None:
    with pytest.raises(UsageError, match="is 0: it must be between 1 and"):
        ServerFlags.of(**{name: 0})


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**9},
        {"num_attention_heads": ENDLESS},
        {"vocab_size": 10**12},
        {"head_dim": 10**12},
        {"num_key_value_heads": -1},
        {"max_position_embeddings": 0},
        {**EXPERTS, "num_experts": 10**9},
        {**EXPERTS, "num_experts": 0},
    ],
)
def test_no_size_of_a_model_is_endless(changes: dict[str, Any]) -> None:
    begun = time.process_time()
    with pytest.raises(ConfigError, match=r"it must be between|a positive whole number is needed"):
        model_config({**DENSE, **changes})
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("length", [0, -1, "4096", float("nan"), float("inf"), 10**12, ENDLESS, [4096], True])
def test_a_context_length_is_a_number_of_tokens(length: Any) -> None:
    with pytest.raises(ConfigError, match=r"(context length|max_position_embeddings) is"):
        _ = Checkpoint({"max_position_embeddings": length}).context_length


def test_ranks_are_counted_over_stages_and_replicas() -> None:
    for sizes in ({"tp": 256, "pp": 128}, {"tp": 128, "dp": 256}):
        with pytest.raises(ConfigError, match=f"at most {MOST_RANKS} ranks"):
            ParallelConfig(**sizes)


def test_a_layout_goes_up_in_its_ranks() -> None:
    last = ParallelConfig(tp=4, pp=2, dp=2, ep=4, enable_dp_attention=True, nnodes=2, node_rank=1)
    assert (last.world_size, last.attn_dp, last.attn_tp, last.moe_ep, last.moe_tp) == (8, 2, 2, 4, 1)
    for sizes, said in (
        ({"tp": 4, "ep": 3}, "--ep 3 does not divide"),
        ({"tp": 4, "dp": 3, "enable_dp_attention": True}, "--dp 3 does not divide"),
        ({"tp": 2, "pp": 2, "nnodes": 3}, "--nnodes 3 does not divide"),
        ({"tp": 2, "nnodes": 2, "node_rank": 2}, "not in 0..1"),
    ):
        with pytest.raises(ConfigError, match=said):
            ParallelConfig(**sizes)


def test_rows_are_gathered_over_groups_and_all_to_alls() -> None:
    groups, one = ParallelConfig(tp=4, dp=2, enable_dp_attention=True), ParallelConfig(tp=4)
    assert groups.gathers_mlp and groups.gathers_rows("none")
    assert not ParallelConfig(tp=4, enable_dp_attention=True).gathers_mlp
    assert not one.gathers_mlp and not one.gathers_rows("none") and one.gathers_rows("deepep")
    assert not ParallelConfig().gathers_rows("deepep") and ParallelConfig(tp=2).gathers_rows("deepep")


def test_the_largest_world_is_laid_out_in_no_time() -> None:
    parallel = ParallelConfig(tp=128, pp=MOST_RANKS // 128)
    begun = time.process_time()
    assert sum(rank_layout(parallel, rank).tp_rank == 0 for rank in range(MOST_RANKS)) == parallel.pp
    assert time.process_time() - begun < 2


def test_digits_that_int_does_not_take_are_no_number() -> None:
    assert is_number("0123456789"[:9])
    assert not any(map(is_number, ("", "²", "٣", "-1", "1.5", "9" * 5000, " 1")))


def test_what_is_no_whole_number_is_for_others() -> None:
    for value in (None, "x", True, 1e300):
        check_size("x", value, ASKED["tp_size"])


def test_a_key_of_bytes_that_are_no_utf_8_is_a_key() -> None:
    assert cache_key(("bad\udcff",)) != cache_key(("bad",))
    with pytest.raises(ConfigError, match="is not text"):
        cache_key(("bad\ud800",))


@pytest.mark.parametrize(
    "part", [GatedDeltaConfig(1, 4, 8, 8, 4), Mamba2Config(4, 8, 1, 8, 4, True, False, 0.0)]
)
def test_heads_of_a_state_are_evenly_shared(part: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be divided evenly among"):
        replace(part, **{"num_key_heads" if isinstance(part, GatedDeltaConfig) else "num_groups": 3})


@pytest.mark.parametrize("name", FAMILIES)
def test_every_whole_number_of_a_config_has_an_end(name: str) -> None:
    family = family_named(name)
    hints = get_type_hints(family.config)
    kinds = {one.name: (hints[one.name], *get_args(hints[one.name])) for one in fields(family.config)}
    numbers = [name for name, kind in kinds.items() if int in kind]
    assert len(numbers) > 5
    for member in numbers:
        with pytest.raises(ConfigError, match=f"{member} is 1000000000000: it must be between"):
            read(family.config, {**DENSE, member: 10**12})


@pytest.mark.parametrize("record", [ParallelConfig, SpeculativeConfig])
def test_every_whole_number_of_a_layout_has_an_end(record: type[Any]) -> None:
    for one in fields(record):
        if one.type == "int":
            with pytest.raises(ConfigError, match=f"--{one.name.replace('_', '-')} is"):
                record(**{one.name: ENDLESS})


def test_a_start_follows_its_server() -> None:
    target = {"model_path": "Qwen3-30B-A3B", "gpu": "B200"}
    for more in ({}, {"disable_flashinfer_autotune": True}):
        found = resolve_deployment(ServerFlags.of(**target, **more)).server
        assert (
            found.runtime.disable_autotune
            == (not found.tuning.tunes)
            == ("disable_flashinfer_autotune" in more)
        )


@pytest.mark.parametrize("name", ["tp", "pp", "dp", "ep", "nnodes", "node_rank"])
@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_no_layout_of_ranks_is_endless(name: str, size: object) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}"):
        ParallelConfig(**{name: size})


def test_a_stretched_rope_needs_the_length_that_it_began_with() -> None:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    with pytest.raises(ConfigError, match="original_max_position_embeddings is None"):
        model_config({**DENSE, "rope_scaling": {**rope, "original_max_position_embeddings": None}})
