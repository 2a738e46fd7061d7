"""Where a class ends as one of several pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.architectures import HYBRID_SWA
from runtime.server.call_rules import has_loose_experts
from runtime.server.parallel import stage_layers
from runtime.server.sizing import HYBRID_TYPES, has_window_pool, kept_layers, pooled_layers, windows_alone
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.one_stage import SINCE_0_5_23, WITHOUT_STAGES

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


# Whose class takes the embedding for a head, which the last of several stages has not: srt/models.
_TIED_TO_ANOTHER = (
    *("apertus", "bailing_moe", "bailing_moe_v2", "exaone4", "exaone_moe", "granitemoehybrid", "internlm3"),
    *("iquestcoder", "llada2_moe", "llama", "ministral3", "mistral", "phi3", "TeleFLM"),
)


def ends_of_stages(deployment: Deployment) -> Iterator[str]:
    rules = (_stages, _ties, _inputs_over_stages, _stages_without_windows, _stages_without_keys)
    return chain.from_iterable(rule(deployment) for rule in (*rules, _pages_of_windows))


def _ties(deployment: Deployment) -> Iterator[str]:
    model, server = deployment.model, deployment.server
    if (
        deployment.parallel.pp == 1
        or not model.tie_word_embeddings
        or model.model_type not in _TIED_TO_ANOTHER
    ):
        return
    answers = server.embeds or model.scores is not None or model.by_transformers
    apart = model.model_type == "exaone4" and server.release.number >= (0, 5, 23)
    if not answers and not apart:
        yield "its head is its embedding, and SGLang's last stage has none: --pp-size 1"


def _inputs_over_stages(deployment: Deployment) -> Iterator[str]:
    """srt/models/gemma4_causal.py: graphs keep two tensors of a stage. Another stage's keys are in no pool of
    srt/mem_cache/swa_memory_pool.py, which a first forward finds."""
    model, parallel = deployment.model, deployment.parallel
    if parallel.pp == 1:
        return
    if model.layer_inputs is not None and not deployment.server.asked.disable_cuda_graph:
        yield "its layers have inputs of their own, which graphs pass to no other stage: --disable-cuda-graph"
    for stage in range(min(parallel.pp, model.num_layers)):
        layers = stage_layers(model.num_layers, parallel, stage)
        apart = [layer for layer in layers if model.key_layer(layer) not in layers]
        if apart:
            source = model.key_layer(apart[0])
            yield f"layer {apart[0]} reads the keys of layer {source}, of another stage: --pp-size 1"


def _pages_of_windows(deployment: Deployment) -> Iterator[str]:
    """PureSWATokenToKVPoolAllocator of srt/mem_cache/allocator/swa.py."""
    model, parallel, server = deployment.model, deployment.parallel, deployment.server
    if server.page_size == 1 or server.release.number < (0, 5, 15):
        return
    for stage in range(min(parallel.pp, model.num_layers)):
        if windows_alone(model, _pooled(deployment, stage)):
            whose = f"stage {stage} has" if parallel.pp > 1 else "it has"
            yield (
                f"{whose} no layer but behind windows, kept in pages of one token, and these are of "
                f"{server.page_size}: --page-size 1 on another --attention-backend"
            )
            return


def _pooled(deployment: Deployment, stage: int) -> list[int]:
    model, counts_next = deployment.model, deployment.server.release.pools_next_layer
    return pooled_layers(model, stage_layers(model.num_layers, deployment.parallel, stage), counts_next)


def _stages_without_windows(deployment: Deployment) -> Iterator[str]:
    """HybridSWAPoolConfigurator of srt/model_executor/pool_configurator.py asks each stage for one; a Laguna
    without any is none of its."""
    model, parallel = deployment.model, deployment.parallel
    is_hybrid = checkpoint_of(deployment).architecture in {*HYBRID_SWA, "Dots3NoteForCausalLM"}
    if not is_hybrid or model.model_type not in HYBRID_TYPES:
        return
    if model.model_type == "laguna" and not has_window_pool(model):
        return
    if model.model_type == "beam" and "sliding" not in model.attention_kinds:
        return
    joined = model.model_type == "step3p5" and deployment.server.asked.enable_hierarchical_cache
    if joined or any("hybrid" in flag for flag in deployment.inputs.not_modelled):  # one pool, as asked
        return
    for stage in range(min(parallel.pp, model.num_layers)):
        layers = _pooled(deployment, stage)
        if not any(model.attention_kinds[layer] == "sliding" for layer in layers):
            whose = f"stage {stage} has" if parallel.pp > 1 else "it has"
            yield f"{whose} no layer behind a window, and SGLang's two pools ask for one"
            return


def _stages_without_keys(deployment: Deployment) -> Iterator[str]:
    """DefaultPoolConfigurator of srt/model_executor/pool_configurator.py divided by what a token costs."""
    model, parallel = deployment.model, deployment.parallel
    if deployment.server.release.sizes_stages_without_keys:
        return
    for stage in range(min(parallel.pp, model.num_layers)):
        if not kept_layers(model, stage_layers(model.num_layers, parallel, stage)):
            whose = f"stage {stage} keeps" if parallel.pp > 1 else "it keeps"
            yield f"{whose} no keys and values of any token, and SGLang divides memory by what one costs"
            return


def _stages(deployment: Deployment) -> Iterator[str]:
    """support_pp of srt/model_executor/model_runner.py"""
    name = checkpoint_of(deployment).architecture
    if has_loose_experts(deployment.model, deployment.quantization):
        name = "QuantMixtralForCausalLM"
    has_none = name in WITHOUT_STAGES
    if name in SINCE_0_5_23:
        has_none = not deployment.server.release.mistral_3_has_stages
    if deployment.parallel.pp > 1 and has_none:
        yield f"SGLang's {name} has no pipeline stages: --pp-size 1"
