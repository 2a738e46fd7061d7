"""Runs each release's own call of DeepSeek-V4's experts, and keeps what it asks FlashInfer's tuner for.

The functions are taken from the wheels' sources and run on tensors without data, over the FlashInfer that is
installed, whose compiled kernels alone are left out.

python -m tests.oracle.v4_calls
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flashinfer import fused_moe
from flashinfer.tllm_enums import ActivationType

from runtime.server.buckets import next_power_of_2, tuning_buckets
from runtime.server.rows import batch_rows
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.expert_calls import rows_of_mxfp4
from tests.oracle.deepseek_v4 import RECORDED, cases, deployment_of
from tests.oracle.wheels import WORK, wheel_of
from tests.stock.kernel_stubs import asking_tuner, install_cutlass_module, install_trtllm_module

_FP8, _BYTES = torch.float8_e4m3fn, torch.uint8
_TRTLLM = "layers/quantization/mxfp4_flashinfer_trtllm_moe.py"
_CUTLASS = "layers/quantization/mxfp4_flashinfer_cutlass_moe.py"
_FUSED = ("_fused_experts_flashinfer_mxfp4_cutlass", "fused_experts_none_to_flashinfer_mxfp4")


class _WithoutTypes(ast.NodeTransformer):
    """And without what SGLang imports where it is called: stand-ins have those names."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list, node.returns = [], None
        for argument in node.args.args:
            argument.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Pass() if node.value is None else ast.Assign([node.target], node.value)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.Pass()


def _function(source: Path, name: str, names: dict[str, Any]) -> Callable[..., Any] | None:
    tree = ast.parse(source.read_text())
    found = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name]
    if not found:
        return None
    bare = ast.fix_missing_locations(_WithoutTypes().visit(found[0]))
    exec(compile(ast.Module([bare], []), str(source), "exec"), names)
    function: Callable[..., Any] = names[name]
    return function


