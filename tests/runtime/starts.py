"""Small models through the whole start, on whichever device."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch

from runtime.devices.base import Device
from runtime.devices.meta import Meta
from runtime.forward.batch import ForwardBatch, ForwardMode
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.logits_processor import LogitsOutput
from runtime.server.choices.graphs import decode_graph_sizes, prefill_graph_sizes
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.layer_config import StateRules
from runtime.server.parallel import ParallelConfig
from runtime.simulate.constants import H200, Constant, GpuConstants
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions
from runtime.start.run_record import Phase
from tests.runtime.configs import model_of, runtime_config

PRESETS = Path(__file__).parents[2] / "sgl_tune" / "presets" / "models"
ONE = ParallelConfig()
_NOTHING = Constant(0, "a GPU that holds nothing but tensors")
BARE = GpuConstants(gemm_workspace=_NOTHING, outside=dict.fromkeys(H200.outside, _NOTHING))


def preset(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((PRESETS / f"{name}.json").read_text())["config"]
    return config


def make_preset(name: str, **more: Any) -> ModelConfig:
    return model_of({**preset(name), **more})


_TINY = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "max_position_embeddings": 128,
}  # fmt: skip
_QWEN = {"model_type": "qwen3_moe", "head_dim": 16, "num_experts": 8, "mlp_only_layers": [0]}
_GLM = {
    "model_type": "glm_moe_dsa", "n_shared_experts": 1, "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 32,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "index_head_dim": 128,
    "index_n_heads": 2, "index_topk": 16,
}  # fmt: skip


def make_qwen(layers: int = 3) -> ModelConfig:
    """One dense layer, then MoE layers; grouped-query attention."""
    return model_of({**_TINY, **_QWEN, "num_hidden_layers": layers})


def make_glm(layers: int = 4) -> ModelConfig:
    """Latent attention with a sparse indexer, one dense layer, then MoE layers with a shared expert."""
    return model_of({**_TINY, **_GLM, "num_hidden_layers": layers})


def make_runtime(**changes: Any) -> RuntimeConfig:
    settings = {
        "dtype": "float32",
        "moe_runner_backend": "torch",
        "prefill_tokens": 32,
        "max_running_requests": 8,
        "mem_fraction_static": 0.5,
        "decode_graphs": decode_graph_sizes(8),
        "states": StateRules(conv_dtype="float32"),
        **changes,
    }
    graphs = prefill_graph_sizes(settings["prefill_tokens"])
    return runtime_config(**{"prefill_graphs": graphs, **settings})


def make_runner(
    model: ModelConfig,
    device: Device,
    parallel: ParallelConfig = ONE,
    runtime: RuntimeConfig | None = None,
    rank: int = 0,
    **options: Any,
) -> ModelRunner:
    alone = partial(VirtualCommunicator, parallel, rank)
    asked = StartOptions(**{"kv_tokens": 512, **options})
    return ModelRunner(model, parallel, runtime or make_runtime(), device, alone, options=asked)


def eager_logits(runner: ModelRunner, batch: ForwardBatch) -> torch.Tensor:
    result = runner.forward(batch if batch.dp else runner.dp_batch(batch))
    assert isinstance(result, LogitsOutput) and result.next_token_logits is not None
    return result.next_token_logits.clone()


def replayed_logits(runner: ModelRunner, batch: ForwardBatch) -> torch.Tensor:
    """By a graph, of which a prefill's leaves the head to the caller."""
    graphs = runner.prefill_graphs if batch.mode is ForwardMode.EXTEND else runner.decode_graphs
    assert graphs is not None and runner.decoder.logits is not None
    with torch.inference_mode():
        results = {name: rows[: batch.num_tokens] for name, rows in graphs.replay(batch).items()}
        if "logits" in results:
            return results["logits"].clone()
        logits = runner.decoder.logits.forward(results["hidden"], batch).next_token_logits
    assert logits is not None
    return logits


def make_meta(total: int = 1 << 40, **settings: Any) -> Meta:
    return Meta(total, **{"constants": BARE, **settings})


def sizes(phases: list[Phase]) -> list[tuple[str, int, int, int]]:
    return [(p.name, p.persistent_bytes, p.peak_bytes, p.reserved_peak_bytes) for p in phases]
