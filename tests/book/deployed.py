"""What each function of the plans answers to a deployment, one thing of its server, of its model or of its
experts told otherwise at a time. Not each of these could start: this is the function."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from zlib import crc32

from runtime.server.asked import Asked
from runtime.server.backends import BACKENDS
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import MoEConfig
from runtime.server.flashinfer import flashinfer_of
from runtime.server.gpus import CPU, find_gpu
from runtime.server.modules import modules_of
from runtime.server.releases import RELEASES
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.keys import call_shapes, class_ends, dense_shapes, gaps, kernel_ends, starts, tunable
from sgl_tune.keys.op_shapes import OpShape
from tests.book.cases import checkpoint_of
from tests.book.plain import plain
from tests.book.rows import Row
from tests.memory.quantized import SECTIONS

_FLASHINFER, _LONG = "0.7.2", 100
_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}
_TRTLLM, _CUTLASS = {"moe_runner_backend": "flashinfer_trtllm"}, {"moe_runner_backend": "flashinfer_cutlass"}
_CUTEDSL = {"moe_runner_backend": "flashinfer_cutedsl"}
_BASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "fp8 blocks": (
        *("small/qwen3_moe", {**_TRTLLM, "tp_size": 2}),
        {"quantization_config": _BLOCKS, "mlp_only_layers": []},
    ),
    "nvfp4": ("small/deepseek_v3", {**_TRTLLM, "quantization": "modelopt_fp4"}, {"n_shared_experts": 1}),
    "mxfp4": ("small/gpt_oss", {"moe_runner_backend": "flashinfer_mxfp4", "quantization": "mxfp4"}, {}),
    "behind a gate": ("small/qwen3_next", {**_CUTLASS, "tp_size": 2, "ep_size": 2}, {}),
    "fused": ("small/glm4_moe", {**_CUTLASS, "quantization": "modelopt_fp8"}, {"n_shared_experts": 1}),
    "cutedsl": (
        *("small/qwen2_moe", {**_CUTEDSL, "quantization": "modelopt_fp4"}),
        {"mlp_only_layers": []},
    ),
    "rows scaled each": (
        *("small/qwen2_moe", {**_CUTEDSL, "quantization": "nvfp4_online"}),
        {"mlp_only_layers": []},
    ),
    "packed nvfp4": (
        *("small/qwen3_moe", {**_TRTLLM}),
        {"quantization_config": SECTIONS["nvfp4"], "mlp_only_layers": []},
    ),
    "weighted rows": ("small/llama4_text", {**_CUTLASS}, {}),
    "behind an all-to-all": ("small/deepseek_v2", {
        **{**_CUTEDSL, "quantization": "modelopt_fp4", "moe_a2a_backend": "flashinfer", "tp_size": 2},
        **{"dp_size": 2, "enable_dp_attention": True},
    }, {}),
    "dense": ("small/llama", {**_CUTLASS, "quantization": "modelopt_fp8"}, {}),
}  # fmt: skip
_METHODS = (None, "fp8", "mxfp8", "modelopt_fp4", "modelopt_fp8", "mxfp4", "nvfp4", "compressed-tensors",
            "awq_marlin", "gptq_marlin", "awq")  # fmt: skip
_OF_SERVER: dict[str, tuple[Any, ...]] = {
    "moe_runner_backend": tuple(BACKENDS),
    "moe_a2a_backend": ("none", "flashinfer", "deepep", "megamoe", "flashinfer_megamoe"),
    "fp4_gemm_backend": ("flashinfer_cutlass", "flashinfer_cudnn", "flashinfer_trtllm", "marlin"),
    "model_quantization": _METHODS,
    "quantization": _METHODS,
    "gpu": (*map(find_gpu, ("H200", "B200", "RTX PRO 6000")), CPU),
    "release": RELEASES,
    **{"tunes": (False,), "is_draft": (True,), "dtype": ("float16",), "tp_size": (1, 4, 8)},
    **{"kv_cache_dtype": ("fp8_e4m3", "bfloat16"), "fuses_all_reduce": (True, False)},
    **dict.fromkeys(
        ("prefill_attention_backend", "decode_attention_backend"), ("fa3", "flashinfer", "trtllm_mha")
    ),
    **{"ep_size": (1, 4), "attn_dp_size": (2,), "fused_finalize": (False,)},
}
_KINDS = (
    *("mixtral", "deepseek_v3", "glm4_moe", "qwen3_moe", "qwen3_next", "llama4_text", "step3p5"),
    "glm_moe_dsa",
)
_OF_MODEL: dict[str, tuple[Any, ...]] = {
    "model_type": _KINDS, "quantization_block": (None, (128, 128), (96, 32)), "gated_mlps": (True, False),
    "checkpoint_quantization": _METHODS, "hidden_size": (96, 200), "intermediate_size": (48, 200),
    "layer_kinds": (("dense",) * 7,),
}  # fmt: skip
_OF_EXPERTS: dict[str, tuple[Any, ...]] = {
    "num_experts": (1, 16, 256), "top_k": (1, 3), "intermediate_size": (48, 200, 256), "latent_size": (64,),
    "shared_intermediate_size": (0, 48, 64, 200), "scoring": ("softmax", "sigmoid"),
    **{name: (True, False) for name in ("renormalize", "correction_bias", "weighs_input", "expert_bias")},
}  # fmt: skip
_Answers = Callable[[Deployment], Any]


def _base(name: str) -> Deployment:
    model, flags, changes = _BASES[name]
    checkpoint = Checkpoint({**checkpoint_of(model).hf, **changes})
    asked = Asked(f"models/{model}", **flags)
    return deploy(Inputs("one", asked, checkpoint, find_gpu("B200"), "0.5.23", _FLASHINFER, Path("/cache")))


def _functions() -> Iterator[tuple[str, _Answers]]:
    yield "modules", _modules
    for module in (call_shapes, dense_shapes, gaps, kernel_ends, class_ends, starts, tunable):
        for name, one in vars(module).items():
            if inspect.isfunction(one) and one.__module__ == module.__name__:
                told = [known for what, known in one.__annotations__.items() if what != "return"]
                if told == ["Deployment"]:
                    yield f"{module.__name__.rpartition('.')[2]}.{name}", one


def _modules(deployment: Deployment) -> Any:
    """FlashInfer's, which its server loads."""
    return modules_of(deployment.server, deployment.shape.model)


