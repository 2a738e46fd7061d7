"""The matrices of one rank's layers, as a server multiplies by them: what is split, fused or replicated.

Router gates, the LM head and embeddings are never quantized, and are not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.config import AttentionConfig, ModelConfig, ParallelConfig

_FUSED_ROWS = 128


@dataclass(frozen=True, slots=True)
class LinearSize:
    """[n, k], and the matrices of a checkpoint that it is made of, in each of `layers`."""

    modules: tuple[str, ...]
    k: int
    n: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many ranks MLPs are split: dense ones, and the shared experts."""

    dense: int
    shared: int
    # Gate and up of the shared experts are a kernel's of its own.
    fuses_shared: bool = False


def quantized_sizes(
    model: ModelConfig, parallel: ParallelConfig, spread: Spread
) -> tuple[tuple[int, int], ...]:
    """(k, n) of what is quantized in one layer at least, each once."""
    sizes = linears(model, parallel, spread)
    return tuple(dict.fromkeys((one.k, one.n) for one in sizes if _is_quantized(model, one)))


def linears(model: ModelConfig, parallel: ParallelConfig, spread: Spread) -> Iterator[LinearSize]:
    for kind in dict.fromkeys(model.attention_kinds):
        layers = tuple(i for i, one in enumerate(model.attention_kinds) if one == kind)
        attention = model.attention[kind]
        parts = _latent if model.is_mla else _grouped
        for modules, k, n in parts(model, attention, parallel):
            yield LinearSize(tuple(f"self_attn.{one}" for one in modules), k, n, layers)
    for kind, name, width in _mlps(model, spread):
        layers = tuple(i for i, one in enumerate(model.layer_kinds) if one == kind)
        if kind == "dense" or not (spread.fuses_shared and 2 * width % _FUSED_ROWS == 0):
            yield LinearSize((f"{name}.gate_proj", f"{name}.up_proj"), model.hidden_size, 2 * width, layers)
        yield LinearSize((f"{name}.down_proj",), width, model.hidden_size, layers)


Product = tuple[tuple[str, ...], int, int]


def _grouped(model: ModelConfig, attention: AttentionConfig, parallel: ParallelConfig) -> Iterator[Product]:
    heads, kv_heads = (
        max(1, count // parallel.attn_tp) for count in (attention.num_heads, attention.num_kv_heads)
    )
    both = (heads + 2 * kv_heads) * attention.head_dim
    yield ("q_proj", "k_proj", "v_proj"), model.hidden_size, both
    yield ("o_proj",), heads * attention.head_dim, model.hidden_size


def _latent(model: ModelConfig, attention: AttentionConfig, parallel: ParallelConfig) -> Iterator[Product]:
    mla, hidden = model.mla, model.hidden_size
    assert mla is not None
    heads = attention.num_heads // parallel.attn_tp
    if mla.q_lora_rank:
        yield ("q_a_proj", "kv_a_proj_with_mqa"), hidden, mla.q_lora_rank + mla.cache_dim
        yield ("q_b_proj",), mla.q_lora_rank, heads * mla.qk_head_dim
    else:
        yield ("q_proj",), hidden, heads * mla.qk_head_dim
        yield ("kv_a_proj_with_mqa",), hidden, mla.cache_dim
    yield ("kv_b_proj",), mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield ("o_proj",), heads * mla.v_head_dim, hidden
    if mla.indexer and mla.q_lora_rank:
        yield ("indexer.wq_b",), mla.q_lora_rank, mla.indexer.num_heads * mla.indexer.head_dim


def _mlps(model: ModelConfig, spread: Spread) -> Iterator[tuple[str, str, int]]:
    if "dense" in model.layer_kinds:
        yield "dense", "mlp", model.intermediate_size // spread.dense
    if model.moe and model.moe.shared_intermediate_size and "moe" in model.layer_kinds:
        name = "mlp.shared_expert" if model.moe.shared_gate else "mlp.shared_experts"
        yield "moe", name, model.moe.shared_intermediate_size // spread.shared


def _is_quantized(model: ModelConfig, size: LinearSize) -> bool:
    return any(
        not model.excluded.linear([f"model.layers.{layer}.{one}" for one in size.modules])
        for layer in size.layers
    )
