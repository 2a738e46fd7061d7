"""A model's config.json: presets and other shapes that the reader knows, planned for several targets."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from sgl_tune.deployment.models import presets
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, command

_LISTED = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "head_dim": 16,
    "vocab_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "layer_types": ["full_attention", "sliding_attention"] * 2,
    "sliding_window": 128,
    "use_sliding_window": True,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0},
    "torch_dtype": "torch.float16",
}
SEEDS = tuple(json.dumps(config).encode() for config in (*(p.config for p in presets()), _LISTED))
_TARGETS = (
    ("--moe-runner-backend", "flashinfer_cutlass", "--arch", "sm90"),
    ("--arch", "sm100", "--tp", "8", "--ep", "2", "--format", "json"),
    ("--moe-runner-backend", "flashinfer_trtllm", "--arch", "sm100", "--format", "json", "--pp", "2"),
    ("--quantization", "modelopt_fp8", "--arch", "sm120", "--tp", "2", "--dp", "2", "--format", "quiet"),
    ("--speculative-algorithm", "EAGLE", "--moe-runner-backend", "flashinfer_cutlass", "--arch", "sm90"),
)


def _make(random: Random) -> tuple[bytes, int]:
    raw = mutated(SEEDS, random, of_json, of_json, of_json, of_json, duplicated_key, of_bytes)
    return raw, random.randrange(len(_TARGETS))


def _read(made: tuple[bytes, int], folder: Path) -> None:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_bytes(made[0])
    command("warm", "--dry-run", "--flashinfer-version", "0.7.2", "--model-path", model, *_TARGETS[made[1]])


PARSER = Parser(_make, _read)
