"""Servers whose arguments SGLang takes, and that end while they load or tune."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.call_rules import chooses_itself, fuses_on_each_rank
from runtime.server.choices import is_on
from runtime.server.decoders.longcat import MODEL_TYPE as LONGCAT
from runtime.server.errors import ConfigError
from runtime.server.expert_weights import has_int4_experts, packs_nvfp4
from runtime.server.gpus import CPU
from runtime.server.recurrent import LightningConfig, Mamba2Config
from runtime.server.resolve import LONGER_CONTEXT
from sgl_tune.deployment.refusals import undivided_heads
from sgl_tune.keys.call_shapes import has_kernels, routing_of, tunes_moe
from sgl_tune.keys.expert_calls import (
    FP4_TILE,
    MXFP4_BESIDE_FP8,
    NVFP4_BESIDE_FP8,
    checkpoint_of,
    runs_mxfp4_by_cutlass,
    weights_of,
)

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


# Of block-scaled fp8 GEMMs by FlashInfer, where they are asked for: srt/layers/quantization/fp8_utils.py.
_BLOCK_GEMM_MAJORS = {"flashinfer_cutlass": (10, 11, 12), "flashinfer_trtllm": (10,)}

# Experts that go by gelu: the backends and, of TRT-LLM's kernels, the weights that take them.
_WITH_GELU = (
    *("auto", "triton", "triton_kernel", "torch"),
    *("flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_trtllm_routed"),
)
_GELU_ON_TRTLLM = ("modelopt_fp4", "nvfp4_online")
_BY_SILU = ("awq_marlin", "gptq_marlin", "moe_wna16", "mxfp4", "w4afp8")


def never_starts(deployment: Deployment) -> str | None:
    """Why; None of one that may."""
    if deployment.shape.model is None or deployment.arch == CPU.arch:
        return None
    heads = undivided_heads(deployment.server.asked, checkpoint_of(deployment))
    tuned = _reasons(deployment) if deployment.server.tunes else ()
    ends = _undivided_encoder(deployment), _sparse_section(deployment)
    states = _pages_of_states(deployment), _groups_of_norms(deployment), _mixers(deployment)
    own = _longcat(deployment), _layers_apart(deployment), _gates(deployment), _afmoe(deployment)
    return next(chain(heads, *ends, _short_draft(deployment), *states, *own, tuned), None)


def _undivided_encoder(deployment: Deployment) -> Iterator[str]:
    encoder, layout = deployment.model.encoder, deployment.parallel
    ranks = {"tp": layout.tp, "attn_tp": layout.attn_tp}
    try:
        for weight in () if encoder is None else encoder.weights:
            weight.of_rank(ranks[weight.group])
    except ConfigError as error:
        yield error.message


def _short_draft(deployment: Deployment) -> Iterator[str]:
    """srt/configs/model_config.py: a draft is loaded with the context of its target."""
    draft, server, environ = deployment.inputs.draft_checkpoint, deployment.server, deployment.inputs.environ
    if draft is None or server.draft is None or is_on(environ.get(LONGER_CONTEXT)):
        return
    if server.context_length > draft.context_length:
        yield (
            f"its draft has {draft.context_length} positions, and the context is of {server.context_length}: "
            f"--context-length {draft.context_length}, or {LONGER_CONTEXT}=1"
        )


def _pages_of_states(deployment: Deployment) -> Iterator[str]:
    """Of the one model with states whose arguments no rule of SGLang settles: srt/mem_cache, where its
    component for Mamba is made, before 0.5.21 mamba_radix_cache.py."""
    server, states = deployment.server, deployment.server.states
    unsettled = checkpoint_of(deployment).architecture == "Lfm2VlForConditionalGeneration"
    if unsettled and states.keeps_prefixes and not states.extra_buffer and server.page_size != 1:
        yield (
            f"LFM2-VL keeps prefixes in pages of one token, and these are of {server.page_size}: "
            "--disable-radix-cache, or --page-size 1 on another --attention-backend"
        )


def _groups_of_norms(deployment: Deployment) -> Iterator[str]:
    """srt/models/bailing_moe_linear.py: a rank norms what its own heads answer."""
    recurrent, ranks = deployment.model.recurrent, deployment.parallel.attn_tp
    if isinstance(recurrent, LightningConfig) and recurrent.norm_groups % ranks:
        yield f"{recurrent.norm_groups} groups of norms cannot be divided among {ranks} ranks"


def _mixers(deployment: Deployment) -> Iterator[str]:
    """srt/models/falcon_h1.py asks for a head's width, srt/layers/attention/mamba/mamba.py for a bias."""
    recurrent, ranks = deployment.model.recurrent, deployment.parallel.attn_tp
    told, release = checkpoint_of(deployment).get("head_dim"), deployment.server.release
    if deployment.model.model_type == "falcon_h1" and told is None and not release.fills_in_head_dim:
        yield "head_dim is missing, which SGLang reads of config.json before 0.5.14"
    if not isinstance(recurrent, Mamba2Config) or recurrent.conv_bias:
        return
    if recurrent.num_groups == 1 and ranks > 1:
        yield f"convolutions have no bias, which SGLang asks for where {ranks} ranks share one group"


