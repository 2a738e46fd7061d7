"""How much memory a worker needs to tune: one layer of each kind and its largest batch, not the model."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.layer_config import CompressedConfig
from runtime.server.mixer_linears import recurrent
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizing import kv_heads_per_rank
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.expert_calls import MXFP4_BESIDE_FP8, NVFP4_BESIDE_FP8, STATIC_FP8, weights_of
from sgl_tune.keys.keys import TunedOp

# Bytes a weight, with its share of block scales.
_WEIGHT_BYTES = {"modelopt_fp4": 0.57, "mxfp4": 0.54, "fp8": 1.01, "modelopt_fp8": 1.0, STATIC_FP8: 1.0}
_WEIGHT_BYTES |= {MXFP4_BESIDE_FP8: _WEIGHT_BYTES["mxfp4"], NVFP4_BESIDE_FP8: _WEIGHT_BYTES["modelopt_fp4"]}
_PLAIN_BYTES = 2.0
_ACTIVATION_BYTES = 2
# Hidden-sized buffers alive at once around a layer: input, residual, normed, attention's, the layer's output.
_HIDDEN_BUFFERS = 6


def tuning_bytes(deployment: Deployment, ops: tuple[TunedOp, ...]) -> int:
    """An estimate from shapes; CUDA's own context is not in it."""
    model, parallel = deployment.model, deployment.parallel
    rows = max((bucket for op in ops for bucket in op.buckets), default=0)
    weight = _WEIGHT_BYTES.get(deployment.quantization or "", _PLAIN_BYTES)
    layers = _attention_weights(model, parallel) + _dense_weights(model, parallel)
    total = layers * weight + rows * model.hidden_size * _HIDDEN_BUFFERS * _ACTIVATION_BYTES
    if model.moe is not None:
        width = model.moe.intermediate_size // parallel.moe_tp
        local = model.moe.places // parallel.moe_ep
        stored = _WEIGHT_BYTES.get(weights_of(deployment) or "", weight)
        widths = sum(moe.intermediate_size // parallel.moe_tp for moe in model.moes)
        matrices, hidden = 2 + model.gated_mlps, model.moe.latent_size or model.hidden_size
        total += local * matrices * hidden * widths * stored
        # Tokens are copied to each of their experts, in the widths of both GEMMs.
        total += rows * model.moe.top_k * (2 * model.hidden_size + 3 * width) * _ACTIVATION_BYTES
    return int(total)


def _attention_weights(model: ModelConfig, parallel: ParallelConfig) -> int:
    if not model.attention:
        return sum(k * n for _, k, n in recurrent(model, parallel.attn_tp))
    attention, mla = model.main_attention, model.mla
    heads = attention.num_heads // parallel.attn_tp
    if model.compressed is not None:
        return _compressed_weights(model, model.compressed, heads)
    if mla is None:
        width = attention.head_dim + attention.value_width
        return model.hidden_size * width * (heads + kv_heads_per_rank(attention, parallel))
    query_input = mla.q_lora_rank or model.hidden_size
    down = model.hidden_size * ((mla.q_lora_rank or 0) + mla.cache_dim)
    up = heads * (query_input * mla.qk_head_dim + mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim))
    return down + up + heads * mla.v_head_dim * model.hidden_size


def _compressed_weights(model: ModelConfig, compressed: CompressedConfig, heads: int) -> int:
    """Of a layer that compresses the most finely, which has an indexer too."""
    width, attention = model.hidden_size, model.main_attention
    queries = compressed.q_lora_rank * (width + heads * attention.head_dim)
    answers = heads * attention.head_dim * compressed.output_rank
    answers += compressed.output_groups * compressed.output_rank * width * heads // attention.num_heads
    indexer = compressed.indexer
    indexed = indexer.num_heads * (compressed.q_lora_rank * indexer.head_dim + width)
    return queries + answers + indexed + width * (5 * attention.head_dim + 4 * indexer.head_dim)


def _dense_weights(model: ModelConfig, parallel: ParallelConfig) -> int:
    width = max(map(model.mlp_size, range(model.num_layers))) if "dense" in model.layer_kinds else 0
    if model.moe is not None:
        width += model.moe.shared_intermediate_size
    return 3 * model.hidden_size * width // parallel.tp
