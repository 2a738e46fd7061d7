"""Where the class of one family ends at quantized weights that others load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.call_rules import fused_shared_experts, fuses_on_each_rank, has_no_shared_mlp
from runtime.server.errors import ConfigError
from runtime.server.linears import LinearSize, Spread, each_listed, linears, listed_as
from runtime.server.parallel_config import ParallelConfig
from runtime.server.quantization import OWN_FILES
from runtime.server.recurrent import Mamba2Config
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.section_ends import ends_of_section

if TYPE_CHECKING:
    from runtime.server.config import ModelConfig
    from runtime.server.formats.kinds import Kind
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
_ASK_BOTH = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm5_next_text", "hy_v4")
_MINICPM_3 = "minicpm3"  # whose class asks no other of its matrices
_OF_LATENTS = (*_ASK_BOTH, "glm4_moe_lite", "mistral_large_3", "dots_vlm_text", _MINICPM_3)
_ASK_A_WEIGHT = ("glm4_moe", "glm4v_moe_text")
# Of deepseek_v2.py, which asks what latents are made of, and a shared expert, for a weight in these releases.
_FIRST_LATENTS, _SECOND_LATENTS, _SHARED = (0, 5, 18), ((0, 5, 16), (0, 5, 19)), (0, 5, 19)
_WITHOUT_A_WEIGHT = ("nvfp4_packed", "packed", "gptq", "awq")
_BLOCKS_OF_ALL = (0, 5, 19)  # of every method, if none
_WEIGHTS_IN_FP4 = (0, 5, 22)  # by Marlin
_QWEN_3_5, _MIXERS_IN_FP4 = ("qwen3_5_text", "qwen3_5_moe_text"), (0, 5, 17)
_PLAIN_ATTENTION = {"stablelm": "StableLM", "olmo": "OLMo 1"}
_KIMI_VL = "KimiVLForConditionalGeneration"
_GEMMA_4 = "Gemma4ForConditionalGeneration"
_OF_EARS = "model.audio_tower.conformer.0.lconv1d.linear_start.linear"
_GRANITES_EXPERTS = (("fp8", "row"), ("fp8", "block"))


def ends_of_quantized(deployment: Deployment) -> Iterator[str]:
    if deployment.quantization is not None:
        yield from _dropped(deployment)
        yield from _unsupported(deployment)
        yield from _untold(deployment)
        yield from ends_of_section(deployment)
        yield from _mixers(deployment)
        yield from _granite_hybrid(deployment)
        yield from _packed_fp4(deployment)
        yield from _of_matrices(deployment)


def _of_matrices(deployment: Deployment) -> Iterator[str]:
    """Where SGLang is told two things of what it runs as one, it ends at that."""
    try:
        rules = (
            *(_shared_experts, _fused_experts, _latents, _mixers_without_weights),
            *(_plain_mixers, _plain_attention, _ears),
        )
        for rule in rules:
            yield from rule(deployment)
    except ConfigError as error:
        yield error.message


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
    if _number(deployment) < needs:
        yield f"quantization {method} needs sm{needs} at least, and this is {server.gpu.arch}"


def _number(deployment: Deployment) -> int:
    return int(deployment.server.gpu.arch.removeprefix("sm"))


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
    if method == "mxfp4":
        yield "--quantization mxfp4: SGLang makes mxfp4 of plain weights on AMD's GPUs alone"
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


def _shared_experts(deployment: Deployment) -> Iterator[str]:
    """Of DeepSeek's layers and GLM 4.5's (srt/models/deepseek_v2.py, glm4_moe.py), where they stand apart:
    these ask one matrix for its dtype, and the other for its blocks."""
    model = deployment.model
    if model.model_type not in (*_ASK_BOTH, *_ASK_A_WEIGHT) or _fuses_shared(deployment):
        return
    sizes = [
        size for size in linears(model, ParallelConfig(), Spread(1, 1)) if size.place == "beside experts"
    ]
    for up, down in zip(sizes[::2], sizes[1::2], strict=True):
        for layer in up.layers:
            kind, other = _kind(model, up, layer), _kind(model, down, layer)
            if kind is not None and _is_asked_in_vain(deployment, kind):
                yield f"SGLang's class asks shared experts for a weight, which those in {kind.name} have not"
            if kind is not None and kind.name == "fp8" and deployment.quantization == "w8a8_fp8":
                yield "SGLang asks shared experts for blocks of their method, and w8a8_fp8 has no such thing"
            if kind is not None and kind.name == "fp8" and _asks_modelopt_for_blocks(deployment):
                yield "SGLang before 0.5.19 asks ModelOpt's fp8 of shared experts for blocks"
            if kind is not None and kind.name == "fp8" and other is None:
                yield f"SGLang asks for blocks of fp8 in {down.modules[0]} of layer {layer}, which is plain"


def _fused_experts(deployment: Deployment) -> Iterator[str]:
    """srt/models/qwen2_moe.py, whose shared expert is then one of the routed ones, in their format."""
    model = deployment.model
    if not fuses_on_each_rank(model, deployment.runtime):
        return
    for size in linears(model, ParallelConfig(), Spread(1, 1)):
        for layer in size.layers if size.place == "beside experts" and "shared" in size.modules[0] else ():
            routed = model.quantized.of_experts(model.experts_name(model.block_name(layer)))
            if _kind(model, size, layer) != routed:
                yield f"SGLang runs layer {layer}'s shared expert as a routed one: it is stored otherwise"


def _is_asked_in_vain(deployment: Deployment, kind: Kind) -> bool:
    """AWQ's of no class is asked; of DeepSeek's, packed ones are under that name, too."""
    if deployment.model.model_type in _ASK_A_WEIGHT:
        return kind.name in _WITHOUT_A_WEIGHT and kind.name != "awq"
    return kind.name == "gptq" and deployment.server.release.number < _SHARED


def _latents(deployment: Deployment) -> Iterator[str]:
    """srt/models/deepseek_v2.py as it makes attention; deepseek_common takes kv_b_proj apart, and minicpm3.py
    its own."""
    model, release = deployment.model, deployment.server.release.number
    if model.model_type not in _OF_LATENTS or not model.is_mla:
        return
    is_minicpm = model.model_type == _MINICPM_3
    asks_all = is_minicpm or checkpoint_of(deployment).architecture == _KIMI_VL  # AWQ's, too
    for size, layer, parts in each_listed(model):
        kind = model.quantized.of_linear(parts) if size.place == "mixer" else None
        if kind is None or kind.name not in _WITHOUT_A_WEIGHT:
            continue
        name = size.modules[0].rpartition(".")[2]
        is_first = name == "q_a_proj" and release < _FIRST_LATENTS and kind.name != "awq"
        is_second = name == "q_b_proj" and _SECOND_LATENTS[0] <= release < _SECOND_LATENTS[1]
        if (is_first or is_second) and not is_minicpm:
            where = f"{name} of layer {layer}"
            yield f"SGLang before 0.5.19 asks {where} for a weight: those in {kind.name} have none"
        if name == "kv_b_proj" and (kind.name != "awq" or asks_all):
            yield f"SGLang takes {name} of layer {layer} apart, and knows no way of those in {kind.name}"


def _asks_modelopt_for_blocks(deployment: Deployment) -> bool:
    modelopts = deployment.quantization in ("modelopt_fp8", "modelopt_mixed")
    return modelopts and deployment.server.release.number < _BLOCKS_OF_ALL


def _packed_fp4(deployment: Deployment) -> Iterator[str]:
    """srt/layers/quantization/compressed_tensors/compressed_tensors.py"""
    server, weights = deployment.server, deployment.model.quantized
    if server.release.number >= _WEIGHTS_IN_FP4 or deployment.quantization != "compressed-tensors":
        return
    kinds = (weights.linear, weights.experts, *weights.of_expressions, *weights.of_names)
    for kind in dict.fromkeys(kinds):
        if kind is not None and kind.name == "nvfp4_packed" and not kind.has_inputs:
            yield "nvfp4 of weights alone: compressed-tensors has no kernels for it before 0.5.22"
        elif kind is not None and kind.name == "nvfp4_packed" and _number(deployment) < 100:
            yield f"nvfp4 of compressed-tensors needs sm100 at least before 0.5.22: this is {server.gpu.arch}"


def _mixers_without_weights(deployment: Deployment) -> Iterator[str]:
    """srt/models/qwen3_next.py gives a weight another loader, and its scales, which compares shapes."""
    model, reads = deployment.model, deployment.server.asked.load_format != "dummy"
    if model.model_type != "qwen3_next":
        return
    for size, layer, parts in each_listed(model):
        kind = model.quantized.of_linear(parts) if size.place == "mixer" else None
        if kind is None or "in_proj" not in size.modules[0]:
            continue
        name = f"{size.modules[0]} of layer {layer}"
        if kind.name in _WITHOUT_A_WEIGHT:
            yield f"SGLang's class asks {name} for a weight, which those in {kind.name} have not"
        if kind.per == "tensor" and reads:
            yield f"SGLang's class has {name} in parts, each with a scale, and a checkpoint one for all of it"


def _plain_mixers(deployment: Deployment) -> Iterator[str]:
    """srt/models/qwen3_5.py, whose parameters compare shapes with what a file has packed."""
    model, server = deployment.model, deployment.server
    if model.model_type not in _QWEN_3_5:
        return
    in_fp4 = deployment.quantization == "modelopt_fp4" and server.release.number < _MIXERS_IN_FP4
    for size, layer, parts in each_listed(model):
        kind = model.quantized.of_linear(parts)
        if in_fp4 and size.place == "mixer" and kind is not None and server.asked.load_format != "dummy":
            name = f"{size.modules[0]} of layer {layer}"
            yield f"SGLang before 0.5.17 has {name} plain beside nvfp4, and the file has it quantized"


def _plain_attention(deployment: Deployment) -> Iterator[str]:
    """srt/models/stablelm.py and olmo.py give it no method, and know no tensors of one as they read files."""
    model, reads = deployment.model, deployment.server.asked.load_format != "dummy"
    if model.model_type not in _PLAIN_ATTENTION or model.checkpoint_quantization is None:
        return
    for size, layer, parts in each_listed(model):
        if size.place == "mixer" and reads and model.quantized.of_linear(parts) is not None:
            called = _PLAIN_ATTENTION[model.model_type]
            name = f"{size.modules[0]} of layer {layer}"
            yield f"SGLang's class of {called} has {name} plain, and knows no scales of it"


def _fuses_shared(deployment: Deployment) -> bool:
    told = deployment.model, deployment.runtime, deployment.parallel.moe_ep
    return fused_shared_experts(*told) > 0 or has_no_shared_mlp(*told)


def _kind(model: ModelConfig, size: LinearSize, layer: int) -> Kind | None:
    return model.quantized.of_linear(listed_as(model, size, layer))


def _ears(deployment: Deployment) -> Iterator[str]:
    """ClippableGLUParallelLinear of srt/layers/clippable_linear.py, which gives a weight another loader."""
    checkpoint, model = checkpoint_of(deployment), deployment.model
    if checkpoint.architecture != _GEMMA_4 or not checkpoint.mapping("audio_config"):
        return
    online = deployment.quantization in ("fp8", "mxfp8", "w8a8_fp8") and model.checkpoint_quantization is None
    if online or model.quantized.of_linear([_OF_EARS]) is not None:
        yield f"SGLang's class of Gemma 4 loads no ears that are quantized: {_OF_EARS}"
