"""Where a start of DBRX ends at its file: srt/configs/dbrx.py, and transformers' class before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgl_tune.keys.config_ends import reads_by_its_own
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sgl_tune.deployment.deployment import Deployment

_ANY_JITTER_SINCE = (0, 5, 22)
_SECTIONS: Mapping[str, Collection[str]] = {
    "attn_config": ("attn_pdrop", "clip_qkv", "kv_n_heads", "rope_theta", "model_type"),
    "ffn_config": (
        *(
            "ffn_act_fn",
            "ffn_hidden_size",
            "moe_jitter_eps",
            "moe_loss_weight",
            "moe_normalize_expert_weights",
        ),
        *("moe_num_experts", "moe_top_k", "uniform_expert_assignment", "model_type"),
    ),
}


def ends_of_dbrx(deployment: Deployment) -> Iterator[str]:
    if deployment.model.model_type == "dbrx":
        yield from _sections(deployment)
        yield from _whole_numbers(deployment)


def _sections(deployment: Deployment) -> Iterator[str]:
    """srt/configs/dbrx.py refuses what it does not know, as all that transformers 5 writes beside."""
    for name, known in _SECTIONS.items():
        other = next((one for one in checkpoint_of(deployment).mapping(name) if one not in known), None)
        if other is not None:
            yield f"{name} has {str(other)[:60]}, which SGLang's class of it does not know"
            return


def _whole_numbers(deployment: Deployment) -> Iterator[str]:
    """transformers' class of DBRX, which SGLang reads a file by first, takes no such number for a float."""
    server, checkpoint = deployment.server, checkpoint_of(deployment)
    if reads_by_its_own(deployment):
        return
    before = server.release.number < _ANY_JITTER_SINCE
    names = ("moe_loss_weight", "moe_normalize_expert_weights", *(["moe_jitter_eps"] if before else []))
    told = checkpoint.mapping("ffn_config")
    name = next((one for one in names if type(told.get(one)) is int), None)
    if name is not None:
        yield (
            f"ffn_config: {name} is {told[name]}, and transformers' class wants a float: {told[name]}.0"
            ", or --trust-remote-code with DBRX's own class beside config.json"
        )
