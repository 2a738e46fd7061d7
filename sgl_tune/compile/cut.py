"""A deployment cut in depth: fewer layers that run the very kernels of all of them.

What a layer runs depends on its kind, and on the kinds of its neighbours where sums and norms are fused
across them. So the first layers are kept, up to where each kind has stood between each pair of neighbours
that it ever has. Where that cannot be known, nothing is cut, and the reason is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.layer_kinds import layer_kind
from sgl_tune.deployment.deployment import Deployment

_DEPTH = "num_hidden_layers"
_LISTS = ("layer_types", "mlp_layer_types")  # an entry a layer: they are as long as the model is deep
_POOL_TOKENS = 1 << 20  # few layers leave room for more tokens than any index of a whole model's counts


@dataclass(frozen=True, slots=True)
class Cut:
    """`layers` of `of`; `why` nothing is cut where they are equal."""

    layers: int
    of: int
    overrides: Mapping[str, Any]
    why: str = ""

    def flags(self, deployment: Deployment) -> list[str]:
        if not self.overrides:
            return []
        words = ["--json-model-override-args", json.dumps(dict(self.overrides))]
        if deployment.server.asked.max_total_tokens is None:
            tokens = max(_POOL_TOKENS, deployment.server.context_length)
            words += ["--max-total-tokens", str(tokens)]
        return words


def cut_of(deployment: Deployment) -> Cut:
    hf = deployment.inputs.checkpoint.hf
    depth = hf.get(_DEPTH)
    whole = depth if isinstance(depth, int) else 0
    why = next(_obstacles(deployment, hf), None)
    if why is not None:
        return Cut(whole, whole, {}, why)
    kinds = _kinds(deployment.inputs.checkpoint)
    fewest = _fewest(kinds)
    overrides = {_DEPTH: fewest, **{name: hf[name][:fewest] for name in _LISTS if name in hf}}
    if fewest == whole:
        return Cut(whole, whole, {}, "each of its layers has neighbours of its own")
    if not _is_the_beginning(deployment.inputs.checkpoint, overrides, kinds):
        return Cut(whole, whole, {}, "its first layers alone would be of other kinds")
    return Cut(fewest, whole, overrides)


def _obstacles(deployment: Deployment, hf: Mapping[str, Any]) -> Iterator[str]:
    server, model = deployment.server, deployment.shape.model
    if model is None:
        yield "its layers are not known here"
    elif hf.get(_DEPTH) != model.num_layers:
        yield "its config.json does not tell its depth in one place"
    if model is not None and model.compressed is not None:
        yield "its first layers choose their experts by a hash"
    if model is not None and model.encoder is not None:
        yield "it reads more than text"
    if server.speculative is not None:
        yield "it speculates, and a draft may look into any layer"
    if server.pp_size > 1:
        yield "its layers are spread over stages"
    if server.asked.json_model_override_args != "{}":
        yield "its config is overridden already"
    odd = sorted(
        name for name, value in hf.items() if _is_per_layer(value, hf.get(_DEPTH)) and name not in _LISTS
    )
    if odd:
        yield f"{odd[0]} has an entry for each layer"


def _is_per_layer(value: Any, depth: Any) -> bool:
    return isinstance(value, (list, str)) and len(value) == depth


def _kinds(checkpoint: Checkpoint) -> list[object]:
    model = checkpoint.model_config()
    return [layer_kind(model, layer) for layer in range(model.num_layers)]


def _fewest(kinds: Sequence[object]) -> int:
    """Of the first layers, ending as the whole ends."""
    wanted = _neighbours(kinds)
    return next(n for n in range(1, len(kinds) + 1) if _neighbours(kinds[:n]) == wanted)


def _neighbours(kinds: Sequence[object]) -> set[tuple[object, ...]]:
    framed = [None, *kinds, None]
    return {tuple(framed[at : at + 3]) for at in range(len(kinds))}


def _is_the_beginning(checkpoint: Checkpoint, overrides: Mapping[str, Any], kinds: Sequence[object]) -> bool:
    try:
        return _kinds(replace(checkpoint, hf={**checkpoint.hf, **overrides})) == kinds[: overrides[_DEPTH]]
    except (ConfigError, ValueError, IndexError, KeyError):
        return False
