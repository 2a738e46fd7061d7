"""The matrices of one rank's layers, as a server multiplies by them: what is split, fused or replicated.

Router gates, the LM head and embeddings are never quantized, and are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from runtime.server.call_rules import plain_anyway, quantizes_experts_alone
from runtime.server.config import ModelConfig
from runtime.server.formats.kinds import Kind
from runtime.server.layer_config import AttentionConfig, BlockConfig, LayerInputsConfig
from runtime.server.mixer_linears import Product, by_distance, chained_router, recurrent, twice_convolved
from runtime.server.parallel_config import ParallelConfig
from runtime.server.recurrent import TwiceConvolvedConfig
from runtime.server.residual_config import PredictionsConfig
from runtime.server.tensor_names import within

_FUSED_ROWS = 128
# How MiniMax-M3's heads and their indexer store what they ask with, where both are made one matrix.
JOINED = (None, "mxfp8")
# Whose attention asks for TP's ranks, not for attention's: srt/models.
SPLIT_OVER_TP = (
    *(
        "llama",
        "mistral",
        "mixtral",
        "mixtral_quant",
        "qwen2",
        "glm4",
        "ernie4_5",
        "ernie4_5_moe",
        "ernie4_5_vl_moe_text",
    ),
    *("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm_ocr_text"),
    *("bert", "xlm-roberta"),
    *("exaone4", "olmo2", "olmoe", "phi3", "gemma", "gemma2", "gemma3", "gemma3_text", "granite"),
    *("granitemoe", "granitemoehybrid", "arcee", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral3", "mimo"),
    *("orion", "baichuan", "xverse", "xverse_moe", "TeleFLM", "qwen"),
    *("lfm2", "lfm2_moe", "cohere", "cohere2", "cohere2_moe", "internlm2", "hy_v3", "gemma4_text", "afmoe"),
    *("granitemoeshared", "granitemoe_swa", "olmo3", "starcoder2", "internlm3", "grok", "nemotron-nas"),
    *("stablelm", "olmo", "iquestcoder", "apertus", "exaone", "deepseek", "paddleocr_vl_text"),
    *(
        "minicpm",
        "minicpm_sala",
        "dbrx",
        "diffusion_gemma_text",
        "muse_glimmer_text",
        "persimmon",
        "phi",
        "solar",
    ),
    *("zaya", "minicpm3", "granite_swa", "chatglm", "gpt2", "opt", "gpt_bigcode", "gptj"),
    *("nanbeige", "gemma3n_text", "mllama_text_model", "moss_vl_text", "iquestloopcoder", "embedding_gemma"),
    "phi3small",
)

Place = Literal["mixer", "dense", "beside experts"]
Wanted = Callable[[Kind | None], bool]


@dataclass(frozen=True, slots=True)
class LinearSize:
    """[n, k], and the matrices of a checkpoint that it is made of, in each of `layers`; where there are none,
    of the model."""

    modules: tuple[str, ...]
    k: int
    n: int
    layers: tuple[int, ...]
    place: Place = "mixer"


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many ranks MLPs are split: dense ones, and the shared experts; 0 where these are no MLPs."""

    dense: int
    shared: int
    # Gate and up of the shared experts are a kernel's of its own.
    fuses_shared: bool = False
    # Experts are MLPs, one after the other, whole on their rank.
    loose_experts: bool = False
    # What an indexer keeps of a token is a part of a product in the model's dtype.
    joins_indexer: bool = True


def quantized_sizes(
    model: ModelConfig, parallel: ParallelConfig, spread: Spread, wanted: Wanted | None = None
) -> tuple[tuple[int, int, Place], ...]:
    """(k, n) of what is quantized in one layer at least, each once a place; `wanted`: in such a kind."""
    if quantizes_experts_alone(model):
        return ()
    sizes = (one for one in linears(model, parallel, spread) if not _is_left_out(model, one))
    asked = _is_quantized if wanted is None else partial(_is_wanted, wanted)
    return tuple(dict.fromkeys((one.k, one.n, one.place) for one in sizes if asked(model, one)))


def _is_left_out(model: ModelConfig, size: LinearSize) -> bool:
    """What nobody multiplies by, and what its class gives no method, whoever quantizes."""
    is_dropped = model.drops_absorbed and size.modules[0].endswith("kv_b_proj")
    return is_dropped or size.modules[0].endswith(plain_anyway(model))


