"""MiniMax-M3.1, whose lookups are known where its layers are not, and a server of M3 that answers wrongly."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.dense_shapes import linear_sizes
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import server_ends
from sgl_tune.keys.tunable import cannot_tune
from tests.oracle.packed_pages import all_chosen
from tests.oracle.published import published
from tests.sgl_tune.running import run_here

_ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
_BEHIND = {**_ROUTED, "moe_a2a_backend": "megamoe"}
_SENT = {"tp": 4, "dp": 4, "enable_dp_attention": True, "moe_a2a_backend": "flashinfer", **_ROUTED}
_NAME = {"0.5.23": "MiniMaxAI/MiniMax-M3.1-NVFP4", "0.5.17": "MiniMaxAI/MiniMax-M3-MXFP8"}


def _all_chosen(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    told = all_chosen(config, **changes.pop("sparse", {}))
    section = {**config.get("quantization_config", {}), **changes.pop("section", {})}
    return {**told, "text_config": {**told["text_config"], **changes}, "quantization_config": section}


def _deployment(
    folder: Path, release: str, changes: dict[str, Any] | None = None, **flags: Any
) -> Deployment:
    config = published()[_NAME[release]].config
    if release == "0.5.23":
        config = _all_chosen(config, **(changes or {}))
    (folder / "config.json").write_text(json.dumps(config))
    told = {"model_path": str(folder), "arch": "sm100", "sglang_version": release, **flags}
    return resolve_deployment(ServerFlags(**told), environ={})


def test_its_experts_are_looked_up_by_token_and_its_other_layers_in_mxfp8(tmp_path: Path) -> None:
    found = _deployment(tmp_path, "0.5.23", tp=8, **_ROUTED)
    assert found.quantization == "minimax_m3_nvfp4" and found.shape.model is not None
    ops = {op.op: op for op in expected_keys(found)}
    assert set(ops) == {"flashinfer::trtllm_fp4_block_scale_moe", "mxfp8_gemm"}
    assert unplanned(found) == ()
    told = cannot_tune(make_plan(found, gpus=()))
    assert told is not None and "no layers in mxfp8" in told


def test_on_megamoe_no_expert_is_looked_up(tmp_path: Path) -> None:
    found = _deployment(tmp_path, "0.5.23", tp=8, chunked_prefill_size=8192)
    assert (found.server.moe_runner_backend, found.server.moe_a2a_backend) == ("deep_gemm", "megamoe")
    assert [op.op for op in expected_keys(found)] == ["mxfp8_gemm"] and unplanned(found) == ()


def test_where_trtllm_decodes_behind_megamoe_its_experts_are_not_planned(tmp_path: Path) -> None:
    found = _deployment(tmp_path, "0.5.23", tp=8, chunked_prefill_size=8192, **_BEHIND)
    assert server_ends(found) is None
    assert [gap.what for gap in unplanned(found)] == ["the experts of flashinfer_trtllm_routed"]


@pytest.mark.parametrize(
    ("arch", "flags", "changes", "said"),
    [
        (
            "sm100",
            _ROUTED,
            {"sparse": {"sparse_attention_freq": [0] + [1] * 59}},
            "layer 0 .* sees all tokens",
        ),
        ("sm90", {}, {"sparse": {"sparse_attention_freq": [0] + [1] * 59}}, None),
        ("sm100", _ROUTED, {"sparse": {"sparse_disable_index_value": [0] * 60}}, "packs no values"),
        ("sm100", _ROUTED, {"sparse": {"sparse_topk_blocks": 8}}, "sparse_topk_blocks is 8"),
        ("sm90", {}, {"sparse": {"sparse_topk_blocks": 8}}, None),
        ("sm100", _ROUTED, {"num_attention_heads": 32}, "num_attention_heads is 32"),
        ("sm90", {}, {"section": {"group_size": 32}}, "group_size is 32"),
        ("sm100", _ROUTED, {"section": {"weight_block_size": [128, 128]}}, "weight_block_size is"),
        ("sm90", {}, {"section": {"kv_cache_quant_algo": None}}, "kv_cache_quant_algo is None"),
        ("sm90", {}, {"section": {"kv_cache_quant_algo": "fp8"}}, None),
        ("sm90", {}, {"section": {"index_k_quant_type": "fp8"}}, "index_k_quant_type is 'fp8'"),
        (
            "sm100",
            {},
            {"intermediate_size": 3200, "shared_intermediate_size": 3200},
            "intermediate_size is 3200",
        ),
        ("sm100", _ROUTED, {"intermediate_size": 3200, "shared_intermediate_size": 3200}, None),
        ("sm100", {**_BEHIND, "dp": 2, "enable_dp_attention": True}, {}, "share its heads"),
    ],
)
def test_where_its_servers_end(
    arch: str, flags: dict[str, Any], changes: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, "0.5.23", changes, arch=arch, tp=8, chunked_prefill_size=4096, **flags)
    why = server_ends(found)
    assert why is None if said is None else re.search(said, why or "")


@pytest.mark.parametrize(
    ("flags", "split"),
    [(_SENT, 4), ({**_SENT, "moe_a2a_backend": "deepep", "moe_runner_backend": "deep_gemm"}, 1)],
)
def test_behind_deepep_alone_its_shared_expert_is_whole(
    flags: dict[str, Any], split: int, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, "0.5.17", **flags)
    assert unplanned(found) == () and (found.shape.model is None) is (split == 4)
    sizes = {(k, n) for k, n, _ in linear_sizes(found.of_lookups, "mxfp8")}
    assert {(6144, 2 * 3072 // split), (3072 // split, 6144)} <= sizes


def test_a_warm_of_it_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_all_chosen(published()[_NAME["0.5.23"]].config)))
    flags = ("--arch", "sm100", "--sglang-version", "0.5.23", "--flashinfer-version", "0.7.2", "--tp", 8)
    ran = run_here(
        "warm", *flags, "--model-path", tmp_path, "--moe-runner-backend", "flashinfer_trtllm_routed"
    )
    assert ran.code not in (0, None) and "layers in mxfp8" in ran.err and "Traceback" not in ran.err


@pytest.mark.parametrize("release", ["0.5.16", "0.5.22", "0.5.23"])
def test_where_sglang_reads_none_of_its_experts_the_verdicts_line_says_so(
    release: str, tmp_path: Path
) -> None:
    config = published()[_NAME["0.5.23"]].config
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = ("--arch", "sm100", "--sglang-version", release, "--flashinfer-version", "0.6.18", "--tp", 8)
    ran = run_here("verify", "--model-path", tmp_path, *flags)
    said = f"SGLang {release} reads none of its experts in nvfp4, by names that it does not know, and answers"
    assert (said in ran.out + ran.err) is (release != "0.5.23")
