"""Nemotron-H cut by a search: each layer of experts has its own width of them, and asks its own count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.server.bounds import LAYERS, check_size
from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.nemotron_h import (
    DEFAULTS,
    KINDS,
    LETTERS,
    check_groups,
    of_kinds,
    routed_beside_shared,
)
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import MoEConfig
from runtime.server.tensor_names import TensorNames

ARCHITECTURE = "NemotronHPuzzleForCausalLM"
_NAMES = TensorNames(
    *("model.layers", "model.embeddings", "model.norm_f"),
    *("mixer", "mixer", "mixer"),
)
_KIND = "block_type"
_OF_EXPERTS = (
    *("moe_intermediate_size", "num_experts_per_tok", "n_routed_experts", "n_shared_experts"),
    *("moe_latent_size", "moe_shared_expert_intermediate_size"),
)
_OTHER_PREFIX = "backbone."


def _nemotron_h_puzzle(f: Fields) -> ModelConfig:
    if _OTHER_PREFIX in repr(f.get("quantization_config")):
        f.cannot(f"quantization_config lists names of {_OTHER_PREFIX}: here layers are model.layers")
    if f.tells("n_groups"):
        check_groups(f)
    else:
        f.cannot("n_groups is missing, which SGLang reads")
    blocks = _blocks(f)
    kinds = _kinds(f, blocks)
    moes = [_experts(f, block, layer) for layer, block in enumerate(blocks) if block[_KIND] == "moe"]
    for layer, block in enumerate(blocks):
        if block[_KIND] != "moe":
            _alone(f, block, layer, ())
    if not moes:
        raise Unsupported("config.json: no layer of block_configs has experts: SGLang counts those of one")
    model = of_kinds(f, kinds, _largest(f, moes), _NAMES)
    left, sizes = iter(moes), []
    for kind in kinds:
        moe = next(left) if kind == "moe" else None
        sizes.append((0, 0) if moe is None else (moe.intermediate_size, moe.top_k))
    return replace(model, expert_sizes=tuple(sizes))


def _blocks(f: Fields) -> Sequence[Mapping[str, Any]]:
    listed = f.get("block_configs")
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"config.json: block_configs is {repr(listed)[:60]}: a list of layers is needed")
    check_size("config.json: the layers of block_configs", len(listed), LAYERS)
    for layer, block in enumerate(listed):
        if not isinstance(block, Mapping) or block.get(_KIND) not in KINDS:
            known = ", ".join(KINDS)
            raise ConfigError(f"config.json: block_configs: {layer} is {repr(block)[:60]}: here are {known}")
    return listed


def _kinds(f: Fields, blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """SGLang makes layers as a list or a pattern beside the blocks says."""
    kinds = [block[_KIND] for block in blocks]
    listed, pattern = f.get("layers_block_type"), f.get("hybrid_override_pattern")
    f.get("num_hidden_layers")  # as many as are told
    if listed is None and isinstance(pattern, str):
        listed = [LETTERS.get(letter, letter) for letter in pattern]
    if listed is None:
        f.cannot("layers_block_type is missing: SGLang then takes layers that block_configs does not tell")
    elif listed != kinds:
        f.cannot("layers_block_type and block_configs tell different layers")
    return kinds


def _experts(f: Fields, block: Mapping[str, Any], layer: int) -> MoEConfig:
    _alone(f, block, layer, _OF_EXPERTS)
    return routed_beside_shared(f.beside({name: block[name] for name in _OF_EXPERTS if name in block}))


def _largest(f: Fields, moes: Sequence[MoEConfig]) -> MoEConfig:
    width, top_k = max(moe.intermediate_size for moe in moes), max(moe.top_k for moe in moes)
    alike = dict.fromkeys(replace(moe, intermediate_size=width, top_k=top_k) for moe in moes)
    if len(alike) > 1:
        f.cannot("block_configs: experts differ in more than moe_intermediate_size and num_experts_per_tok")
    return next(iter(alike))


def _alone(f: Fields, block: Mapping[str, Any], layer: int, read: Sequence[str]) -> None:
    for name, value in block.items():
        if name not in (_KIND, *read) and value != f.get(str(name)):
            f.cannot(f"block_configs: {str(name)[:60]} of layer {layer} is {repr(value)[:60]}, of its own")


FAMILIES = (Family("nemotron_h_puzzle", _nemotron_h_puzzle, {**DEFAULTS, "chunk_size": 256}),)
