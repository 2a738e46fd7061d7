"""How much memory a worker needs to tune: one layer of each kind and its largest batch, not the model."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.keys import TunedOp

# Bytes a weight, with its share of block scales.
_WEIGHT_BYTES = {"modelopt_fp4": 0.57, "mxfp4": 0.54, "fp8": 1.01, "modelopt_fp8": 1.0}
_PLAIN_BYTES, _ACTIVATION_BYTES = 2.0, 2
# Hidden-sized buffers alive at once around a layer: input, residual, normed, attention's, the layer's output.
_HIDDEN_BUFFERS = 6


def tuning_bytes(deployment: Deployment, ops: tuple[TunedOp, ...]) -> int:
    """An estimate from shapes; CUDA's own context is not in it."""
    model, parallel, moe = deployment.model, deployment.parallel, deployment.model.moe
    rows = max((bucket for op in ops for bucket in op.buckets), default=0)
    weight = _WEIGHT_BYTES.get(deployment.quantization or "", _PLAIN_BYTES)
    layers = _mixer_weights(model, parallel) + _dense_weights(model, parallel)
    total = layers * weight + rows * model.hidden_size * _HIDDEN_BUFFERS * _ACTIVATION_BYTES
    if moe is not None:
        width, local = moe.intermediate_size // parallel.moe_tp, moe.num_experts // parallel.moe_ep
        matrices, hidden = 2 + model.style.gated, moe.latent_size or model.hidden_size
        total += local * matrices * hidden * width * weight
        # Tokens are copied to each of their experts, in the widths of both GEMMs.
        total += rows * moe.top_k * (2 * model.hidden_size + 3 * width) * _ACTIVATION_BYTES
    return int(total)


def _mixer_weights(model: ModelConfig, parallel: ParallelConfig) -> int:
    attention, mla = model.main_attention, model.mla
    heads = attention.num_heads // parallel.attn_tp
    if mla is None:
        kv_heads = max(1, attention.num_kv_heads // parallel.attn_tp)
        return 2 * model.hidden_size * attention.head_dim * (heads + kv_heads)
    query_input = mla.q_lora_rank or model.hidden_size
    down = model.hidden_size * ((mla.q_lora_rank or 0) + mla.cache_dim)
    up = heads * (query_input * mla.qk_head_dim + mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim))
    return down + up + heads * mla.v_head_dim * model.hidden_size


def _dense_weights(model: ModelConfig, parallel: ParallelConfig) -> int:
    width = model.intermediate_size if "dense" in model.layer_kinds else 0
    shared = model.moe.shared_intermediate_size if model.moe is not None else 0
    return 3 * model.hidden_size * (width + shared) // parallel.tp
