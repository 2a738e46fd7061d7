"""The matrices of one rank's layers as a server multiplies by them: split, fused or replicated.

Router gates, the LM head and embeddings are never quantized, and are not listed here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from runtime.server.config import ModelConfig
from runtime.server.layer_config import AttentionConfig, GatedDeltaConfig, Mamba2Config
from runtime.server.parallel import ParallelConfig

_FUSED_ROWS = 128

Place = Literal["mixer", "dense", "beside experts"]
Product = tuple[tuple[str, ...], int, int]  # matrices of a checkpoint, k and n


@dataclass(frozen=True, slots=True)
class LinearSize:
    """An [n, k] product, and the checkpoint's matrices that it is made of, in each of `layers`."""

    modules: tuple[str, ...]
    k: int
    n: int
    layers: tuple[int, ...]
    place: Place = "mixer"


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of ranks that share an MLP: of dense ones, and of shared experts."""

    dense: int
    shared: int
    fuses_shared: bool = False  # another kernel runs gate and up of the shared experts


def quantized_sizes(
    model: ModelConfig, parallel: ParallelConfig, spread: Spread
) -> tuple[tuple[int, int, Place], ...]:
    """Return the (k, n) of products that are quantized in at least one layer, once per place."""
    if model.traits.quantizes_experts_alone:
        return ()
    sizes = linears(model, parallel, spread)
    return tuple(dict.fromkeys((one.k, one.n, one.place) for one in sizes if _is_quantized(model, one)))


def linears(model: ModelConfig, parallel: ParallelConfig, spread: Spread) -> Iterator[LinearSize]:
    for kind in dict.fromkeys(model.attention_kinds):
        layers = tuple(i for i, one in enumerate(model.attention_kinds) if one == kind)
        name = model.names.recurrent if kind == "recurrent" else model.names.attention
        for modules, k, n in _mixer(model, kind, parallel):
            yield LinearSize(tuple(f"{name}.{one}" for one in modules), k, n, layers)
    dense = _mlp(model, model.names.mlp, model.intermediate_size // spread.dense)
    parts: tuple[tuple[str, Place, Iterator[Product]], ...]
    parts = (("dense", "dense", dense), ("moe", "beside experts", _beside_experts(model, spread)))
    for kind, place, products in parts:
        layers = tuple(i for i, one in enumerate(model.layer_kinds) if one == kind)
        if layers:
            yield from (LinearSize(modules, k, n, layers, place) for modules, k, n in products)


def _mixer(model: ModelConfig, kind: str, parallel: ParallelConfig) -> Iterator[Product]:
    if kind == "recurrent":
        yield from recurrent(model, parallel.attn_tp)
    elif kind in model.attention:
        # Not under DP attention: each of its groups would need all heads, but has only a part of them.
        ranks = parallel.tp if model.traits.splits_over_tp else parallel.attn_tp
        form = _grouped if model.mla is None else _latent
        yield from form(model, model.attention[kind], ranks)


def recurrent(model: ModelConfig, ranks: int) -> Iterator[Product]:
    config, hidden = model.recurrent, model.hidden_size
    if isinstance(config, GatedDeltaConfig):
        yield ("in_proj_qkvz",), hidden, 2 * (config.key_dim + config.value_dim) // ranks
        yield ("in_proj_ba",), hidden, 2 * config.num_value_heads // ranks
        yield ("out_proj",), config.value_dim // ranks, hidden
    elif isinstance(config, Mamba2Config):
        heads, inner = config.num_heads // ranks, config.inner_size // ranks
        groups = max(1, config.num_groups // ranks)  # with fewer heads than ranks, each rank has one
        yield ("in_proj",), hidden, 2 * inner + 2 * groups * config.state_size + heads
        yield ("out_proj",), inner, hidden


def _grouped(model: ModelConfig, attention: AttentionConfig, ranks: int) -> Iterator[Product]:
    heads, kv_heads = (max(1, count // ranks) for count in (attention.num_heads, attention.num_kv_heads))
    asked = 2 * heads if attention.output_gate else heads
    yield ("q_proj", "k_proj", "v_proj"), model.hidden_size, (asked + 2 * kv_heads) * attention.head_dim
    yield ("o_proj",), heads * attention.head_dim, model.hidden_size


def _latent(model: ModelConfig, attention: AttentionConfig, ranks: int) -> Iterator[Product]:
    mla, hidden, heads = model.mla, model.hidden_size, attention.num_heads // ranks
    assert mla is not None
    yield ("q_a_proj", "kv_a_proj_with_mqa"), hidden, mla.q_lora_rank + mla.cache_dim
    yield ("q_b_proj",), mla.q_lora_rank, heads * mla.qk_head_dim
    yield ("kv_b_proj",), mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield ("o_proj",), heads * mla.v_head_dim, hidden
    if mla.indexer:
        yield ("indexer.wq_b",), mla.q_lora_rank, mla.indexer.num_heads * mla.indexer.head_dim
        if not mla.indexer.interleaved:
            yield ("indexer.wk",), hidden, mla.indexer.head_dim


def _beside_experts(model: ModelConfig, spread: Spread) -> Iterator[Product]:
    moe, mlp = model.moe, model.names.mlp
    if moe is None:
        return
    if moe.latent_size:
        yield (f"{mlp}.fc1_latent_proj",), model.hidden_size, moe.latent_size
        yield (f"{mlp}.fc2_latent_proj",), moe.latent_size, model.hidden_size
    if moe.shared_intermediate_size:
        width = moe.shared_intermediate_size // spread.shared
        *ups, down = _mlp(model, model.shared_name(mlp), width)
        if not (spread.fuses_shared and 2 * width % _FUSED_ROWS == 0):
            yield from ups
        yield down


def _mlp(model: ModelConfig, name: str, width: int) -> Iterator[Product]:
    ups = ("gate_proj", "up_proj") if model.style.gated else ("up_proj",)
    yield tuple(f"{name}.{one}" for one in ups), model.hidden_size, len(ups) * width
    yield (f"{name}.down_proj",), width, model.hidden_size


def _is_quantized(model: ModelConfig, size: LinearSize) -> bool:
    named = ([f"{model.layer_name(layer)}.{one}" for one in size.modules] for layer in size.layers)
    return any(model.quantized.of_linear(parts) is not None for parts in named)
