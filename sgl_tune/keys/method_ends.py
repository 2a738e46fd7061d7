"""Where a class ends at methods of quantization, by a rule or by a mistake of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.choices import is_on
from runtime.server.linears import each_listed, experts_listed
from runtime.server.resolve import DEEPGEMM
from runtime.server.served_names import kinds_of_loose
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_WITHOUT_PARTS = ("awq", "gptq")
_WITHOUT_A_WEIGHT = ("nvfp4_packed", "packed", "gptq", "awq")
_LING_2_5 = "BailingMoeV2_5ForCausalLM"
_OCRS = ("DeepseekOCRForCausalLM", "UnlimitedOCRForCausalLM")
_HAVE_BLOCKS = ("mxfp8", "w4afp8", "blockwise_int8")  # whatever their section tells


def ends_of_methods(deployment: Deployment) -> Iterator[str]:
    if deployment.quantization is not None:
        yield from _solar(deployment)
        yield from _k2_horizon(deployment)
        yield from _gptj(deployment)
        yield from _sarvam(deployment)
        yield from _minicpm3(deployment)
        yield from _dbrx(deployment)
        yield from _loose_experts(deployment)
        yield from _persimmon(deployment)
        yield from _ling_2_5(deployment)


def _solar(deployment: Deployment) -> Iterator[str]:
    """packed_modules_mapping of srt/models/solar.py has pairs, where those who read it want names. What a
    server quantizes itself is not told of it."""
    declared = deployment.model.checkpoint_quantization
    if deployment.model.model_type == "solar" and declared not in (None, *_WITHOUT_PARTS):
        yield f"SGLang's Solar tells {declared} no names of what runs as one, as awq and gptq want none"


def _k2_horizon(deployment: Deployment) -> Iterator[str]:
    """srt/models/xllm.py, which ends at each tensor of a file that it finds no place for."""
    model, method = deployment.model, deployment.quantization
    if model.model_type != "k2_horizon":
        return
    if method != "compressed-tensors":
        yield f"SGLang's K2 Horizon takes weights in compressed-tensors alone, and these are in {method}"
    elif model.main_attention.value_gate_by is not None:
        yield "SGLang's K2 Horizon takes no quantized weights where values are mixed"
    elif deployment.server.asked.load_format != "dummy":
        section = checkpoint_of(deployment).mapping("quantization_config")
        if section.get("kv_cache_scheme") is not None:
            yield "SGLang's K2 Horizon has no place for the scales of keys and values that a file has"
        if deployment.parallel.pp > 1 and model.quantized.of_head() is not None:
            yield "SGLang's K2 Horizon leaves a quantized head to no other stage, and ends at it there"


def _gptj(deployment: Deployment) -> Iterator[str]:
    """srt/models/gpt_j.py asks a method for its scales of keys and values, which one of them has."""
    reads = deployment.server.asked.load_format != "dummy"
    if deployment.model.model_type == "gptj" and reads and deployment.quantization != "compressed-tensors":
        yield f"SGLang's GPT-J asks {deployment.quantization} for scales of keys, as compressed-tensors has"


def _sarvam(deployment: Deployment) -> Iterator[str]:
    """_set_mla_wkc_wvc of srt/models/sarvam_moe.py takes a weight of it apart."""
    model = deployment.model
    if model.model_type != "sarvam_mla" or deployment.server.asked.load_format == "dummy":
        return
    for _, layer, parts in each_listed(model):
        kind = model.quantized.of_linear(parts) if parts[0].endswith("kv_b_proj") else None
        if kind is not None and kind.name in _WITHOUT_A_WEIGHT:
            yield f"SGLang takes kv_b_proj of layer {layer} apart, and knows no way of those in {kind.name}"
            return


def _minicpm3(deployment: Deployment) -> Iterator[str]:
    """srt/models/minicpm3.py multiplies by what kv_b_proj stores, and by `weight_scale` where that is fp8."""
    model = deployment.model
    for size, layer, parts in each_listed(model) if model.model_type == "minicpm3" else ():
        kind = model.quantized.of_linear(parts) if size.modules[0].endswith("kv_b_proj") else None
        if kind is None or (kind.name == "fp8" and kind.per != "block"):
            continue
        does = "has no scale for" if kind.name in ("fp8", "mxfp8") else "multiplies rows by"
        stored = f"what is in {kind.name} a {kind.per}"
        yield f"SGLang takes kv_b_proj of layer {layer} apart, and {does} {stored}"


def _dbrx(deployment: Deployment) -> Iterator[str]:
    """load_weights of srt/models/dbrx.py, whose experts are plain, and which knows all names of a file."""
    model = deployment.model
    if model.model_type == "dbrx" and deployment.server.asked.load_format != "dummy":
        for name in experts_listed(model):
            if model.quantized.of_experts(name) is not None:
                yield f"SGLang's DBRX has {name} plain, and ends at scales of it: a list has to keep it so"


def _loose_experts(deployment: Deployment) -> Iterator[str]:
    """pack_params of srt/models/deepseek.py and xverse_moe.py, and fused_moe, which is told of no scales."""
    within = "language." if checkpoint_of(deployment).architecture in _OCRS else ""
    for name, kind in kinds_of_loose(deployment.model, within):
        if kind is not None and kind.name in _WITHOUT_A_WEIGHT:
            yield f"SGLang packs the weights of {name}, and what is in {kind.name} has none"
        elif kind is not None:
            yield f"SGLang multiplies by {name} as by plain matrices, in {kind.name} a {kind.per} or not"


def _persimmon(deployment: Deployment) -> Iterator[str]:
    """load_weights of srt/models/persimmon.py lays the rows of query_key_value out anew, by heads."""
    model = deployment.model
    if model.model_type != "persimmon" or deployment.server.asked.load_format == "dummy":
        return
    width = model.main_attention.head_dim
    for _, _, parts in each_listed(model):
        kind = model.quantized.of_linear(parts) if parts[0].endswith("query_key_value") else None
        in_blocks = kind is not None and kind.name in ("fp8", "int8") and kind.per == "block"
        if kind is not None and in_blocks and width % kind.block[0]:
            yield f"SGLang reads {parts[0]} by heads, and {width} rows of one are no whole blocks"


def _ling_2_5(deployment: Deployment) -> Iterator[str]:
    """_weight_requant_ue8m0 of srt/models/bailing_moe_linear.py looks for self_attn in layers that have an
    attention, with weights from files and without."""
    server, method = deployment.server, deployment.quantization
    has_blocks = method in _HAVE_BLOCKS or (
        method == "fp8" and deployment.model.quantization_block is not None
    )
    is_asked = has_blocks and checkpoint_of(deployment).architecture == _LING_2_5
    if is_asked and server.gpu.major == 10 and is_on(deployment.inputs.environ.get(DEEPGEMM, "1")):
        yield (
            f"SGLang makes scales in {method} anew for DeepGEMM on {server.gpu.arch}, of matrices that "
            "Ling 2.5's class calls otherwise"
        )
