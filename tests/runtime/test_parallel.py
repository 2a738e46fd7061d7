"""Rank arithmetic against what real servers write: which rank stands where, and with whom."""

from itertools import product

import pytest

from runtime.server.errors import ConfigError
from runtime.server.parallel import GROUP_NAMES, ParallelConfig, check_stages, rank_layout, stage_layers

# flags -> attn_tp / attn_dp / moe_tp / moe_ep of a server
SERVERS = {
    "--tp 8 --dp 8 --enable-dp-attention": (
        ParallelConfig(tp=8, dp=8, enable_dp_attention=True),
        (1, 8, 8, 1),
    ),
    "--tp 8": (ParallelConfig(tp=8), (8, 1, 8, 1)),
    "--tp 8 --ep 8": (ParallelConfig(tp=8, ep=8), (8, 1, 1, 8)),
    "--tp 4 --pp 2": (ParallelConfig(tp=4, pp=2), (4, 1, 4, 1)),
    "--tp 16 --nnodes 2": (ParallelConfig(tp=16, nnodes=2), (16, 1, 16, 1)),
    "--tp 4 --dp 2": (ParallelConfig(tp=4, dp=2), (4, 1, 4, 1)),
    "--tp 8 --dp 2 --enable-dp-attention --ep 4": (
        ParallelConfig(tp=8, dp=2, ep=4, enable_dp_attention=True),
        (4, 2, 2, 4),
    ),
}


@pytest.mark.parametrize("flags", SERVERS)
def test_flags_give_the_sizes_of_all_groups(flags: str) -> None:
    parallel, sizes = SERVERS[flags]
    assert (parallel.attn_tp, parallel.attn_dp, parallel.moe_tp, parallel.moe_ep) == sizes


@pytest.mark.parametrize("flags", SERVERS)
def test_groups_split_the_ranks_and_agree(flags: str) -> None:
    parallel, _ = SERVERS[flags]
    layouts = [rank_layout(parallel, rank) for rank in range(parallel.world_size)]
    for name, layout in product(GROUP_NAMES, layouts):
        members = layout.group(name)
        assert layout.rank in members
        assert all(layouts[member].group(name) == members for member in members)


@pytest.mark.parametrize("flags", SERVERS)
def test_a_rank_is_its_place_in_each_group(flags: str) -> None:
    parallel, _ = SERVERS[flags]
    for rank in range(parallel.world_size):
        layout = rank_layout(parallel, rank)
        places = {name: layout.group(name).index(rank) for name in GROUP_NAMES}
        assert places == {
            "world": rank,
            "tp": layout.tp_rank,
            "pp": layout.pp_rank,
            "attn_tp": layout.attn_tp_rank,
            "attn_dp": layout.attn_dp_rank,
            "moe_tp": layout.moe_tp_rank,
            "moe_ep": layout.moe_ep_rank,
        }


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rank 8 is not in 0\.\.7"):
        rank_layout(ParallelConfig(tp=8), 8)


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"), [(8, 2, [4, 4]), (7, 2, [3, 4]), (78, 4, [19, 19, 20, 20])]
)
def test_stages_cover_the_layers(layers: int, pp: int, sizes: list[int]) -> None:
    parallel = ParallelConfig(pp=pp)
    stages = [stage_layers(layers, parallel, stage) for stage in range(pp)]
    assert [len(stage) for stage in stages] == sizes
    assert [layer for stage in stages for layer in stage] == list(range(layers))


def test_more_stages_than_layers_are_refused() -> None:
    check_stages(3, ParallelConfig(pp=3))
    with pytest.raises(ConfigError, match="--pp 4: a stage needs a layer, and the model has 3"):
        check_stages(3, ParallelConfig(pp=4))
