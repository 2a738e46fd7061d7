"""Experts of compressed-tensors, and those on CuTe DSL, against FlashInfer's own keys, as SGLang asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.keys import expected_keys
from tests.memory.quantized import SECTIONS
from tests.sgl_tune.modelopt import quantized
from tests.stock.calls import (
    INT32,
    Call,
    assert_planned,
    by_chunk,
    deployment_of,
    fp8_block,
    meta,
    mxint4,
    nvfp4,
    serve,
    sizes_of,
)
from tests.stock.cute_dsl_keys import keys_of_cute_dsl
from tests.stock.kernel_stubs import asking_tuner, cutlass_module, install_trtllm_module

MODEL = "Qwen3-30B-A3B"


_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
FORMS = {
    **SECTIONS,
    "int4 in groups of 32": {
        **SECTIONS["int4"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": _INT4}},
    },
}


def _packed(folder: Path, form: str, **flags: Any) -> Deployment:
    told = {"model_path": quantized(folder, MODEL, **FORMS[form]), **flags}
    return deployment_of(**told)


def _nvfp4(deployment: Deployment, rows: int) -> None:
    nvfp4(deployment, rows, pad=128)


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize(
    ("form", "call", "tp"),
    [
        ("nvfp4", _nvfp4, 2),
        ("nvfp4", _nvfp4, 4),
        ("fp8 a block", fp8_block, 2),
        ("int4 in groups of 32", mxint4, 4),
    ],
)
def test_trtllm(form: str, call: Call, tp: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_trtllm_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    deployment = _packed(tmp_path, form, tp=tp, moe_runner_backend="flashinfer_trtllm")
    assert_planned(deployment, serve(deployment, call, tuner))


def test_cutlass_where_nobody_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On sm120 no rule reads the checkpoint's method before the MoE backend is checked."""
    module, tuner = cutlass_module(monkeypatch), asking_tuner(monkeypatch)

    def call(deployment: Deployment, rows: int) -> None:
        h, e, _, k, i = sizes_of(deployment)
        module.cutlass_fused_moe(
            output=meta(rows, h),
            input=meta(rows, h),
            token_selected_experts=meta(rows, k, dtype=INT32),
            token_final_scales=meta(rows, k, dtype=torch.float32),
            fc1_expert_weights=meta(e, 2 * i, h // 16, dtype=torch.int64),
            fc1_expert_biases=None,
            fc2_expert_weights=meta(e, h, i // 16, dtype=torch.int64),
            fc2_expert_biases=None,
            output_dtype=torch.bfloat16,
            quant_scales=None,
            ep_size=1,
            tp_size=deployment.parallel.moe_tp,
            ep_rank=0,
            tp_rank=deployment.parallel.moe_tp - 1,
            tune_max_num_tokens=by_chunk(deployment, rows),
            use_fused_finalize=deployment.runtime.fused_finalize,
            enable_pdl=True,
        )

    for backend in ("flashinfer_cutlass", "flashinfer_mxfp4"):
        deployment = _packed(tmp_path, "nvfp4", tp=4, moe_runner_backend=backend, arch="sm120")
        tuner.asked.clear()
        assert_planned(deployment, serve(deployment, call, tuner))


def test_cute_dsl() -> None:
    told = {"model_path": MODEL, "moe_runner_backend": "flashinfer_cutedsl", "tp": 2}
    fuses = {"SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": "1"}
    cases = [
        (deployment_of(environ=environ, quantization=method, **told), method == "nvfp4_online", bool(environ))
        for method in ("nvfp4_online", "modelopt_fp4")
        for environ in ({}, fuses)
    ]
    planned = [
        next(op for op in expected_keys(deployment) if op.op.startswith("CuteDsl"))
        for deployment, *_ in cases
    ]
    asked = keys_of_cute_dsl(
        [
            (sizes_of(deployment), op.buckets, by_token, fused)
            for (deployment, by_token, fused), op in zip(cases, planned, strict=True)
        ]
    )
    assert [set(op.keys) for op in planned] == asked
