"""What would make a server start that does not: of each change, resolved by the rules, no end is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from runtime.server.asked import default_of
from runtime.server.errors import ConfigError
from runtime.server.flags.spelling import name_of
from runtime.server.releases import RELEASES
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import server_ends

# What a server is for stays as it is: its model, its ranks, what it loads.
_LEFT_OUT = (
    *(
        "moe_runner_backend",
        "moe_a2a_backend",
        "attention_backend",
        "fp8_gemm_runner_backend",
        "kv_cache_dtype",
    ),
    *("dtype", "quantization", "page_size", "enable_dp_attention", "speculative_algorithm"),
)
_ANYTHING = "no server starts so: change what it names"


def way_to_start(deployment: Deployment) -> str:
    """The least that is known to: a flag less, then a newer release, then an older one."""
    found = (words for words, other in _changes(deployment) if _may_start(deployment, other))
    return next(found, _ANYTHING)


def _changes(deployment: Deployment) -> Iterator[tuple[str, Inputs]]:
    inputs, release = deployment.inputs, deployment.server.release
    for name in _LEFT_OUT:
        if inputs.asked.is_set(name):
            without = replace(inputs.asked, **{name: default_of(name)})
            yield (
                f"leave {name_of(release, name)} out: no end of it is known then",
                replace(inputs, asked=without),
            )
    newer = [one for one in RELEASES if one.number > release.number]
    older = [one for one in reversed(RELEASES) if one.number < release.number]
    for one in (*newer, *older):
        other = replace(inputs, sglang_version=one.version, flashinfer_version=one.flashinfer)
        yield f"SGLang {one.version}, where no end of it is known", other


def _may_start(deployment: Deployment, other: Inputs) -> bool:
    try:
        found = replace(deploy(other), launch=deployment.launch)
        is_known = found.shape.model is not None and found.not_modelled == deployment.not_modelled
        return is_known and server_ends(found) is None
    except (ConfigError, UsageError):
        return False