def _others(of: Deployment) -> Iterator[tuple[str, Deployment]]:
    server, model = of.server, of.shape.model
    assert model is not None
    for name, values in _OF_SERVER.items():
        for value in values:
            yield _said(name, value), replace(of, server=replace(server, **{name: value}))
    for backend in ("flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cutedsl", "cutlass"):
        asked = replace(server.asked, fp8_gemm_runner_backend=backend)
        yield f"fp8 GEMMs by {backend}", replace(of, server=replace(server, asked=asked))
    for name, values in _OF_MODEL.items():
        for value in values:
            shape = replace(of.shape, model=replace(model, **{name: value}))
            yield f"its {_said(name, value)}", replace(of, shape=shape)
    for head in (64, 80, 128, 192, 256):
        kinds = {kind: replace(one, head_dim=head) for kind, one in model.attention.items()}
        yield f"heads of {head}", replace(of, shape=replace(of.shape, model=replace(model, attention=kinds)))
    for name, values in _OF_EXPERTS.items():
        for value in values if model.moe else ():
            experts = replace(cast(MoEConfig, model.moe), **{name: value})
            shape = replace(of.shape, model=replace(model, moe=experts))
            yield f"its experts' {_said(name, value)}", replace(of, shape=shape)


def _said(name: str, value: Any) -> str:
    return f"{name} {getattr(value, 'version', getattr(value, 'name', value))}"


def deployed(name: str) -> Iterator[Row]:
    base = _base(name)
    others = [*_others(base)]
    for called, function in _functions():
        answer = _answer(function, base)
        told = {said: _answer(function, one) for said, one in others}
        yield called, {"answers": answer, **{said: one for said, one in told.items() if one != answer}}


def _answer(function: _Answers, of: Deployment) -> Any:
    try:
        found = function(of)
        return _short(_told([*found] if isinstance(found, Iterator) else found))
    except Exception as error:
        return type(error).__name__


def _told(found: Any) -> Any:
    if isinstance(found, OpShape):
        return [found.op, found.runner, plain(found.policy), *found.keys(7, flashinfer_of(_FLASHINFER).keys)]
    return [*map(_told, found)] if isinstance(found, (tuple, list)) else plain(found)


def _short(answer: Any) -> Any:
    """Of a long one its beginning, and a sum of all of it."""
    told = json.dumps(answer)
    return answer if len(told) <= _LONG else f"{told[:_LONG]}... {crc32(told.encode()):08x}"


DEPLOYED_OF = {f"deployed {name}": partial(deployed, name) for name in _BASES}
