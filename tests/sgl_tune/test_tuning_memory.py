"""What a worker needs to tune, summed by hand from the shapes that each model publishes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runtime.server.formats.kinds import Kind, Served, format_of
from runtime.server.formats.tensors import BYTES, Matrix
from sgl_tune.cache.policies import HOT
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import ExpectedEntry, TunedOp
from sgl_tune.keys.tuning_memory import tuning_bytes

# Queries and outputs, keys and values; then experts, of 2048 wide layers.
QWEN_ATTENTION = 2 * 2048 * 32 * 128 + 2 * 2048 * 4 * 128
QWEN_EXPERTS = 128 * 3 * 2048 * 768
# Latents down, heads up, outputs; a dense layer and a shared expert; then experts, of 7168 wide layers.
R1_DOWN = 7168 * 1536 + 7168 * (512 + 64)
R1_UP = 16 * (1536 * (128 + 64) + 512 * (128 + 128))
R1_OUT = 16 * 128 * 7168
R1_DENSE = 3 * 7168 * (18432 + 2048) // 8
_QWEN = QWEN_ATTENTION + QWEN_EXPERTS
_GPT_OSS = 2 * 2880 * 64 * 64 + 2 * 2880 * 8 * 64 + 32 * 3 * 2880 * 2880
R1_EXPERTS = 256 * 3 * 7168 * 2048 // 8


def _bytes(rows: int = 0, **flags: Any) -> int:
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm90"}
    deployment = resolve_deployment(ServerFlags(**{**target, **flags}), environ={})
    entries = tuple(ExpectedEntry(str(bucket), bucket, "tuning") for bucket in (1, rows) if rows)
    return tuning_bytes(deployment, (TunedOp("op", "runner", HOT, entries),) if rows else ())


def test_one_layers_weights_without_rows() -> None:
    assert _bytes(model_path="Qwen3-30B-A3B") == 2 * (QWEN_ATTENTION + QWEN_EXPERTS)


def test_rows_are_kept_in_buffers_and_copied_to_their_experts() -> None:
    buffers, copies = 6 * 2048, 8 * (2 * 2048 + 3 * 768)
    rows = _bytes(100, model_path="Qwen3-30B-A3B") - _bytes(model_path="Qwen3-30B-A3B")
    assert rows == 100 * 2 * (buffers + copies)


@pytest.mark.parametrize(
    ("flags", "weights"),
    [
        # more ranks than KV heads: each has one
        ({"tp": 8}, (2 * 2048 * 4 * 128 + 2 * 2048 * 128) + QWEN_EXPERTS // 8),
        ({"tp": 4, "ep": 4}, (2 * 2048 * 8 * 128 + 2 * 2048 * 128) + QWEN_EXPERTS // 4),
        ({"tp": 4, "dp": 4, "enable_dp_attention": True}, QWEN_ATTENTION + QWEN_EXPERTS // 4),
    ],
)
def test_ranks_share_heads_and_experts(flags: dict[str, Any], weights: int) -> None:
    assert _bytes(model_path="Qwen3-30B-A3B", **flags) == 2 * weights


def test_latent_attention_a_dense_layer_and_a_shared_expert_in_fp8() -> None:
    weights = R1_DOWN + R1_UP + R1_OUT + R1_DENSE + R1_EXPERTS
    assert _bytes(model_path="DeepSeek-V3", tp=8) == int(weights * 1.01)


def test_a_model_without_experts_is_attention_and_its_mlp() -> None:
    attention, mlp = 2 * 4096 * 32 * 128 + 2 * 4096 * 8 * 128, 3 * 4096 * 14336
    assert _bytes(model_path="Llama-3.1-8B") == 2 * (attention + mlp)
    assert _bytes(7, model_path="Llama-3.1-8B") == 2 * (attention + mlp) + 7 * 6 * 4096 * 2


@pytest.mark.parametrize(
    ("flags", "weights", "kind"),
    [
        ({"model_path": "Qwen3-30B-A3B", "quantization": "modelopt_fp4"}, _QWEN, Kind("nvfp4")),
        ({"model_path": "Qwen3-30B-A3B", "quantization": "modelopt_fp8"}, _QWEN, Kind("fp8", "tensor")),
        ({"model_path": "gpt-oss-20b"}, _GPT_OSS, Kind("mxfp4")),
    ],
)
def test_a_weight_is_as_large_as_in_its_format_or_a_little_more(
    flags: dict[str, Any], weights: int, kind: Kind
) -> None:
    matrix = Matrix((1 << 11, 1 << 11), 1 << 12, 1 << 12, False, experts=8, all_experts=8)
    form = format_of(kind, Served())
    stored = [one.made(matrix) for one in form.experts if one.in_file and one.name != "bias"]
    exact = sum(BYTES[one.dtype] * math.prod(one.shape) for one in stored) / (8 << 24)
    assert exact - 1e-4 <= _bytes(arch="sm100", **flags) / weights < exact + 1 / 80
