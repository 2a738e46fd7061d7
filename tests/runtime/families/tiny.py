"""What is told of a family's tiny models: sizes, what varies in random ones, how their files are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

HF = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tiny:
    config_class: str  # of transformers, or the checkpoints' own
    sizes: HF  # that differ from the common ones: of a wrapper those of its text
    space: Mapping[str, tuple[Any, ...]]
    tower: HF | None = None  # a wrapper's vision_config, or what it has in its place
    tower_section: str = "vision_config"
    beside: HF = field(default_factory=dict)  # a wrapper's other fields
    inside: str | None = None  # of the wrapper that alone has a class
    # A config.json as its checkpoints have it, of what transformers writes.
    as_published: Callable[[HF], HF] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)  # parts of its tensors' names, in checkpoints
    spelled_apart: tuple[
        str, ...
    ] = ()  # common sizes that its class has under other names, and would take both
    alike: Mapping[str, str] = field(
        default_factory=dict
    )  # what is as large as another where it is not drawn


def with_count(hf: HF) -> HF:
    """With what SGLang goes by, which transformers takes and does not write."""
    return {**hf, "first_k_dense_replace": hf["mlp_layer_types"].count("dense"), "moe_layer_freq": 1}


def with_step(hf: HF) -> HF:
    """With what SGLang's class of DeepSeek asks for, and transformers' has not."""
    return {"topk_method": "noaux_tc", "scoring_func": "sigmoid", **hf, "moe_layer_freq": 1}