def _longcat(deployment: Deployment) -> Iterator[str]:
    """srt/models/longcat_flash.py: an expert a rank, and a rope of what its config class keeps of one."""
    model, server = deployment.model, deployment.server
    if model.model_type != LONGCAT or model.moe is None:
        return
    yield from _ranks_without_experts(deployment)
    told = checkpoint_of(deployment).mapping("rope_scaling")
    asks = server.release.longcat_rope
    if asks == "nothing" and server.speculative is not None:
        asks = "its base"  # longcat_flash_nextn.py
    wanted = [name for name in ("rope_theta", "factor") if name not in told]
    if (asks == "its base" and "rope_theta" in wanted) or (asks == "a factor" and "factor" in wanted):
        yield (
            "rope_scaling has not what SGLang reads there: one of rope_type yarn, with its rope_theta, "
            "a factor of 1.0 and original_max_position_embeddings, stretches nothing: "
            "--json-model-override-args"
        )


def _sparse_section(deployment: Deployment) -> Iterator[str]:
    """get_minimax_sparse_attention_config of srt/configs/model_config.py, of transformers' own class."""
    if checkpoint_of(deployment).model_type == "minimax_m3_vl_text":
        yield (
            "model_type is minimax_m3_vl_text, whose class drops the sparse_attention_config that SGLang "
            "reads: in the text_config of a minimax_m3_vl it stays"
        )


def _layers_apart(deployment: Deployment) -> Iterator[str]:
    """srt/utils/hf_transformers/config.py: which layers of Gemma 4 have other heads than the rest."""
    model, checkpoint = deployment.model, checkpoint_of(deployment)
    if model.model_type != "gemma4_text":
        return
    if checkpoint.has("per_layer_config") and not deployment.server.release.reads_layers_apart:
        yield "per_layer_config is told, which SGLang reads since 0.5.22"
    shapes = {(one.head_dim, one.num_kv_heads) for one in model.attention.values()}
    if checkpoint.model_type == model.model_type and len(shapes) > 1:
        yield "its text alone: SGLang reads heads by kind of layer of a whole Gemma 4, of model_type gemma4"


def _gates(deployment: Deployment) -> Iterator[str]:
    """srt/layers/moe/moe_runner, srt/layers/quantization: who asks for silu."""
    model, server, method = deployment.model, deployment.server, deployment.quantization
    if model.moe is None or model.activation != "gelu_tanh":
        return
    by_trtllm = server.backend.calls == "trtllm" and method not in _GELU_ON_TRTLLM
    if server.moe_runner_backend not in _WITH_GELU or method in _BY_SILU or by_trtllm:
        backend = server.moe_runner_backend
        yield f"MoE backend {backend} has no kernels for experts by gelu in {_words(deployment)}"


def _ranks_without_experts(deployment: Deployment) -> Iterator[str]:
    moe, ranks = deployment.model.moe, deployment.parallel.tp
    if moe is not None and ranks > moe.num_experts:
        yield f"{moe.num_experts} experts are fewer than {ranks} ranks"


def _afmoe(deployment: Deployment) -> Iterator[str]:
    """srt/models/afmoe.py, and support_pp of srt/model_executor/model_runner.py."""
    if deployment.model.model_type != "afmoe":
        return
    if deployment.parallel.pp > 1:
        yield "SGLang's class of AFMoE has no pipeline stages: --pp-size 1"
    if "moe" in deployment.model.layer_kinds:
        yield from _ranks_without_experts(deployment)
    if checkpoint_of(deployment).get("rope_parameters", {}) is None:
        yield "rope_parameters is null, and SGLang reads its rope_theta"


def _reasons(deployment: Deployment) -> Iterator[str]:
    server, method = deployment.server, deployment.quantization
    backend = server.moe_runner_backend
    if method == "mxfp8" and server.gpu.major < 10:
        yield f"quantization mxfp8 needs sm100 at least, and this is {server.gpu.arch}"
    gemm = server.asked.fp8_gemm_runner_backend
    majors = _BLOCK_GEMM_MAJORS.get(gemm)
    if majors and server.gpu.major not in majors and _is_block_fp8(deployment):
        yield f"--fp8-gemm-backend {gemm} has no kernels for {server.gpu.arch}"
    compressed, ranks = deployment.model.compressed, deployment.parallel.attn_tp
    if compressed is not None and compressed.output_groups % ranks:
        yield f"{compressed.output_groups} groups of heads cannot be divided among {ranks} ranks"
    if not tunes_moe(deployment):
        return
    if not has_kernels(deployment):
        yield f"FlashInfer has no {backend} kernels for {server.gpu.arch}"
    if not _takes_dispatch(deployment):
        yield f"MoE backend {backend} has no kernels behind all-to-all {server.moe_a2a_backend}"
    if server.backend.calls is not None and not _takes_weights(deployment):
        yield f"MoE backend {backend} has no kernels for experts in {_words(deployment)}"
    cut = _cut_tile(deployment)
    if cut is not None:
        yield f"MoE backend {backend} takes experts in multiples of {FP4_TILE}, and a rank's are {cut} wide"
    if not _takes_weighted_rows(deployment):
        yield f"MoE backend {backend} does not take rows that are weighted before the experts"
    if _adds_shared_to_trtllm(deployment):
        yield f"MoE backend {backend} takes no shared expert beside its own: --disable-shared-experts-fusion"
    if server.backend.calls == "trtllm" and not _takes_routing(deployment):
        yield f"MoE backend {backend} does not take how experts of {_words(deployment)} are chosen here"


