"""Servers at which SGLang ends while it loads: no verdict on their memory is a good one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.memory.checkpoints import DATA
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import schema_faults

_WITHOUT_KERNELS = "--moe-runner-backend flashinfer_trtllm"
_FEW_GRAPHS = ("--cuda-graph-max-bs", 8, "--chunked-prefill-size", 512)


@pytest.fixture
def of_experts(tmp_path: Path) -> Path:
    """Small, and with kernels for Hopper of any backend but one."""
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64}
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
    told = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 2}
    rest = {
        "torch_dtype": "bfloat16",
        "vocab_size": 512,
        "intermediate_size": 256,
        "max_position_embeddings": 4096,
    }
    (tmp_path / "config.json").write_text(json.dumps({**told, **sizes, **experts, **rest}))
    return tmp_path


def _report(model: Path, *words: object) -> tuple[int, dict[str, Any]]:
    ran = run_here(
        "mem-report", *_FEW_GRAPHS, "--gpu", "h200", "--model-path", model, "--format", "json", *words
    )
    assert ran.code in (0, 1), ran.err
    data = json.loads(ran.out)
    assert schema_faults("mem-report", data) == []
    return ran.code, data


def test_its_verdict_is_that_it_never_starts(of_experts: Path) -> None:
    flags = (*_WITHOUT_KERNELS.split(), "--what-if", "moe-runner-backend=triton")
    code, data = _report(of_experts, *flags)
    assert (code, data["verdict"]) == (1, "never starts")
    assert data["never_starts"] == "FlashInfer has no flashinfer_trtllm kernels for sm90"
    assert data["not_modelled"] is None and data["remedies"] == []
    other = data["what_if"]["moe-runner-backend=triton"]
    assert (other["verdict"], other["never_starts"]) == ("fits", None)


def test_another_way_to_start_that_never_does_is_no_way(of_experts: Path) -> None:
    what_if = ("--what-if", _WITHOUT_KERNELS.removeprefix("--").replace(" ", "="))
    code, data = _report(of_experts, *what_if)
    assert (code, data["verdict"]) == (0, "fits")
    (other,) = data["what_if"].values()
    assert other["verdict"] == "never starts" and "kernels for sm90" in other["never_starts"]
    ran = run_here("mem-report", *_FEW_GRAPHS, "--gpu", "h200", "--model-path", of_experts, *what_if)
    assert "moe-runner-backend=flashinfer_trtllm: FlashInfer has no" in ran.out


def test_its_page_and_its_line_say_why(of_experts: Path) -> None:
    words = (
        "mem-report",
        *_FEW_GRAPHS,
        "--gpu",
        "h200",
        "--model-path",
        of_experts,
        *_WITHOUT_KERNELS.split(),
    )
    ran = run_here(*words)
    assert ran.code == 1
    assert "NEVER STARTS: FlashInfer has no flashinfer_trtllm kernels for sm90; by its memory" in ran.out
    assert "NEVER STARTS: FlashInfer has no" in run_here(*words, "--format", "markdown").out


def test_no_flags_are_fitted_to_it(of_experts: Path) -> None:
    ran = run_here(
        "mem-report", "--fit", "--gpu", "h200", "--model-path", of_experts, *_WITHOUT_KERNELS.split()
    )
    assert ran.code == 1 and "never starts: FlashInfer has no flashinfer_trtllm kernels" in ran.err


def test_layers_with_inputs_of_their_own_end_at_the_graphs_of_a_second_stage(tmp_path: Path) -> None:
    whole = json.loads((DATA / "published_families.json").read_text())["google/gemma-4-E4B-it"]
    kinds = ["sliding_attention", "full_attention"] * 2
    cut = {"num_hidden_layers": 4, "layer_types": kinds, "num_kv_shared_layers": 0}
    (tmp_path / "config.json").write_text(
        json.dumps({**whole, "text_config": {**whole["text_config"], **cut}})
    )
    code, data = _report(tmp_path, "--pp", 2, "--ranks", 1, "--what-if", "no-graphs")
    assert (code, data["verdict"], data["failed_in"]) == (1, "never starts", "decode graphs")
    assert "--disable-cuda-graph" in data["never_starts"]
    assert data["what_if"]["no-graphs"]["verdict"] == "fits"