def _meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _quantize(x: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _meta(*x.shape, dtype=_FP8), _meta(x.shape[0], x.shape[1] // 32, dtype=_BYTES)


def _names(root: Path, deployment: Deployment) -> dict[str, Any]:
    fused = re.search(r"_MOE_FUSED_FINALIZE = EnvBool\((\w+)\)", (root / "environ.py").read_text())
    switches = {"SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": bool(fused) and fused.group(1) == "True"}
    switches["SGLANG_OPT_MXFP4_DEFERRED_FINALIZED_SHAPE"] = False
    chunk = min(batch_rows(deployment.server).prefill, 8192)
    return {
        "torch": torch,
        "isinstance": lambda value, kind: kind is None or isinstance(value, kind),
        "TopKOutputChecker": SimpleNamespace(
            format_is_standard=lambda _: True, format_is_bypassed=lambda _: False
        ),
        "StandardCombineInput": SimpleNamespace,
        "PackTopkIds": SimpleNamespace(execute=lambda ids, weights: ids),
        "mxfp8_quantize": _quantize,
        "flashinfer_mxfp8_quantize": _quantize,
        "use_symmetric_memory": lambda *_, **__: nullcontext(),
        "get_tp_group": lambda: None,
        "get_parallel": lambda: SimpleNamespace(tp_group=None),
        "is_allocation_symmetric": lambda: True,
        "is_deferred_finalize_enabled": lambda: False,
        "trtllm_moe_enable_pdl": lambda rows: True,
        "routed_hidden_size": lambda layer: layer.w13_weight.shape[2] * 2,
        "next_power_of_2": next_power_of_2,
        "envs": SimpleNamespace(
            **{name: SimpleNamespace(get=lambda on=on: on) for name, on in switches.items()}
        ),
        "RoutingMethodType": SimpleNamespace(TopK=1),
        "ActivationType": ActivationType,
        "trtllm_fp4_block_scale_routed_moe": fused_moe.trtllm_fp4_block_scale_routed_moe,
        "flashinfer_cutlass_fused_moe": fused_moe.cutlass_fused_moe,
        "_flashinfer_cutlass_fused_moe": lambda: (fused_moe.cutlass_fused_moe, ActivationType),
        "_cutlass_moe_tune_max_num_tokens": lambda rows: chunk,
        **dict.fromkeys(("_MXFP8_QUANTIZE_BACKEND", "Mxfp8RoutedInputPreQuant"), int),
        **dict.fromkeys(("FlashInferCutlassMxfp4MoeQuantInfo", "FlashInferMxfp4CutlassMoeQuantInfo")),
    }


def _layer(deployment: Deployment, pads: bool) -> SimpleNamespace:
    """A rank's experts: all that the releases' functions look at, on a layer or beside it."""
    model, parallel = deployment.model, deployment.parallel
    assert model.moe is not None
    h, i, e = model.hidden_size, model.moe.intermediate_size // parallel.moe_tp, model.moe.num_experts
    i, e = -(-i // 128) * 128 if pads else i, e // parallel.moe_ep
    ones = _meta(e, dtype=torch.float32)
    scales = {"w13": _meta(e, 2 * i, h // 32, dtype=_BYTES), "w2": _meta(e, h, i // 32, dtype=_BYTES)}
    sizes = {"moe_tp_size": parallel.moe_tp, "moe_ep_size": parallel.moe_ep}
    absent = ("w13_bias", "w2_bias", "swiglu_alpha", "swiglu_beta", "padded_hidden")
    residuals = ("w13_humming_residual_scale", "w2_humming_residual_scale", "humming_fc2_act_scale")
    makes_fp8 = deployment.arch == "sm90" and rows_of_mxfp4(deployment) == "fp8"
    outputs = ("output1_scale_scalar", "output1_scale_gate_scalar", "output2_scale_scalar")
    return SimpleNamespace(
        w13_weight=_meta(e, 2 * i, h // 2, dtype=_BYTES),
        w2_weight=_meta(e, h, i // 2, dtype=_BYTES),
        **{f"{name}_weight_scale_inv": scale for name, scale in scales.items()},
        **{f"{name}_weight_scale": scale for name, scale in scales.items()},
        **dict.fromkeys(absent),
        **dict.fromkeys(residuals, ones if makes_fp8 else None),
        **dict.fromkeys((*outputs, "swiglu_limit"), ones),
        **dict.fromkeys(("moe_tp_rank", "moe_ep_rank"), 0),
        **sizes,
        mxfp4_weight_global_scale=None if deployment.arch == "sm90" else ones,
        use_swiglu_step=False,
        num_local_experts=e,
        num_experts=model.moe.num_experts,
    )


def _call(root: Path, deployment: Deployment) -> Callable[[int], object]:
    names, on_trtllm = _names(root, deployment), deployment.arch == "sm100"
    layer = _layer(deployment, on_trtllm and "_pad_intermediate_size" in (root / _TRTLLM).read_text())
    own = SimpleNamespace(flashinfer_mxfp4_moe_precision=rows_of_mxfp4(deployment))
    own._gemm1_clamp_limit_tensor = own._swiglu_limit_tensor = layer.swiglu_limit
    own._swiglu_alpha_tensor = own._swiglu_beta_tensor = layer.swiglu_limit
    quantize = _function(root / _TRTLLM, "quantize_routed_input", names)
    own.quantize_routed_input = lambda x, width: quantize(own, x, width) if quantize else None
    fused = None if on_trtllm else _fused(root, names)
    apply = _function(root / (_TRTLLM if on_trtllm else _CUTLASS), "apply", names)
    model = deployment.model
    assert model.moe is not None and apply is not None
    hidden, top_k = model.hidden_size, model.moe.top_k

    def call(rows: int) -> object:
        ids, weights = _meta(rows, top_k, dtype=torch.int32), _meta(rows, top_k, dtype=torch.float32)
        given = SimpleNamespace(
            hidden_states=_meta(rows, hidden),
            topk_output=SimpleNamespace(topk_ids=ids, topk_weights=weights),
        )
        return apply(own, layer, given) if fused is None else fused(given, layer, layer)

    return call


def _fused(root: Path, names: dict[str, Any]) -> Callable[..., Any] | None:
    """Since 0.5.13 a function of the MoE runner makes the call of CUTLASS's kernels."""
    for file in sorted((root / "layers/moe/moe_runner").glob("flashinfer_*.py")):
        for name in _FUSED:
            found = _function(file, name, names)
            if found is not None:
                return found
    return None


def asked(case: dict[str, Any], work: Path) -> list[str]:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        install_trtllm_module(patch)
        install_cutlass_module(patch)
        tuner = asking_tuner(patch)
        deployment = deployment_of(case, Path(folder))
        call = _call(wheel_of(case["release"], work).folder / "sglang/srt", deployment)
        largest = batch_rows(deployment.server).serving
        for rows in sorted({*tuning_buckets(largest), largest}):
            call(rows)
        return sorted(tuner.asked)


def main() -> None:
    with gzip.open(RECORDED, "wt") as file:
        for case in cases():
            file.write(json.dumps({"case": case, "asked": asked(case, WORK)}) + "\n")


if __name__ == "__main__":
    main()
