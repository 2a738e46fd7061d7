"""DeepSeek-V4: which entries its servers ask for, and which of its servers are named as unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from sgl_tune.keys.tunable import cannot_tune
from sgl_tune.keys.verdict import gaps_of
from tests.oracle.deepseek_v4 import FLASH, FLASH_FP8, FLASH_NVFP4, PRO, folder_of


def _of_v4(config: dict[str, Any], folder: Path, **flags: Any) -> Deployment:
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm100", "tp": 4}
    flags = {**target, **flags, "model_path": folder_of(config, folder)}
    return resolve_deployment(ServerFlags(**flags), environ={})


def test_deepseek_v4s_experts_are_given_with_their_weights_and_without_biases(tmp_path: Path) -> None:
    (on_blackwell,) = expected_keys(_of_v4(FLASH, tmp_path))
    rows = "((1, 4096), (0,), (1, 6), (1, 6), (1, 4096), (1, 128), (0,), (0,))"
    assert rows in on_blackwell.keys[0]
    assert (
        "('Module', 6, 256, 256, 0, 17827853, 17826828, 0, 4096, 4096, 512, 3, True, 0,"
        in on_blackwell.keys[0]
    )
    first, _ = expected_keys(_of_v4(FLASH, tmp_path, arch="sm90"))
    assert "((1, 4096), (256, 1024, 2048), (0,), (256, 4096, 256), (0,))" in first.keys[0]


def test_nvfp4_experts_beside_fp8_are_nvfp4s_since_0_5_14(tmp_path: Path) -> None:
    (op,) = expected_keys(_of_v4(FLASH_NVFP4, tmp_path))
    assert "((1, 4096), (0,), (1, 6), (1, 6), (1, 2048), (1, 256), (0,), (0,))" in op.keys[0]
    routed = {"moe_runner_backend": "flashinfer_trtllm_routed", "flashinfer_version": None}
    assert not expected_keys(_of_v4(FLASH_NVFP4, tmp_path, sglang_version="0.5.13", **routed))
    assert expected_keys(_of_v4(FLASH_NVFP4, tmp_path, sglang_version="0.5.14", **routed))


_EAGLE = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "speculative_num_draft_tokens": 2}
_EAGLE |= {"speculative_eagle_topk": 1}
_ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
_OF_STAGES = {**FLASH, "dspark_target_layer_ids": [40, 41, 42], "dspark_block_size": 5}


def test_the_draft_of_a_checkpoint_with_nvfp4_experts_has_mxfp4_ones(tmp_path: Path) -> None:
    plans = [make_plan(_of_v4(config, tmp_path, **_EAGLE), gpus=()) for config in (FLASH_NVFP4, FLASH)]
    mixed, plain = (plan.draft.ops if plan.draft else () for plan in plans)
    assert mixed == plain and mixed != plans[0].target.ops


@pytest.mark.parametrize(
    ("config", "flags", "unknown"),
    [
        (FLASH, {}, []),
        (FLASH, _EAGLE, []),
        (FLASH_FP8, _ROUTED, []),
        # Its layers do not all choose as that kernel would.
        (FLASH, {"moe_runner_backend": "flashinfer_trtllm"}, ["the experts of flashinfer_trtllm"]),
        (FLASH, _ROUTED, ["the experts of flashinfer_trtllm_routed"]),
        (FLASH_NVFP4, {"moe_runner_backend": "flashinfer_cutlass"}, ["the experts of flashinfer_cutlass"]),
        (FLASH_NVFP4, {"moe_runner_backend": "flashinfer_mxfp4"}, ["the experts of flashinfer_mxfp4"]),
        (FLASH_NVFP4, _EAGLE, []),
        (_OF_STAGES, {"speculative_algorithm": "DSPARK"}, ["the draft's experts of flashinfer_mxfp4"]),
        # Small batches of this width are finished later, and asked for by another key.
        ({**FLASH, "hidden_size": 5120}, {}, ["the experts of flashinfer_mxfp4"]),
    ],
)
def test_what_of_deepseek_v4_is_planned_and_what_is_named(
    config: dict[str, Any], flags: dict[str, Any], unknown: list[str], tmp_path: Path
) -> None:
    plan = make_plan(_of_v4(config, tmp_path, **flags), gpus=())
    assert [gap.what for gap in gaps_of(plan)] == unknown
    assert bool(plan.target.ops) == (not unknown or "draft" in unknown[0])


@pytest.mark.parametrize(
    ("config", "flags", "why"),
    [
        (FLASH_FP8, _ROUTED, None),
        (FLASH_NVFP4, {}, None),
        (FLASH_NVFP4, _EAGLE, "deepseek_v4 with drafts: how they mix its streams is not known here"),
        (FLASH, {"arch": "sm90"}, None),
        (FLASH, {}, "this runtime has no kernels of flashinfer_mxfp4"),
        (FLASH, {"arch": "sm120"}, "this runtime has no kernels of flashinfer_mxfp4"),
    ],
)
def test_a_warm_runs_its_layers_where_it_has_its_experts(
    config: dict[str, Any], flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    plan = make_plan(_of_v4(config, tmp_path, **flags), gpus=())
    assert plan.caches and cannot_tune(plan) == why


MXFP4 = {"moe_runner_backend": "flashinfer_mxfp4"}


@pytest.mark.parametrize(
    ("config", "flags", "why"),
    [
        (FLASH, {"tp": 4}, None),
        (FLASH, {"tp": 4, "arch": "sm120"}, None),
        (FLASH, {"tp": 4, **MXFP4, "arch": "sm90", "sglang_version": "0.5.12"}, None),
        (FLASH, {"tp": 4, **MXFP4, "arch": "sm120", "sglang_version": "0.5.16"}, None),
        (FLASH, {"tp": 4, **MXFP4, "arch": "sm120", "sglang_version": "0.5.15"}, "for experts in fp8"),
        (FLASH_FP8, {"tp": 4, **MXFP4}, "for experts in fp8"),
        (FLASH, {"tp": 4, "kv_cache_dtype": "bfloat16"}, "compressed keys is of fp8_e4m3 alone"),
        (FLASH, {"tp": 4, "kv_cache_dtype": "fp8_e4m3"}, None),
        (FLASH, {"tp": 16}, "8 groups of heads cannot be divided among 16 ranks"),
        (FLASH, {"tp": 16, "dp": 2, "enable_dp_attention": True}, None),
        (PRO, {"tp": 16, "arch": "sm90"}, "multiples of 128, and a rank's are 192 wide"),
        (PRO, {"tp": 16}, None),
    ],
)
def test_its_experts_have_kernels_of_their_own_on_each_gpu(
    config: dict[str, Any], flags: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_of_v4(config, tmp_path, **{"flashinfer_version": None, **flags}))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("config", "each"), [(FLASH, 0.54), (FLASH_NVFP4, 0.57)])
def test_a_worker_needs_room_for_a_layer_whose_experts_are_in_four_bits(
    config: dict[str, Any], each: float, tmp_path: Path
) -> None:
    plan = make_plan(_of_v4(config, tmp_path), gpus=())
    largest = max(bucket for op in plan.target.ops for bucket in op.buckets)
    experts = 256 * 3 * 4096 * (2048 // 4) * each
    rows = 2 * largest * (6 * (2 * 4096 + 3 * 512) + 6 * 4096)
    queries, answers = 1024 * (4096 + 16 * 512), 16 * 512 * 1024 + 2 * 1024 * 4096
    keys, indexed = 4096 * (5 * 512 + 4 * 128), 64 * (1024 * 128 + 4096)
    layer = queries + answers + keys + indexed + 3 * 4096 * 2048 // 4
    assert plan.worker_bytes == pytest.approx(experts + rows + layer, rel=0.002)
