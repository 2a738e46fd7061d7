"""Recurrent layers on a GPU: kernels as the reference, graphs as eager forwards, a start that gets ready."""

import json
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.devices.cuda import Cuda
from runtime.layers.recurrence.base import causal_conv, gated_norm, recur
from runtime.server.units import MIB
from tests.gpu.test_mem_report_gpu import run
from tests.runtime.hybrids import NAMES, RaggedRows, generated, start_hybrid

CUDA = torch.device("cuda")
CPU = torch.device("cpu")


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def _close(got: torch.Tensor, want: torch.Tensor, relative: float) -> None:
    difference = (got.float().cpu() - want.float()).norm() / want.float().norm().clamp(min=1e-6)
    assert difference < relative, f"relative error {difference:.5f}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_convolution_equals_the_cpus(seed: int, keeps: bool, dtype: torch.dtype) -> None:
    rows, dim, width = RaggedRows.random(seed), (96, 384)[seed % 2], (2, 3, 4)[seed % 3]
    count = rows.total + rows.padding
    wide, weight = _random(count, dim + 32, dtype=dtype), _random(dim, width, dtype=dtype)
    bias = _random(dim, dtype=dtype) if seed % 2 else None
    state = _random(16, dim, width - 1, dtype=dtype)
    answers = {}
    for device in (CPU, CUDA):
        own = state.clone().to(device)
        x = wide.to(device)[:, 16 : 16 + dim]
        taps = None if bias is None else bias.to(device)
        answer = causal_conv(x, weight.to(device), taps, own, rows.on(device, keeps))
        answers[device] = answer[: rows.total], own
    relative = 1e-5 if dtype is torch.float32 else 0.01
    for got, want in zip(answers[CUDA], answers[CPU], strict=True):
        _close(got, want, relative)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_delta", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_recurrence_equals_the_cpus(seed: int, is_delta: bool, dtype: torch.dtype) -> None:
    rows, keys, values = RaggedRows.random(seed), (64, 128)[seed % 2], (64, 128, 48)[seed % 3]
    count = rows.total + rows.padding
    q, k, v = _random(count, 2, keys), _random(count, 2, keys), _random(count, 4, values)
    step, strength, rate, bias = _random(count, 4), _random(count, 4), _random(4), _random(4)
    skip, state = (None if is_delta else _random(4)), _random(16, 4, values, keys)
    answers = {}
    for device in (CPU, CUDA):
        own = state.clone().to(device)
        taken = [one.to(device, dtype) for one in (q, k, v, step)]
        opening = strength.to(device, dtype) if is_delta else None
        past = None if skip is None else skip.to(device)
        given = opening, rate.to(device), bias.to(device), past, 0.01, own
        answers[device] = recur(*taken, *given, rows.on(device)), own
    relative = 1e-4 if dtype is torch.float32 else 0.02
    _close(answers[CUDA][0][: rows.total], answers[CPU][0][: rows.total], relative)
    _close(answers[CUDA][1], answers[CPU][1], relative)


@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize(("size", "group"), [(128, 128), (512, 128), (96, 96), (4096, 4096)])
def test_the_gated_norm_equals_the_cpus(size: int, group: int, gate_first: bool) -> None:
    x, gate = _random(33, size, dtype=torch.bfloat16), _random(33, size + 8, dtype=torch.bfloat16)
    weight = _random(size if gate_first else group, dtype=torch.bfloat16)
    want = gated_norm(x, gate[:, :size], weight, group, 1e-6, gate_first)
    got = gated_norm(x.cuda(), gate.cuda()[:, :size], weight.cuda(), group, 1e-6, gate_first)
    _close(got, want, 0.01)


@pytest.mark.parametrize("name", NAMES)
def test_graphs_answer_as_eager_forwards_do(name: str) -> None:
    runner = start_hybrid(name, Cuda(), dtype="bfloat16")
    eager = list(generated(runner, (13, 1, 20), 3, eagerly=True))
    replayed = list(generated(runner, (13, 1, 20), 3, eagerly=False))
    for got, want in zip(replayed, eager, strict=True):
        torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)


def test_a_hybrid_is_measured_until_it_is_ready(tmp_path: Path) -> None:
    """The model has Qwen3-Next's widths and four layers."""
    config = {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "vocab_size": 32000,
        "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 256, "num_experts": 16, "num_experts_per_tok": 4, "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ("--model-path", tmp_path, "--cuda-graph-max-bs", "16", "--chunked-prefill-size", "1024")
    ran = run("mem-report", "--measure", "--format", "json", "--", "sglang", "serve", *asked)
    data = json.loads(ran.out)
    assert data["verdict"] == "fits" and data["phases"][-1]["name"] == "ready", data["failure"] or data["oom"]
    peaks = [row for row in data["comparisons"][0]["rows"] if row["what"].endswith("torch's peak")]
    for row in peaks:
        assert abs(row["predicted"] - row["other"]) <= max(0.03 * row["other"], 128 * MIB), row
