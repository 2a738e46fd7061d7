"""... of layers with a state, and of routers that are MLPs."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.config import ModelConfig
from runtime.server.layer_config import AttentionConfig, MoEConfig
from runtime.server.recurrent import (
    DynamicDeltaConfig,
    GatedDeltaConfig,
    KimiDeltaConfig,
    LightningConfig,
    Mamba2Config,
    ShortConvConfig,
)
from runtime.server.selective_scan import SelectiveScanConfig

Product = tuple[tuple[str, ...], int, int]


def recurrent(model: ModelConfig, ranks: int) -> Iterator[Product]:
    config, hidden = model.recurrent, model.hidden_size
    if isinstance(config, GatedDeltaConfig):
        whole = config.projections == "heads"
        mixed = ("in_proj_qkvz",) if whole else ("in_proj_qkv", "in_proj_z")
        gates = ("in_proj_ba",) if whole else ("in_proj_b", "in_proj_a")
        yield mixed, hidden, 2 * (config.key_dim + config.value_dim) // ranks
        yield gates, hidden, 2 * config.num_value_heads // ranks
        yield ("out_proj",), config.value_dim // ranks, hidden
    elif isinstance(config, DynamicDeltaConfig):
        yield from _of_taps(config, hidden, ranks)
    elif isinstance(config, KimiDeltaConfig):
        inner = config.inner_size // ranks
        if config.narrow_gates:
            mixed = ("q_proj", "k_proj", "v_proj", *(("g_proj",) if config.whole_gate else ()))
            yield mixed, hidden, len(mixed) * inner
            yield ("b_proj",), hidden, config.num_heads // ranks
            for gate in "f" if config.whole_gate else "fg":
                yield (f"{gate}_a_proj",), hidden, config.head_dim
                yield (f"{gate}_b_proj",), config.head_dim, inner
        else:
            yield tuple(f"{one}_proj" for one in "qkvfg"), hidden, 5 * inner
        yield (model.names.attention_out,), inner, hidden
    elif isinstance(config, LightningConfig):
        inner = config.inner_size // ranks
        packed = model.names.packed_qkv
        yield ("q_proj", "k_proj", "v_proj") if packed is None else (packed,), hidden, 3 * inner
        if config.gated:
            yield (model.names.state_gate,), hidden, inner
        yield (model.names.attention_out,), inner, hidden
    elif isinstance(config, Mamba2Config):
        heads, inner = config.num_heads // ranks, config.inner_size // ranks
        groups = max(1, config.num_groups // ranks)  # where they do not go round, each rank has one
        yield ("in_proj",), hidden, 2 * inner + 2 * groups * config.state_size + heads
        yield ("out_proj",), inner, hidden
    elif isinstance(config, SelectiveScanConfig):
        channels = config.channels // ranks
        yield ("in_proj",), hidden, 2 * channels
        yield ("x_proj",), channels, config.narrow
        yield ("dt_proj",), config.step_rank, channels
        yield ("out_proj",), channels, hidden
    elif isinstance(config, ShortConvConfig):
        yield ("in_proj",), hidden, 3 * config.channels // ranks
        yield ("out_proj",), config.channels // ranks, hidden


def _of_taps(config: DynamicDeltaConfig, hidden: int, ranks: int) -> Iterator[Product]:
    taps, values = "dynamic_conv1d.kernel_generator", config.value_dim // ranks
    rows = 2 * config.key_dim // ranks + 2 * values + 2 * config.num_heads // ranks
    yield tuple(f"{one}_proj" for one in "qkvabg"), hidden, rows
    yield (f"{taps}.w1",), hidden, config.generator_size
    yield (f"{taps}.w2",), config.generator_size, values * config.conv_kernel
    yield ("o_proj",), values, hidden


def twice_convolved(model: ModelConfig, attention: AttentionConfig, ranks: int) -> Iterator[Product]:
    """Values are those of all heads on each rank."""
    hidden, width = model.hidden_size, attention.head_dim
    yield ("qkv.linear_q",), hidden, attention.num_heads // ranks * width
    yield ("qkv.linear_k",), hidden, attention.num_kv_heads // ranks * width
    for half in ("val_proj1", "val_proj2"):
        yield (f"qkv.{half}",), hidden, attention.num_kv_heads * width // 2
    yield ("o_proj",), attention.num_heads // ranks * width, hidden


def by_distance(model: ModelConfig, attention: AttentionConfig, ranks: int) -> Iterator[Product]:
    """Beside queries, keys and values what mixes profiles of distances."""
    hidden, width = model.hidden_size, attention.head_dim
    heads, kv_heads = (max(1, count // ranks) for count in (attention.num_heads, attention.num_kv_heads))
    profiles = 0 if attention.distance is None else attention.distance.profiles
    rows = heads * (width + profiles) + 2 * kv_heads * width
    yield ("wq_du", "wk_dv", "wv_dv", "wr_du"), hidden, rows
    yield (model.names.attention_out,), heads * width, hidden


def chained_router(mlp: str, hidden: int, moe: MoEConfig) -> Iterator[Product]:
    width = moe.router_width or 0
    yield (f"{mlp}.router.down_proj",), hidden, width
    for place in (0, 2):
        yield (f"{mlp}.router.router_mlp.{place}",), width, width
    yield (f"{mlp}.router.router_mlp.4",), width, moe.num_experts + moe.zero_experts
