"""What SGLang's quantization methods make of a layer's sizes: create_weights of each, on meta tensors.

Runs in the oracle's interpreter. Reads cases, a JSON object a line, and prints a list of tensors for each.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from tests.oracle.inside import enter, keep_output

MODEL = "models/meta-llama/Llama-3.1-8B-Instruct"


def main() -> None:
    enter()
    out = keep_output()
    from tests.oracle.release_start import _publish, _resolved

    _publish(_resolved(["--model-path", MODEL]))
    for line in sys.stdin:
        case = json.loads(line)
        try:
            answer: Any = {"tensors": _made(case)}
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


def _made(case: dict[str, Any]) -> list[list[Any]]:
    import torch

    layer, method = layer_of(case)
    if method is None:
        return [["plain"]]
    found = {name: held for name, held in vars(layer).items() if isinstance(held, torch.nn.Parameter)}
    found |= dict(layer.named_parameters())
    return [[name, str(held.dtype).removeprefix("torch."), list(held.shape)] for name, held in found.items()]


def layer_of(case: dict[str, Any], device: str = "meta") -> tuple[Any, Any]:
    """As create_weights leaves it, and the method that it has; none has a plain one."""
    import torch
    from sglang.srt.layers.quantization import get_quantization_config

    _choose(case)
    config = get_quantization_config(case["method"]).from_config(case["section"])
    if not getattr(config, "packed_modules_mapping", None):  # as models have it
        config.packed_modules_mapping = {
            "qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"],
        }  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        layer = _experts(case) if "experts" in case else _linear(case)
        method = config.get_quant_method(layer, case["name"])
        if method is None:
            return layer, None
        if "experts" in case:
            method.create_weights(
                layer=layer, num_experts=case["experts"], hidden_size=case["hidden"],
                intermediate_size_per_partition=case["inner"], params_dtype=torch.bfloat16,
                weight_loader=_nothing,
            )  # fmt: skip
        else:
            method.create_weights(
                layer, case["columns"], case["rows"], case["all_columns"], case["all_rows"], torch.bfloat16,
                weight_loader=_nothing,
            )  # fmt: skip
    return layer, method


def _choose(case: dict[str, Any]) -> None:
    from sglang.srt.layers.moe import utils

    chosen = utils.MoeRunnerBackend(case["backend"])
    utils.MOE_RUNNER_BACKEND = chosen  # which later releases do not read
    try:
        from sglang.srt.runtime_context import get_flags

        get_flags().moe.runner_backend = chosen
    except (ImportError, AttributeError):
        return


def _linear(case: dict[str, Any]) -> Any:
    import torch
    from sglang.srt.layers import linear

    kind = getattr(linear, case["class"])
    layer = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    layer.scheme = None
    layer.input_size, layer.output_size = case["all_columns"], case["all_rows"]
    layer.input_size_per_partition, layer.output_size_per_partition = case["columns"], sum(case["rows"])
    layer.tp_group = SimpleNamespace(world_size=case["ranks"])
    layer.tp_size = case["ranks"]
    return layer


def _experts(case: dict[str, Any]) -> Any:
    import torch
    from sglang.srt.layers.moe.fused_moe_triton import FusedMoE

    layer = FusedMoE.__new__(FusedMoE)
    torch.nn.Module.__init__(layer)
    layer.scheme = None
    layer.num_experts, layer.num_local_experts = case["all_experts"], case["experts"]
    layer.hidden_size = layer.hidden_size_unpadded = case["hidden"]
    layer.intermediate_size_per_partition = case["inner"]
    layer.moe_tp_size, layer.moe_ep_rank = case["ranks"], 0
    layer.moe_ep_size = case["all_experts"] // case["experts"]
    layer.use_triton_kernels = layer.use_flashinfer_trtllm_moe = False
    layer.moe_runner_config = SimpleNamespace(
        is_gated=case.get("gated", True), activation="silu", apply_router_weight_on_input=False,
        intermediate_size_per_partition=case["inner"], swiglu_limit=None, gemm1_clamp_limit=None,
    )  # fmt: skip
    return layer


def _nothing(*arguments: Any, **options: Any) -> None:
    return None


if __name__ == "__main__":
    main()
