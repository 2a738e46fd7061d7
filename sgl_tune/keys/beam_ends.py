"""Where SGLang's class of Beam ends while it is made: srt/models/beam.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from runtime.server.config import ModelConfig

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_RUNNERS = {"fp8": ("auto", "triton"), "nvfp4": ("flashinfer_trtllm",)}
_PLAIN = ("auto", "triton")
_MEGAMOE = "flashinfer_megamoe"
_MOVED = {"enable_eplb": False, "init_expert_location": "trivial", "ep_num_redundant_experts": 0}
_ADAPTERS = ("enable_lora", "lora_paths")


def ends_of_beam(deployment: Deployment) -> Iterator[str]:
    server, model = deployment.server, deployment.model
    if model.model_type != "beam":
        return
    stored = None if deployment.quantization is None else _stored(model)
    if deployment.quantization is not None and stored is None:
        yield (
            f"weights in {deployment.quantization}: SGLang has Beam's plain, in compressed-tensors' fp8 of "
            "rows with scales a token, and in a checkpoint's modelopt_fp4"
        )
    elif "moe" in model.layer_kinds:
        yield from _experts(deployment, stored)
    if server.asked.moe_dense_tp_size == 1:
        yield "--moe-dense-tp-size 1: Beam's dense layers are split over all ranks"
    told = {name: _told(deployment, name, usual) for name, usual in _MOVED.items()}
    moved = next((name for name, usual in _MOVED.items() if told[name] != usual), None)
    if moved is not None:
        yield f"--{moved.replace('_', '-')}: SGLang moves none of Beam's experts"
    if any(_told(deployment, name, None) for name in _ADAPTERS):
        yield "SGLang has no adapters of Beam: no LoRA"


def _stored(model: ModelConfig) -> str | None:
    """What get_beam_quantization takes: weights of every matrix it lists alike."""
    weights = model.quantized
    kinds = {
        one for one in (weights.linear, weights.experts, *weights.of_names, *weights.of_expressions) if one
    }
    method = model.checkpoint_quantization
    if (
        method == "compressed-tensors"
        and kinds
        and all(one.name == "fp8" and one.per == "row" for one in kinds)
    ):
        return "fp8"
    nvfp4 = (
        method == "modelopt_fp4" and kinds and all(one.name == "nvfp4" and not one.is_awq for one in kinds)
    )
    return "nvfp4" if nvfp4 else None


def _experts(deployment: Deployment, stored: str | None) -> Iterator[str]:
    server = deployment.server
    runner, sent = server.moe_runner_backend, server.moe_a2a_backend
    if sent == _MEGAMOE:
        if stored != "nvfp4" or runner != _MEGAMOE:
            yield f"--moe-a2a-backend {sent}: SGLang sends Beam's experts in nvfp4 alone, by that runner, too"
    elif sent != "none":
        yield f"--moe-a2a-backend {sent}: SGLang sends none of Beam's rows but by {_MEGAMOE}"
    elif runner not in (known := _RUNNERS.get(stored or "", _PLAIN)):
        of = "plain" if stored is None else f"in {stored}"
        yield f"--moe-runner-backend {runner}: Beam's experts {of} are {' or '.join(known)} alone"


def _told(deployment: Deployment, name: str, usual: Any) -> Any:
    asked = deployment.server.asked
    return asked.others.get(name, usual) if name in asked.others else getattr(asked, name, usual)
