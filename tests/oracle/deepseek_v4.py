"""DeepSeek-V4 as published: its two sizes, their experts in what others made of them, and its servers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.releases import RELEASES
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment

RECORDED = Path(__file__).parent / "recorded/v4_calls.jsonl.gz"

_FP8 = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "scale_fmt": "ue8m0",
    "weight_block_size": [128, 128],
}
FLASH: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "expert_dtype": "fp4",
    "hc_eps": 1e-06,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "head_dim": 512,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "initializer_range": 0.02,
    "max_position_embeddings": 1048576,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 43,
    "num_hash_layers": 3,
    "num_key_value_heads": 1,
    "num_nextn_predict_layers": 1,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "quantization_config": _FP8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 16,
        "original_max_position_embeddings": 65536,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus",
    "sliding_window": 128,
    "swiglu_limit": 10.0,
    "tie_word_embeddings": False,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 129280,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],  # the last is of the layer that drafts
}
PRO: dict[str, Any] = {
    **FLASH,
    "hidden_size": 7168,
    "index_topk": 1024,
    "moe_intermediate_size": 3072,
    "n_routed_experts": 384,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "o_groups": 16,
    "q_lora_rank": 1536,
    "routed_scaling_factor": 2.5,
    "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0],
}
# By ModelOpt: experts of every layer but the one that drafts
_NVFP4 = {"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "group_size": 16}
FLASH_NVFP4 = {**FLASH, "quantization_config": {**_FP8, **_NVFP4, "ignore": ["*.attn.*", "head", "mtp.*"]}}
# All in fp8
FLASH_FP8 = {**FLASH, "quantization_config": {**_FP8, "routed_experts_quant_method": "fp8"}}


def folder_of(config: dict[str, Any], parent: Path) -> str:
    """A checkpoint's, as a server is given it."""
    folder = parent / "deepseek-v4"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


_CONFIGS = {"flash": FLASH, "pro": PRO}
_LAYOUTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("flash", {"tp": 4}),
    ("flash", {"tp": 8, "ep": 8}),
    ("pro", {"tp": 8, "dp": 8, "enable_dp_attention": True}),
)


def cases() -> Iterator[dict[str, Any]]:
    """A server each: on sm120 there are kernels since 0.5.16."""
    for release in RELEASES:
        for arch in ("sm90", "sm100", "sm120"):
            for config, flags in _LAYOUTS:
                case = {"release": release.version, "arch": arch, "config": config, "flags": flags}
                if arch != "sm120" or release.number >= (0, 5, 16):
                    yield case
            for rows in _precisions(release.number, arch):
                yield {**case, "precision": rows}


def _precisions(number: tuple[int, ...], arch: str) -> Iterator[str]:
    """What a command may say where a call listens, beside what it is without."""
    if arch == "sm100":
        yield "bf16"
    if arch == "sm90" and number >= (0, 5, 19):
        yield "fp8"


def deployment_of(case: dict[str, Any], folder: Path) -> Deployment:
    flags = ServerFlags(
        model_path=folder_of(_CONFIGS[case["config"]], folder),
        sglang_version=case["release"],
        flashinfer_version="0.7.2",
        arch=case["arch"],
        moe_runner_backend="flashinfer_mxfp4",
        **case["flags"],
    )
    asked = case.get("precision", "default")
    return resolve_deployment(flags, environ={}).asking(flashinfer_mxfp4_moe_precision=asked)


def read() -> list[tuple[dict[str, Any], list[str]]]:
    """What the releases' own calls asked for: v4_calls.py."""
    with gzip.open(RECORDED, "rt") as lines:
        return [(one["case"], one["asked"]) for one in map(json.loads, lines)]
