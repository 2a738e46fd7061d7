"""Flags that take memory: a prediction follows each, or the verdict's own line names it as not modelled."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.memory.start import starts_of
from tests.memory.checkpoints import published_config

NEWEST, BEFORE_PHASES = "0.5.23", "0.5.13"
_UNFUSED = "--enforce-disable-flashinfer-allreduce-fusion"  # else its workspace is named, in each
DRAFT = "--speculative-draft-model-path meta-llama/Llama-3.1-8B"


@cache
def _set(flags: str = "", release: str = NEWEST, model: str = "Qwen/Qwen3-30B-A3B") -> Deployment:
    command = ("python", "-m", "sglang.launch_server", "--model-path", model, "--tp", "2", _UNFUSED)
    asked = ServerFlags(gpu="h200", sglang_version=release)
    return select_deployments(asked, (*command, *shlex.split(flags)), None)[0]


@pytest.mark.parametrize(
    ("release", "flags", "name", "value"),
    [
        (NEWEST, "--max-total-tokens 100000", "max_total_tokens", 100_000),
        (BEFORE_PHASES, "--cuda-graph-bs 1 2 4", "decode_graphs", (1, 2, 4)),
        (NEWEST, "--cuda-graph-bs-decode 1 2 4", "decode_graphs", (1, 2, 4)),
        (NEWEST, "--cuda-graph-backend-decode disabled", "decode_graphs", ()),
        (NEWEST, "--cuda-graph-backend-prefill disabled", "prefill_graphs", ()),
        (NEWEST, "--disable-prefill-cuda-graph", "prefill_graphs", ()),
        (NEWEST, "--decode-attention-backend flashinfer", "attention_backend", "flashinfer"),
        (NEWEST, "--prefill-attention-backend flashinfer", "prefill_attention_backend", "flashinfer"),
        (NEWEST, "--attn-dp-size 2 --enable-dp-lm-head", "head_over", "a group"),
        (NEWEST, "--attn-dp-size 2 --disaggregation-mode decode", "head_over", "all ranks, exchanged"),
        (NEWEST, "--attn-dp-size 2 --enable-tp-lm-head-all-to-all", "head_over", "all ranks, exchanged"),
        (NEWEST, "--disaggregation-mode prefill", "decode_graphs", ()),
        (NEWEST, "--disaggregation-mode decode", "prefill_graphs", ()),
        (NEWEST, "--kv-cache-dtype fp8_e4m3", "kv_cache_dtype", "fp8_e4m3"),
    ],
)
def test_it_is_followed(release: str, flags: str, name: str, value: Any) -> None:
    deployment = _set(flags, release)
    assert getattr(deployment.runtime, name) == value != getattr(_set("", release).runtime, name)
    assert deployment.not_counted == ""
    (start,) = starts_of(deployment, "distinct")
    assert getattr(start.runtime, name) == value


def test_prefill_graphs_end_where_they_are_told_to() -> None:
    sizes = _set("--cuda-graph-max-bs-prefill 512").runtime.prefill_graphs
    assert max(sizes) == 512 < max(_set().runtime.prefill_graphs)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--attn-cp-size 2", "--attn-cp-size 2"),
        ("--enable-lora --lora-paths a=/x", "--enable-lora, --lora-paths a=/x"),
        ("--enable-hierarchical-cache --enable-unified-memory", "--enable-hierarchical-cache"),
        ("--enable-hierarchical-cache --hicache-storage-backend file", "--hicache-storage-backend file"),
        ("--json-model-override-args '{\"num_hidden_layers\": 4}'", "--json-model-override-args"),
        (
            f"--prefill-attention-backend flashinfer --speculative-algorithm EAGLE3 {DRAFT}",
            "the tables by which flashinfer verifies drafts in graphs",
        ),
        ("--enable-two-batch-overlap --moe-a2a-backend deepep", "--enable-two-batch-overlap"),
        ("--enable-single-batch-overlap", "--enable-single-batch-overlap"),
        ("--enable-symm-mem", "--enable-symm-mem"),
        ("--enable-torch-compile", "--enable-torch-compile"),
        ("--cuda-graph-backend-decode breakable", "--cuda-graph-backend-decode breakable"),
        ("--cuda-graph-backend-prefill full", "--cuda-graph-backend-prefill full"),
        (f"--speculative-algorithm EAGLE3 {DRAFT}", "the draft meta-llama/Llama-3.1-8B"),
        (f"--speculative-algorithm DFLASH {DRAFT}", "the draft meta-llama/Llama-3.1-8B"),
    ],
)
def test_it_is_named_as_not_modelled(flags: str, named: str) -> None:
    told = _set(flags).not_counted
    assert told.startswith("not counting ") and named in told and told.endswith(": not modelled")


def test_a_draft_that_is_one_layer_more_of_the_target_is_counted(tmp_path: Path) -> None:
    config = published_config("zai-org/GLM-4.5-Air")
    (tmp_path / "config.json").write_text(json.dumps(config))
    deployment = _set("--speculative-algorithm EAGLE", model=str(tmp_path))
    assert deployment.server.draft is not None and deployment.not_counted == ""


def test_what_attention_to_latents_holds_for_it_is_counted() -> None:
    deployment = _set("--speculative-algorithm EAGLE", model="deepseek-ai/DeepSeek-V3")
    assert deployment.server.draft is not None
    assert deployment.not_counted == ""


def test_a_draft_that_is_a_model_of_its_own_is_predicted_and_said_to_be_unmeasured() -> None:
    told = _set(f"--speculative-algorithm STANDALONE {DRAFT}").not_counted
    assert told == "the draft meta-llama/Llama-3.1-8B is predicted, and was never measured"


def test_what_is_set_to_what_it_would_be_anyway_is_not_named() -> None:
    plain = "--cuda-graph-backend-decode full --cuda-graph-backend-prefill breakable --cpu-offload-gb 0"
    assert _set(plain).not_counted == _set().not_counted == ""


@pytest.mark.parametrize(
    ("model", "release", "flags", "named"),
    [
        ("openai/gpt-oss-120b", "0.5.14", "--disable-radix-cache --max-running-requests 64", True),
        ("openai/gpt-oss-120b", "0.5.13", "--disable-radix-cache --max-running-requests 64", False),
        ("openai/gpt-oss-120b", "0.5.23", "--disable-radix-cache", False),
        ("openai/gpt-oss-120b", "0.5.23", "--max-running-requests 64", False),
        ("openai/gpt-oss-120b", "0.5.23", "--max-running-requests 64 --disaggregation-mode decode", True),
        ("meta-llama/Llama-3.1-8B", "0.5.23", "--disable-radix-cache --max-running-requests 64", False),
    ],
)
def test_a_pool_that_requests_bound_is_named(model: str, release: str, flags: str, named: bool) -> None:
    """Where no prefix is kept: SGLang then gives the layers behind a window less, and the others more."""
    assert ("pool of layers behind a window" in _set(flags, release, model).not_counted) == named