def _takes_dispatch(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner: what is registered for a pair of all-to-all and backend."""
    row, a2a = deployment.server.backend, deployment.server.moe_a2a_backend
    if deployment.server.is_draft:
        return True  # it may have an all-to-all of its own
    if a2a == "flashinfer":
        since = row.under_flashinfer_a2a_since
        return since is not None and deployment.server.release.number >= since
    if row.name == "flashinfer_megamoe":
        return a2a == row.name
    return a2a == "none" or a2a in row.all_to_alls or row.name == a2a


def _takes_weights(deployment: Deployment) -> bool:
    calls, method = deployment.server.backend.calls, deployment.quantization
    trtllm = calls == "trtllm"
    if weights_of(deployment) == NVFP4_BESIDE_FP8:
        return True  # which of them end is not known
    if calls == "mxfp4" and weights_of(deployment) == MXFP4_BESIDE_FP8:
        return deployment.server.gpu.major == 10 or runs_mxfp4_by_cutlass(deployment)
    if calls == "mxfp4":
        major = deployment.server.gpu.major
        has_kernels = major == 10 or major in deployment.server.release.mxfp4_by_cutlass
        return method not in (None, "fp8", "awq_marlin") and (method != "mxfp4" or has_kernels)
    if method in ("mxfp4", "awq_marlin", "gptq_marlin"):
        return False
    if method == "compressed-tensors":
        checkpoint = checkpoint_of(deployment)
        return trtllm and (has_int4_experts(checkpoint) or packs_nvfp4(checkpoint))
    if method == "fp8" and calls == "cutlass":
        return False
    if method == "modelopt_fp4" and calls == "cutlass":
        return deployment.server.gpu.major >= 10
    # Its scales for activations come from the checkpoint, and one that is made here has none.
    return not (trtllm and _is_plain_fp8(deployment))


def _cut_tile(deployment: Deployment) -> int | None:
    """What SGLang ends at, or None: mxfp4_flashinfer_cutlass_moe.py of srt/layers/quantization."""
    moe = deployment.model.moe
    if moe is None or weights_of(deployment) != MXFP4_BESIDE_FP8 or not runs_mxfp4_by_cutlass(deployment):
        return None
    sizes = (deployment.model.hidden_size, moe.intermediate_size // deployment.parallel.moe_tp)
    return next((size for size in sizes if size % FP4_TILE), None)


def _takes_weighted_rows(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner, and modelopt_quant.py of srt/layers/quantization."""
    server, moe = deployment.server, deployment.model.moe
    assert moe is not None
    if not moe.weighs_input or server.backend.calls not in ("cutlass", "cutedsl"):
        return True
    if server.backend.calls == "cutedsl" or deployment.quantization == "modelopt_fp4":
        return False
    rule = server.release.weighted_rows
    return rule == "as others" or (rule == "of one expert" and moe.top_k == 1)


def _adds_shared_to_trtllm(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner/flashinfer_trtllm.py: plain experts, where a model fuses on any backend."""
    if deployment.server.backend.calls != "trtllm" or deployment.quantization is not None:
        return False
    return fuses_on_each_rank(deployment.model, deployment.runtime)


def _takes_routing(deployment: Deployment) -> bool:
    """srt/layers/moe/moe_runner/flashinfer_trtllm.py: kernels of some weights choose by logits alone."""
    moe, server, method = deployment.model.moe, deployment.server, deployment.quantization
    by_logits = routing_of(deployment) == "logits"
    if method is None and by_logits:
        assert moe is not None
        return moe.renormalize
    if by_logits or server.release.routes_by_named_method:
        return True
    if method == "modelopt_fp8":
        return False
    chosen_anyway = chooses_itself(deployment.model) and not server.backend.routed
    return not chosen_anyway or (method == "modelopt_fp4" and server.release.number >= (0, 5, 13))


def _is_block_fp8(deployment: Deployment) -> bool:
    return deployment.quantization == "fp8" and deployment.model.quantization_block is not None


def _is_plain_fp8(deployment: Deployment) -> bool:
    return deployment.quantization == "fp8" and deployment.model.quantization_block is None


def _words(deployment: Deployment) -> str:
    method = deployment.quantization or deployment.server.dtype
    return f"{method} without blocks" if _is_plain_fp8(deployment) else method