def linears(model: ModelConfig, parallel: ParallelConfig, spread: Spread) -> Iterator[LinearSize]:
    for size in _linears(model, parallel, spread):
        yield from _in_halves(size) if model.shortcut else (size,)


def splits_over_tp(model: ModelConfig) -> bool:
    return model.by_transformers or model.model_type in SPLIT_OVER_TP


def listed_as(model: ModelConfig, size: LinearSize, layer: int) -> Sequence[str]:
    """What lists call its parts."""
    return model.names.listed([f"{model.layer_name(layer)}.{one}" for one in size.modules])


def each_listed(model: ModelConfig) -> Iterator[tuple[LinearSize, int, Sequence[str]]]:
    """Each matrix of each layer, as it is on one rank."""
    for size in linears(model, ParallelConfig(), Spread(1, 1)):
        for layer in size.layers:
            yield size, layer, listed_as(model, size, layer)


def experts_listed(model: ModelConfig) -> Iterator[str]:
    """What lists call all experts of a layer."""
    layers = (layer for layer, kind in enumerate(model.layer_kinds) if kind == "moe")
    return (model.experts_name(model.block_name(layer)) for layer in layers)


def _in_halves(size: LinearSize) -> Iterator[LinearSize]:
    for half in range(2):
        layers = tuple(layer for layer in size.layers if layer % 2 == half)
        modules = tuple(one.replace(".", f".{half}.", 1) for one in size.modules)
        yield LinearSize(modules, size.k, size.n, layers, size.place)


def _linears(model: ModelConfig, parallel: ParallelConfig, spread: Spread) -> Iterator[LinearSize]:
    own = slice(0, model.own_layers)
    for kind in dict.fromkeys(model.attention_kinds[own]):
        layers = tuple(i for i, one in enumerate(model.attention_kinds[own]) if one == kind)
        for name, products in _mixers(model, kind, parallel, spread):
            for modules, k, n in products:
                theirs = layers
                if modules[0].startswith("indexer."):
                    theirs = tuple(layer for layer in layers if not model.shares_choice(layer))
                yield LinearSize(tuple(f"{name}.{one}" for one in modules), k, n, theirs)
    for kind in ("dense", "moe"):
        kinds = ("dense", "moe") if kind == "dense" and model.shortcut else (kind,)
        of_kind = [i for i, one in enumerate(model.layer_kinds[own]) if one in kinds]
        for width in dict.fromkeys(map(model.mlp_size, of_kind)):
            layers = tuple(i for i in of_kind if model.mlp_size(i) == width)
            yield from _of_mlps(model, spread, kind, width, layers)
    if model.layer_inputs is not None:
        yield from _inputs(model, model.layer_inputs, parallel.tp)
    if model.predictions is not None:
        yield from _of_predictions(model, model.predictions, parallel.tp)
    if model.ngrams is not None and model.streams is not None:
        for name, rows in (("key", model.streams.count * model.hidden_size), ("value", model.hidden_size)):
            yield LinearSize((f"ple.{name}_proj",), model.ngrams.width, rows, model.ngrams.layers)


def _of_mlps(
    model: ModelConfig, spread: Spread, kind: str, width: int, layers: tuple[int, ...]
) -> Iterator[LinearSize]:
    place: Place = "dense" if kind == "dense" else "beside experts"
    products = (_dense if kind == "dense" else _beside_experts)(model, spread, width)
    yield from (LinearSize(modules, k, n, layers, place) for modules, k, n in products)


def _inputs(model: ModelConfig, inputs: LayerInputsConfig, ranks: int) -> Iterator[LinearSize]:
    """Of every layer, made on the first stage; then in each of them."""
    hidden, width, layers = model.hidden_size, inputs.width, tuple(range(model.num_layers))
    made = model.num_layers * width // (ranks if inputs.gathered else 1)
    yield LinearSize(("model.per_layer_model_projection",), hidden, made, ())
    yield LinearSize(("per_layer_input_gate",), hidden, width, layers)
    yield LinearSize(("per_layer_projection",), width, hidden, layers)


