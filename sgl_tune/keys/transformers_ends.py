"""Where servers end that have no class of SGLang's: srt/models/transformers.py, srt/model_loader/utils.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runtime.server.class_releases import (
    ON_ONE_RANK,
    OTHER_WAYS,
    PASSES_NOTHING,
    WRITES,
    class_since,
    is_told,
    lets_sglang_attend,
    of_transformers,
)
from sgl_tune.keys.class_since import too_early
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.minimax_m3_ends import ends_of_minimax_m3

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def has_transformers_layers(deployment: Deployment) -> bool:
    server = deployment.server
    architecture = checkpoint_of(deployment).architecture
    return bool(of_transformers(architecture, server.release.number, server.asked))


def ends_of_transformers(deployment: Deployment) -> Iterator[str]:
    """What a file says of heads is divided by ranks, and none is copied."""
    checkpoint, server = checkpoint_of(deployment), deployment.server
    architecture, number = checkpoint.architecture, server.release.number
    yield from too_early(architecture, number)
    if deployment.shape.model is not None and number < class_since(architecture):
        yield from ends_of_minimax_m3(deployment)
    attends = lets_sglang_attend(architecture, number, is_told(server.asked))
    if attends is False:
        has = "is told to run it" if is_told(server.asked) else "has no other"
        yield (
            f"transformers' own class {architecture} lets nobody attend for it, and SGLang "
            f"{server.release.version} {has}"
        )
    is_written = architecture.endswith(WRITES) and "AutoModel" not in checkpoint.mapping("auto_map")
    if attends is None and is_written and number < class_since(architecture):
        yield f"neither SGLang {server.release.version} nor its transformers has a class {architecture}"
    if attends and architecture.removesuffix(WRITES) in PASSES_NOTHING.split():
        yield f"transformers' layers of {architecture} do not pass on what SGLang attends with"
    if attends:
        yield from _over_ranks(architecture, deployment.parallel.tp)
    if deployment.quantization == "compressed-tensors":
        yield from _targets(checkpoint.mapping("quantization_config"))
    keys, ranks = checkpoint.get("num_key_value_heads"), deployment.parallel.tp
    if attends and isinstance(keys, int) and keys % ranks:
        yield f"{keys} KV heads cannot be divided among {ranks} ranks, and transformers' layers copy none"


def _targets(section: Mapping[str, Any]) -> Iterator[str]:
    """apply_weight_name_mapper of srt/layers/quantization takes kinds of modules for names."""
    groups = section.get("config_groups")
    groups = groups.values() if isinstance(groups, Mapping) else ()
    told = [str(one) for group in groups if isinstance(group, Mapping) for one in group.get("targets") or ()]
    named = any("." in one and not one.startswith("re:") for one in told)
    if told and not named and not section.get("linear_fp8_config"):
        yield (
            f"SGLang looks for compressed-tensors' {told[0][:40]} as model.{told[0][:40]} among "
            "transformers' layers, and ends at the first of them"
        )


def _over_ranks(architecture: str, ranks: int) -> Iterator[str]:
    """recursive_replace of srt/models/transformers.py, by what transformers plans of a class."""
    name = architecture.removesuffix(WRITES)
    if name in OTHER_WAYS.split():
        yield f"transformers splits {architecture}'s matrices in a way that SGLang's layers do not know"
    if name in ON_ONE_RANK.split() and ranks > 1:
        yield f"transformers plans no ranks of {architecture}: --tp-size 1"
