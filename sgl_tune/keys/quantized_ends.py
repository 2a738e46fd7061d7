"""Where the class of one family ends at quantized weights that others load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.quantization import OWN_FILES
from runtime.server.recurrent import Mamba2Config
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_ASK_THE_CHECKPOINT = (
    *("modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", "petit_nvfp4"),
    *("compressed-tensors", "fbgemm_fp8", "quark"),
)
# get_supported_act_dtypes and get_min_capability of srt/layers/quantization, in every release; others take
# float16 and bfloat16.
_TAKES = {
    **dict.fromkeys(("awq", "gptq", "marlin"), ("float16",)),
    "w4afp8": ("bfloat16",),
    **dict.fromkeys(("bitsandbytes", "gguf"), ("float32", "float16", "bfloat16")),
}
_NEEDS = {
    "mxfp8": 100,
    **dict.fromkeys(("w4afp8", "petit_nvfp4", "minimax_m3_nvfp4"), 90),
    **dict.fromkeys(("modelopt", "modelopt_fp8", "w8a8_fp8"), 89),
}
_FP4_ON_OTHERS = (0, 5, 13)  # modelopt_fp4, by Marlin
_SECTIONS = ("quantization_config", "compression_config")
_GRANITES_EXPERTS = (("fp8", "row"), ("fp8", "block"))


def ends_of_quantized(deployment: Deployment) -> Iterator[str]:
    if deployment.quantization is not None:
        yield from _dropped(deployment)
        yield from _unsupported(deployment)
        yield from _untold(deployment)
        yield from _mixers(deployment)
        yield from _granite_hybrid(deployment)


def _dropped(deployment: Deployment) -> Iterator[str]:
    """Read anew by the argument that some families write back: srt/configs/model_config.py."""
    method = deployment.quantization
    if method in deployment.server.release.dropped_methods:
        yield (
            f"SGLang reads config.json once more as --quantization {method}, of which it has no method: "
            f"--quantization {method}_marlin"
        )


def _unsupported(deployment: Deployment) -> Iterator[str]:
    """_get_quantization_config of srt/model_loader/loader.py."""
    method, server = deployment.quantization or "", deployment.server
    takes = _TAKES.get(method, ("float16", "bfloat16"))
    if server.dtype not in takes:
        yield f"--dtype {server.dtype}: quantization {method} takes {' or '.join(takes)}"
    needs = _NEEDS.get(method, 0)
    if method == "modelopt_fp4" and server.release.number < _FP4_ON_OTHERS:
        needs = 100
    if int(server.gpu.arch.removeprefix("sm")) < needs:
        yield f"quantization {method} needs sm{needs} at least, and this is {server.gpu.arch}"


def _untold(deployment: Deployment) -> Iterator[str]:
    """get_quant_config of srt/model_loader/weight_utils.py asks a checkpoint how it was quantized, and
    ModelOptModelLoader, where that says nothing, makes a model of transformers' own, which serves nobody."""
    method, release = deployment.quantization, deployment.server.release
    checkpoint = checkpoint_of(deployment)
    told = *map(checkpoint.mapping, _SECTIONS), checkpoint.text.get(_SECTIONS[0]), checkpoint.quant_file
    if any(told):
        return
    if method in OWN_FILES:
        yield (
            f"--quantization {method}: SGLang asks the checkpoint how it was quantized, of which config.json "
            f"says nothing, and no {' or '.join(OWN_FILES[method])} lies beside it"
        )
    if method not in _ASK_THE_CHECKPOINT:
        return
    if method == "modelopt_fp4" and release.quantizes_modelopt_fp4:
        return
    yield (
        f"--quantization {method}: SGLang {release.version} asks the checkpoint how it was quantized, and "
        "config.json says nothing of it: --quantization fp8 quantizes what is plain"
    )


def _mixers(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/mamba/mamba.py: whatever of it a list keeps plain."""
    recurrent, ranks = deployment.model.recurrent, deployment.parallel.attn_tp
    if deployment.model.model_type == "falcon_h1":
        return  # whose mixers are plain
    if isinstance(recurrent, Mamba2Config) and recurrent.num_groups % ranks:
        yield f"{ranks} ranks cannot share quantized matrices of {recurrent.num_groups} groups of Mamba's"


def _granite_hybrid(deployment: Deployment) -> Iterator[str]:
    """load_weights of srt/models/granitemoehybrid.py: what it asks a method for, and how it knows experts."""
    model, method = deployment.model, deployment.quantization
    if model.model_type != "granitemoehybrid":
        return
    if method != "compressed-tensors":
        yield f"SGLang's class of Granite 4 loads weights in compressed-tensors, and these are in {method}"
    elif "moe" in model.layer_kinds:
        blocks = (model.block_name(layer) for layer in range(model.num_layers))
        kinds = {model.quantized.of_experts(model.experts_name(block)) for block in blocks}
        unread = next((one for one in kinds if one and (one.name, one.per) not in _GRANITES_EXPERTS), None)
        if unread is not None:
            yield f"SGLang's class of Granite 4 knows no tensors of experts in {unread.name} a {unread.per}"