def _of_predictions(model: ModelConfig, config: PredictionsConfig, ranks: int) -> Iterator[LinearSize]:
    """Before all layers, in each of them, and behind them."""
    hidden, count, layers = model.hidden_size, config.count, tuple(range(model.num_layers))
    for name in ("altup_projections", "altup_unembed_projections"):
        for number in range(count - 1):
            yield LinearSize((f"model.{name}.{number}",), hidden, hidden // ranks, ())
    yield LinearSize(("altup.correction_coefs",), count, count, layers)
    yield LinearSize(("altup.prediction_coefs",), count, count**2, layers)
    yield LinearSize(("altup.modality_router",), hidden, count, layers)
    yield LinearSize(("laurel.linear_left",), hidden, config.rank // ranks, layers)
    yield LinearSize(("laurel.linear_right",), config.rank // ranks, hidden, layers)


def _mixers(
    model: ModelConfig, kind: str, parallel: ParallelConfig, spread: Spread
) -> Iterator[tuple[str, Iterator[Product]]]:
    if kind != "recurrent":
        yield model.attention_name(kind), _attention(model, kind, parallel, spread)
    if kind == "recurrent" or (model.recurs_beside and kind in model.attention):
        yield model.names.recurrent, recurrent(model, parallel.attn_tp)


def _attention(model: ModelConfig, kind: str, parallel: ParallelConfig, spread: Spread) -> Iterator[Product]:
    if model.compressed is not None:
        yield from _compressed(model, kind, parallel.attn_tp)
    elif kind in model.attention:
        # DP attention is not for these: each of its groups would need all heads, and has a part of them.
        ranks = parallel.tp if splits_over_tp(model) else parallel.attn_tp
        if isinstance(model.recurrent, TwiceConvolvedConfig):
            yield from twice_convolved(model, model.attention[kind], ranks)
        elif model.attention[kind].distance is not None:
            yield from by_distance(model, model.attention[kind], ranks)
        elif model.is_mla:
            yield from _latent(model, model.attention[kind], ranks, spread.joins_indexer)
        else:
            yield from _grouped(model, model.attention[kind], ranks)


def _grouped(model: ModelConfig, attention: AttentionConfig, ranks: int) -> Iterator[Product]:
    heads, kv_heads = (max(1, count // ranks) for count in (attention.num_heads, attention.num_kv_heads))
    asked = 2 * heads if attention.output_gate else heads
    asks = attention.query_rank or asked * attention.head_dim
    rows = asks + kv_heads * (attention.head_dim + attention.value_width)
    packed, read = model.names.packed_qkv, attention.inputs * model.hidden_size
    asking = ("q_proj", "k_proj", "v_proj") if packed is None else (packed,)
    if attention.value_gate_by is not None:
        wide, narrow = heads * attention.head_dim, kv_heads * attention.head_dim
        apart = {"q_proj": wide, "k_proj": narrow, "gate_proj": wide}
        apart |= {} if attention.routed else {"v_proj": narrow}
        yield from (((name,), read, count) for name, count in apart.items())
    elif model.names.attends_apart:
        widths = heads * attention.head_dim, kv_heads * attention.head_dim, kv_heads * attention.value_width
        yield from (((name,), read, width) for name, width in zip(asking, widths, strict=True))
    elif attention.blocks is None:
        yield asking, read, rows
    else:
        yield from _with_index(model, attention.blocks, (asking, read, rows), ranks)
    if attention.query_rank:
        yield ("wq",), attention.query_rank, heads * attention.head_dim
    yield (model.names.attention_out,), heads * attention.value_width, model.hidden_size
    if attention.pools is not None:
        pools = attention.pools
        yield ("indexer.index_qk_proj",), model.hidden_size, (pools.num_heads + 1) * pools.head_dim
    if attention.value_gate:
        yield (model.names.value_gate,), model.hidden_size, heads * attention.head_dim
    if attention.softplus_gate is not None:
        each = attention.head_dim if attention.softplus_gate == "value" else 1
        yield ("g_proj",), model.hidden_size, heads * each


def _with_index(model: ModelConfig, blocks: BlockConfig, asking: Product, ranks: int) -> Iterator[Product]:
    names, read, rows = asking
    index, own = ("index_q_proj", "index_k_proj"), (max(1, blocks.num_heads // ranks) + 1) * blocks.head_dim
    if model.checkpoint_quantization in JOINED:
        yield (*names, *index), read, rows + own
    else:
        yield from (asking, (index, read, own))


def _latent(model: ModelConfig, attention: AttentionConfig, ranks: int, joined: bool) -> Iterator[Product]:
    mla, hidden = model.mla_of("full" if attention.window is None else "sliding"), model.hidden_size
    heads, read = attention.num_heads // ranks, attention.inputs * hidden
    if mla.q_lora_rank and attention.gates_first:
        gates = heads * (mla.v_head_dim if attention.value_gate else 1)
        rows = mla.q_lora_rank + mla.cache_dim + gates + -gates % 8
        yield ("q_a_proj", "kv_a_proj_with_mqa", "g_proj"), hidden, rows
        yield ("q_b_proj",), mla.q_lora_rank, heads * mla.qk_head_dim
    elif mla.q_lora_rank and model.drops_absorbed:
        yield ("q_a_proj",), hidden, mla.q_lora_rank
        yield ("kv_a_proj_with_mqa",), hidden, mla.cache_dim
        yield ("q_b_proj",), mla.q_lora_rank, heads * mla.qk_head_dim
    elif mla.q_lora_rank:
        yield ("q_a_proj", "kv_a_proj_with_mqa"), read, mla.q_lora_rank + mla.cache_dim
        yield ("q_b_proj",), mla.q_lora_rank, heads * mla.qk_head_dim
    else:
        yield ("q_proj",), hidden, heads * mla.qk_head_dim
        yield ("kv_a_proj_with_mqa",), hidden, mla.cache_dim
    yield ("kv_b_proj",), mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield (model.names.attention_out,), heads * mla.v_head_dim, hidden
    if attention.value_gate and not attention.gates_first:
        yield (model.names.latent_gate,), hidden, heads * mla.v_head_dim
    if mla.indexer and mla.q_lora_rank:
        yield ("indexer.wq_b",), mla.q_lora_rank, mla.indexer.num_heads * mla.indexer.head_dim
        if mla.indexer.pool > 1 or not joined:
            yield ("indexer.wk",), hidden, mla.indexer.head_dim


def _compressed(model: ModelConfig, kind: str, ranks: int) -> Iterator[Product]:
    """Without what is in the model's dtype whatever a checkpoint says, and the matrices of groups of heads,
    which no linear layer multiplies by."""
    own, attention, hidden = model.compressed, model.attention[kind], model.hidden_size
    assert own is not None
    rows = attention.num_heads // ranks * attention.head_dim
    yield ("q_a_proj", "kv_proj"), hidden, own.q_lora_rank + attention.head_dim
    yield ("q_b_proj",), own.q_lora_rank, rows
    yield (model.names.attention_out,), own.output_groups * own.output_rank // ranks, hidden
    if kind == "sparse":
        yield ("compressor.indexer.q_b_proj",), own.q_lora_rank, own.indexer.num_heads * own.indexer.head_dim


def _dense(model: ModelConfig, spread: Spread, width: int) -> Iterator[Product]:
    return _mlp(model, model.names.mlp, width // spread.dense)


def _beside_experts(model: ModelConfig, spread: Spread, dense: int) -> Iterator[Product]:
    moe, mlp = model.moe, model.names.mlp
    if moe is None:
        return
    if moe.router_width:
        yield from chained_router(mlp, model.hidden_size, moe)
    if moe.beside_dense:
        yield from _dense(model, spread, dense)
    if spread.loose_experts:
        yield (f"{mlp}.experts.0.w1",), model.hidden_size, moe.intermediate_size
        yield (f"{mlp}.experts.0.w2",), moe.intermediate_size, model.hidden_size
    if moe.latent_size and not moe.sums_latents:
        yield (f"{mlp}.fc1_latent_proj",), model.hidden_size, moe.latent_size
        yield (f"{mlp}.fc2_latent_proj",), moe.latent_size, model.hidden_size
    if moe.shared_intermediate_size and spread.shared:
        width = moe.shared_intermediate_size // spread.shared
        *ups, down = _mlp(model, model.shared_name(mlp), width)
        if not (spread.fuses_shared and 2 * width % _FUSED_ROWS == 0):
            yield from ups
        yield down


def _mlp(model: ModelConfig, name: str, width: int) -> Iterator[Product]:
    names = model.names
    ups = (names.gate, names.up) if model.gated_mlps else (names.up,)
    if names.multiplies_apart:
        yield from (((within(name, one),), model.hidden_size, width) for one in ups)
    else:
        yield tuple(within(name, one) for one in ups), model.hidden_size, len(ups) * width
    yield (within(name, names.down),), width, model.hidden_size


def _is_wanted(wanted: Wanted, model: ModelConfig, size: LinearSize) -> bool:
    named = [listed_as(model, size, layer) for layer in size.layers] or [size.modules]
    return any(wanted(model.quantized.of_linear(parts)) for parts in named)


def _is_quantized(model: ModelConfig, size: LinearSize) -> bool:
    if not size.layers:
        return not model.excluded.linear(size.modules)
    return any(not model.excluded.linear(listed_as(model, size, layer)) for layer in size.layers)
