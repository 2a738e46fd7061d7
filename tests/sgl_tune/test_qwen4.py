"""Qwen4's servers: which of them end or are unknown, and which experts they tune."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.call_shapes import _experts
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.oracle.published import published


def _flash(folder: Path, command: str, release: str = "0.5.23", gpu: str = "B200", **text: Any) -> Deployment:
    config = published()["Qwen/Qwen3.8-Flash-Next"].config
    told = {**config, "text_config": {**config["text_config"], **text}}
    (folder / "config.json").write_text(json.dumps(told))
    words = f"python -m sglang.launch_server --model-path {folder} --tp 8 {command}".split()
    flags = ServerFlags(sglang_version=release, flashinfer_version="0.7.2", gpu=gpu)
    return select_deployments(flags, words, environ={})[0]


_NAMED = ["linear_attention", "linear_attention", "linear_attention", "indexed_attention"] * 12


@pytest.mark.parametrize(
    ("release", "text", "why"),
    [
        ("0.5.23", {}, None),
        ("0.5.20", {}, None),
        ("0.5.23", {"indexer_compress_ratio": 8}, "indexer_budget is 2048, 256 groups of tokens"),
        ("0.5.23", {"indexer_compress_ratio": 1}, "indexer_compress_ratio is 1"),
        ("0.5.23", {"indexer_compress_ratio": 12, "indexer_budget": 6144}, "indexer_compress_ratio is 12"),
        ("0.5.23", {"num_experts": 4, "num_experts_per_tok": 2}, "4 experts are fewer than 8 ranks"),
        ("0.5.22", {"layer_types": _NAMED}, None),
        ("0.5.21", {"layer_types": _NAMED}, "layer_types names indexed_attention"),
    ],
)
def test_qwen4_ends_where_its_indexer_does(
    release: str, text: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_flash(tmp_path, "", release, **text))
    assert found is None if why is None else found is not None and found.startswith(why)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_qwen4s_streams_are_mixed_in_bfloat16(dtype: str, tmp_path: Path) -> None:
    found = never_starts(_flash(tmp_path, f"--dtype {dtype} --moe-runner-backend flashinfer_cutlass"))
    assert (found is None) is (dtype == "bfloat16")
    assert found is None or f"they are in {dtype}" in found


@pytest.mark.parametrize(
    ("flags", "release", "known", "planned"),
    [
        ("--quantization nvfp4_online", "0.5.23", True, True),
        ("--quantization mxfp8", "0.5.23", True, True),
        ("--pp-size 2", "0.5.21", True, True),
        ("--pp-size 2", "0.5.20", False, True),
    ],
)
def test_what_qwen4_looks_up_may_be_known_where_its_layers_are_not(
    flags: str, release: str, known: bool, planned: bool, tmp_path: Path
) -> None:
    found = _flash(tmp_path, f"{flags} --moe-runner-backend flashinfer_trtllm", release)
    assert (found.shape.model is not None) is known
    assert (not unplanned(found)) is planned and bool(expected_keys(found)) is planned


@pytest.mark.parametrize(("gpu", "backend"), [("B200", "flashinfer_trtllm"), ("H200", "flashinfer_cutlass")])
def test_qwen4s_experts_are_those_of_qwen(gpu: str, backend: str, tmp_path: Path) -> None:
    deployment = _flash(tmp_path, f"--moe-runner-backend {backend}", gpu=gpu)
    found = _experts(deployment)
    assert (found.local, found.total, found.top_k) == (512, 512, 10) and not unplanned(deployment)
    assert deployment.server.page_size == 64


@pytest.mark.parametrize(
    ("served", "not_served", "release", "said"),
    [
        ("", "--dtype half", "0.5.23", "another dtype than bfloat16"),
        ("--dp 8 --enable-dp-attention --quantization mxfp8", "--dtype float32", "0.5.22", "another dtype"),
        ("--pp-size 2", "--speculative-algorithm NEXTN", "0.5.21", "drafts"),
        ("", "--pp-size 2", "0.5.20", "--pp-size before 0.5.21"),
    ],
)
def test_what_qwen4s_class_is_not_known_with_has_a_key_alone(
    served: str, not_served: str, release: str, said: str, tmp_path: Path
) -> None:
    assert _flash(tmp_path, served, release).shape.model is not None
    refused = _flash(tmp_path, not_served, release)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"qwen4_exp_text does not go with {said}")
