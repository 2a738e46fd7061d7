"""Sizes that nobody means are refused before anything of their size is made."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.bounds import ASKED, MOST_RANKS, check_size, is_number
from runtime.server.cache_key import cache_key
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.layer_config import IndexerConfig, MLAConfig, MoEConfig
from runtime.server.parallel import rank_layout
from runtime.server.parallel_config import ParallelConfig
from runtime.server.recurrent import GatedDeltaConfig, Mamba2Config, RecurrentConfig
from runtime.server.speculative_config import SpeculativeConfig
from sgl_tune.deployment.options import LONG, ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError

DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
}
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
        {
            "model_type": "qwen3_moe",
            "num_experts": 10**9,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
        },
        {"model_type": "qwen3_moe", "num_experts": 0, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
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
    "part", [GatedDeltaConfig(1, 4, 8, 8, 4), Mamba2Config(4, 8, 1, 8, 4, True, False, 0.0, 8)]
)
def test_every_whole_number_of_a_state_has_an_end(part: RecurrentConfig) -> None:
    model = model_config(DENSE)
    for one in fields(part):
        if one.type == "int" and one.name not in ("num_key_heads", "num_groups"):
            with pytest.raises(ConfigError, match=rf"model\.{one.name} is 1000000000000"):
                replace(model, recurrent=replace(part, **{one.name: 10**12}))
        elif one.type == "int":
            with pytest.raises(ConfigError, match="are not evenly those of"):
                replace(part, **{one.name: 3})


@pytest.mark.parametrize("part", [ModelConfig, MoEConfig, MLAConfig, IndexerConfig])
def test_every_whole_number_of_a_models_shape_has_an_end(part: type[Any]) -> None:
    latents = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
    indexer = {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 4}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    model = model_config({**DENSE, "model_type": "deepseek_v32", **latents, **indexer, **experts})
    assert model.moe is not None and model.mla is not None and model.mla.indexer is not None

    def with_part(**changes: Any) -> ModelConfig:
        whole: dict[Any, Any] = {
            ModelConfig: lambda: replace(model, **changes),
            MoEConfig: lambda: replace(model, moe=replace(model.moe, **changes)),
            MLAConfig: lambda: replace(model, mla=replace(model.mla, **changes)),
            IndexerConfig: lambda: replace(
                model, mla=replace(model.mla, indexer=replace(model.mla.indexer, **changes))
            ),
        }
        return whole[part]()

    numbers = [field.name for field in fields(part) if field.type in ("int", "int | None")]
    assert numbers
    for name in numbers:
        with pytest.raises(ConfigError, match=rf"model\.{name} is 1000000000000: it must be between"):
            with_part(**{name: 10**12})


@pytest.mark.parametrize("record", [ParallelConfig, SpeculativeConfig])
def test_every_whole_number_of_a_layout_has_an_end(record: type[Any]) -> None:
    for one in fields(record):
        if one.type == "int":
            with pytest.raises(ConfigError, match=f"--{one.name.replace('_', '-')} is"):
                record(**{one.name: ENDLESS})


def test_a_start_follows_its_server() -> None:
    target = {"model_path": "Qwen3-30B-A3B", "gpu": "B200"}
    for more in ({}, {"disable_flashinfer_autotune": True}, {"disaggregation_mode": "decode"}):
        found = resolve_deployment(ServerFlags.of(**target, **more)).server
        assert found.runtime.disable_autotune == (not found.tunes) == ("disable_flashinfer_autotune" in more)
        assert found.runtime.is_pd_decode == ("disaggregation_mode" in more)


@pytest.mark.parametrize("name", ["tp", "pp", "dp", "ep", "nnodes", "node_rank"])
@pytest.mark.parametrize("size", [-1, 1 << 40])
def test_no_layout_of_ranks_is_endless(name: str, size: object) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}"):
        ParallelConfig(**{name: size})


def test_a_stretched_rope_needs_the_length_that_it_began_with() -> None:
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    with pytest.raises(ConfigError, match="original_max_position_embeddings is None"):
        model_config({**DENSE, "rope_scaling": {**rope, "original_max_position_embeddings": None}})
