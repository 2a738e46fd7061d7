"""Data parallelism: one server of attention groups, or replicas of it."""

from __future__ import annotations

from runtime.server.asked import Asked
from runtime.server.bounds import MOST_RANKS
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.graphs import fit_prefill_graphs
from runtime.server.traits import is_sparse


def check_layout(asked: Asked) -> None:
    """Sizes that no server could have."""
    ranks = asked.tp_size * asked.pp_size * (1 if asked.enable_dp_attention else asked.dp_size)
    if ranks > MOST_RANKS:
        raise ConfigError(f"tp x pp x dp is {ranks}: at most {MOST_RANKS} ranks can be planned for")
    if not 0 <= asked.node_rank < asked.nnodes:
        raise ConfigError(f"--node-rank {asked.node_rank} is not in 0..{asked.nnodes - 1}")
    if (asked.tp_size * asked.pp_size) % asked.nnodes:
        raise ConfigError(f"--nnodes {asked.nnodes} does not divide tp x pp {asked.tp_size * asked.pp_size}")
    # SGLang's arguments let it pass, its groups of ranks do not: srt/distributed/parallel_state.py.
    if asked.tp_size % asked.ep_size and asked.moe_a2a_backend == "none":
        raise ConfigError(f"--ep {asked.ep_size} does not divide --tp {asked.tp_size}")


def settle_spread_weights(c: Choices) -> None:
    """Every rank has attention of its own, and fetches the experts of others."""
    if c.dwdp_size > 1:
        attention = {"dp_size": c.dwdp_size, "enable_dp_attention": True, "enable_dp_lm_head": True}
        experts = {"ep_size": c.dwdp_size, "moe_dp_size": 1, "moe_a2a_backend": "none"}
        c.settle("--dwdp-size", disable_cuda_graph=True, moe_dense_tp_size=1, **attention, **experts)


def settle_attention_groups(c: Choices) -> None:
    asked = c.asked.attn_dp_size or 1
    if asked > 1 and c.dp_size > 1:
        raise ConfigError(
            f"--dp {c.dp_size} with --attn-dp-size {asked}: SGLang starts no replicas of attention groups",
            "give one of the two",
        )
    attn_dp = c.dp_size if asked == 1 and c.enable_dp_attention else asked
    c.settle("--dp-size under DP attention" if attn_dp > 1 else "no DP attention", attn_dp_size=attn_dp)
    if c.enable_dp_lm_head and attn_dp == 1 and c.dp_size > 1:
        raise ConfigError("--enable-dp-lm-head needs DP attention", "--enable-dp-attention")


def settle_prefill_context(c: Choices) -> None:
    """Prefills shared among ranks, in DeepSeek's families; each rank has attention whole."""
    shared = c.enable_prefill_cp or c.enable_prefill_context_parallel or c.enable_dsa_prefill_context_parallel
    if not shared or c.model.architecture not in c.release.deepseek_family:
        return
    rule = "prefills shared among ranks"
    groups = c.dp_size if c.dp_size > 1 else c.attn_dp_size
    c.settle(rule, attn_dp_size=groups, enable_dp_attention=groups > 1)
    if is_sparse(c):
        _check_shared_prefill(c, groups)
    if not is_sparse(c) or _is_zigzag(c):
        c.settle(rule, moe_dense_tp_size=1, moe_a2a_backend="deepep", ep_size=c.tp_size)
    kept = c.release.keeps_context_width and is_sparse(c) and not _is_zigzag(c) and c.attn_cp_size > 1
    c.settle(rule, attn_cp_size=c.attn_cp_size if kept else c.tp_size // groups)
    if "backend" not in c.prefill.locked:
        c.disable(c.prefill, rule)


def _is_zigzag(c: Choices) -> bool:
    named = c.cp_strategy
    return bool(named == "zigzag" or (named is None and c.enable_prefill_context_parallel))


def _check_shared_prefill(c: Choices, groups: int) -> None:
    if c.tp_size > 8:
        raise ConfigError(f"--tp {c.tp_size}: prefills are shared by at most 8 ranks")
    if groups > 1 and not _is_zigzag(c) and not c.release.keeps_context_width:
        raise ConfigError("interleaved prefills do not go with --dp", "--cp-strategy zigzag, or no --dp")


def settle_data_parallelism(c: Choices) -> None:
    """DP attention shares the prefill chunk among its groups."""
    attn_dp = c.attn_dp_size
    if attn_dp > 1:
        if c.tp_size % attn_dp:
            raise ConfigError(
                f"--dp {attn_dp} does not divide --tp {c.tp_size}: with --enable-dp-attention each DP group "
                "holds tp/dp ranks"
            )
        share = c.chunked_prefill_size // attn_dp
        c.settle(f"{attn_dp} groups of DP attention share it", chunked_prefill_size=share)
        fit_prefill_graphs(c)
