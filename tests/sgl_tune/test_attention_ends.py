"""Servers that end at their attention: windows, states, pages and heads that are not as it asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config
from tests.sgl_tune.ends import DEEPSEEK, PUBLISHED, QWEN, why_it_ends


@pytest.mark.parametrize(
    ("model", "flags", "ends"),
    [
        ("CohereLabs/North-Mini-Code-1.0", {"attention_backend": "triton"}, True),  # seen on a GPU, in 0.5.17
        ("CohereLabs/North-Mini-Code-1.0", {"attention_backend": "fa3"}, False),
        ("CohereForAI/c4ai-command-r7b-12-2024", {"attention_backend": "triton"}, True),
        ("arcee-ai/Trinity-Mini", {"attention_backend": "triton"}, False),
    ],
)
def test_triton_is_told_of_windows(model: str, flags: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[model]))
    found = why_it_ends(model_path=str(tmp_path), arch="sm90", sglang_version="0.5.17", **flags)
    assert (found is not None and "tells the triton attention backend of no window" in found) == ends, found


@pytest.mark.parametrize(
    ("model", "flags", "ends"),
    [
        ("ibm-granite/granite-4.0-h-small", {}, True),  # seen on a GPU
        ("ibm-granite/granite-4.0-h-small", {"attention_backend": "flashinfer"}, False),
        ("ibm-granite/granite-4.0-h-small", {"sglang_version": "0.5.18"}, False),
        ("ibm-granite/granite-4.0-h-small", {"sglang_version": "0.5.12"}, True),
        ("tiiuae/Falcon-H1-0.5B-Instruct", {}, False),  # its first layer attends: seen on a GPU
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {}, False),  # seen on a GPU
    ],
)
def test_triton_asks_the_first_layer(model: str, flags: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(json.loads(PUBLISHED.read_text())[model]))
    asked = {"attention_backend": "triton", "sglang_version": "0.5.17", **flags}
    found = why_it_ends(model_path=str(tmp_path), arch="sm90", **asked)
    assert (found is not None and "asks a stage for keys of the first layer" in found) == ends, found


MHA = {"attention_backend": "trtllm_mha", "page_size": 128}


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        ({"tp": 4, **MHA}, False),  # eight heads for each of keys
        ({"tp": 16, "nnodes": 2, **MHA}, False),
        ({"tp": 32, "nnodes": 4, **MHA}, True),  # one for one
        ({"tp": 32, "nnodes": 4, **MHA, "page_size": 64}, False),
        ({"tp": 32, "nnodes": 4, **MHA, "sglang_version": "0.5.16"}, False),  # pages of 64 there
        ({"tp": 32, "nnodes": 4, **MHA, "arch": "sm90"}, False),
        ({"tp": 4, **MHA, "attention_backend": "fa4"}, False),
    ],
)
def test_large_pages_are_for_grouped_heads(flags: dict[str, Any], ends: bool) -> None:
    found = why_it_ends(**QWEN, **flags)
    assert (found is not None and "pages of 128 tokens" in found) == ends, found


@pytest.mark.parametrize(("flags", "ends"), [({"tp": 8}, False), ({"tp": 16, "nnodes": 2}, True)])
def test_lightning_attention_is_normed_in_groups_that_ranks_share(
    flags: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    told = json.loads(PUBLISHED.read_text())["inclusionAI/Ling-2.5-1T"]
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), **flags)
    assert found == ("8 groups of norms cannot be divided among 16 ranks" if ends else None)


@pytest.mark.parametrize(
    ("arch", "asked", "ends"),
    [
        ("sm100", {}, True),
        ("sm100", {"disable_radix_cache": True}, False),
        ("sm100", {"attention_backend": "flashinfer"}, False),
        ("sm100", {"attention_backend": "flashinfer", "page_size": 16}, True),
        ("sm90", {}, False),
        ("sm90", {"page_size": 16}, True),
    ],
)
@pytest.mark.parametrize(
    ("model_type", "release"),
    [
        *(("lfm2_vl", release) for release in ("0.5.12", "0.5.20", "0.5.23")),
        *(("NemotronH_Nano_VL_V2", "0.5.13"), ("NemotronH_Nano_Omni_Reasoning_V3", "0.5.23")),
    ],
)
def test_a_model_with_states_that_no_rule_knows_keeps_prefixes_in_pages_of_one_token(
    model_type: str, release: str, arch: str, asked: dict[str, Any], ends: bool, tmp_path: Path
) -> None:
    """States that no extra buffer keeps."""
    told = next(one for one in json.loads(PUBLISHED.read_text()).values() if one["model_type"] == model_type)
    (tmp_path / "config.json").write_text(json.dumps(told))
    target = ServerFlags(model_path=str(tmp_path), sglang_version=release, arch=arch)
    found = never_starts(resolve_deployment(target, environ={}).asking(**asked))
    assert found is not None and "pages of one token" in found if ends else found is None


@pytest.mark.parametrize(
    ("model", "tp", "dp", "ends"),
    [
        ("Mixtral-8x7B", 8, 8, True),
        ("Mixtral-8x7B", 4, 2, True),
        ("Llama-3.1-8B", 2, 2, True),
        ("Llama-3.1-70B", 8, 1, False),
        ("Qwen3-30B-A3B", 4, 4, False),  # knows of groups
    ],
)
def test_heads_of_all_ranks_do_not_go_into_a_groups_cache(model: str, tp: int, dp: int, ends: bool) -> None:
    flags = {"model_path": model, "tp": tp, "dp": dp, "enable_dp_attention": dp > 1, "arch": "sm90"}
    found = why_it_ends(**flags)
    assert (found is not None and f"splits its heads over all {tp} ranks" in found) == ends, found


def test_one_head_a_rank_fits_and_answers_wrongly() -> None:
    """8 heads of keys, 16 ranks in groups of eight."""
    flags = {"model_path": "Mixtral-8x7B", "tp": 16, "dp": 2, "enable_dp_attention": True, "arch": "sm90"}
    target = ServerFlags(**flags, sglang_version="0.5.23")
    assert "its heads are split over all ranks" in resolve_deployment(target, environ={}).shape.unknown


@pytest.mark.parametrize(
    ("model", "flags", "untold"),
    [
        ("moonshotai/Kimi-VL-A3B-Instruct", {"attention_backend": "flashinfer"}, "the scale of its scores"),
        ("moonshotai/Kimi-VL-A3B-Instruct", {"attention_backend": "flashmla"}, "the scale of its scores"),
        ("moonshotai/Kimi-VL-A3B-Instruct", {"arch": "sm100"}, "the scale of its scores"),
        ("moonshotai/Kimi-VL-A3B-Instruct", {"attention_backend": "triton"}, None),
        ("moonshotai/Kimi-VL-A3B-Instruct", {}, None),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {"attention_backend": "flashinfer"}, None),
        ("deepseek-ai/DeepSeek-R1", {"attention_backend": "flashinfer"}, None),
        ("a/minicpm3-4b-from-memory", {"attention_backend": "flashinfer"}, "how wide keys without rope are"),
    ],
)
@pytest.mark.parametrize("release", ["0.5.13", "0.5.17", "0.5.23"])
def test_flashinfer_over_latents_asks_for_what_not_all_are_told(
    model: str, flags: dict[str, Any], untold: str | None, release: str, tmp_path: Path
) -> None:
    """As SGLang's own backends end where they are made: python -m tests.oracle.random_attention --model."""
    config = published_config(model)
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = {"arch": "sm90", "sglang_version": release, **flags}
    found = why_it_ends(model_path=str(tmp_path), **asked)
    assert untold in found if untold else "SGLang's settings of this class" not in str(found), found


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        ({"arch": "sm100", "sglang_version": "0.5.15"}, False),
        ({"arch": "sm100", "sglang_version": "0.5.16"}, True),
        ({"arch": "sm100", "sglang_version": "0.5.20"}, True),
        ({"arch": "sm100", "sglang_version": "0.5.21"}, False),
        ({"arch": "sm120", "sglang_version": "0.5.16"}, False),
        ({"arch": "sm100", "sglang_version": "0.5.20", "attention_backend": "fa4"}, False),
        ({"arch": "sm120", "sglang_version": "0.5.23", "attention_backend": "fa4"}, True),
        ({"arch": "sm90", "sglang_version": "0.5.20"}, False),
    ],
)
def test_gated_deltas_go_with_some_backends(flags: dict[str, Any], ends: bool, tmp_path: Path) -> None:
    """As SGLang's own registry of backends says: python -m tests.oracle.random_attention."""
    config = published_config("Qwen/Qwen3-Next-80B-A3B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = why_it_ends(model_path=str(tmp_path), **{"attention_backend": "flashinfer", **flags})
    assert (found is not None and "does not go with gated deltas" in found) == ends, found


@pytest.mark.parametrize(
    ("model", "backend", "ends"),
    [
        (DEEPSEEK, "trtllm_mha", True),
        (DEEPSEEK, "trtllm_mla", False),
        (DEEPSEEK, "flashinfer", False),
        (QWEN, "trtllm_mla", True),
        (QWEN, "flashmla", True),
        (QWEN, "trtllm_mha", False),
        (QWEN, "flashinfer", False),
    ],
)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
def test_backends_are_for_heads_or_for_latents(
    model: dict[str, Any], backend: str, ends: bool, release: str
) -> None:
    found = why_it_ends(**model, attention_backend=backend, sglang_version=release)
    assert (found is not None and "this model attends over" in found) == ends, found


_SPARSE = "zai-org/GLM-5.1"


@pytest.mark.parametrize(
    ("model", "flags", "why"),
    [
        (_SPARSE, {}, None),
        (_SPARSE, {"attention_backend": "trtllm_mla", "page_size": 64}, None),
        (_SPARSE, {"attention_backend": "cutlass_mla"}, "keys of an indexer lie in pages of 64 tokens"),
        ("inclusionAI/Ling-2.5-1T", {"attention_backend": "dsa"}, "attention on dsa is for latents that"),
        ("stepfun-ai/Step-3.5-Flash", {"attention_backend": "dsa"}, "attention on dsa is for"),
    ],
)
def test_an_indexer_has_a_backend_and_pages(
    model: str, flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published_config(model)))
    found = why_it_ends(model_path=str(tmp_path), tp=8, arch="sm100", sglang_version="0.5.18", **flags)
    assert found is None if why is None else found is not None and found.startswith(why), found
