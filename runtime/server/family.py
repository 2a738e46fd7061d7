"""A family of models: how its config.json is read, and what SGLang's servers choose for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from runtime.server.asked import Asked
from runtime.server.config import ModelConfig
from runtime.server.gpus import GpuModel


class Weights(NamedTuple):
    """`asked`: the argument; `stored`: how the weights are; `declared`: what config.json itself says."""

    asked: str | None
    stored: str | None
    declared: str | None


@dataclass(frozen=True, slots=True)
class Family:
    """`config` is a dataclass of the file's fields, `layers` makes a model of one."""

    model_type: str
    architecture: str
    config_class: str  # whose name stands in the key
    config: type[Any]
    layers: Callable[[Any], ModelConfig]
    attends: Literal["heads", "latent", "sparse"] = "heads"
    # By the GPU's major version and the page size that was asked for; None: as most families.
    attention: Callable[[Asked, int, int | None], tuple[str, int | None]] | None = None
    # The MoE backend where none is named.
    experts: Callable[[Asked, Weights, GpuModel], str | None] | None = None
    writes_method: bool = False  # on a Blackwell server, a checkpoint's method becomes the argument
    writes_modelopt: bool = False  # everywhere, where it is ModelOpt's
    reads_headers: bool = False  # of a plain checkpoint on a Blackwell server: they may say fp8
    keeps_states: bool = False  # of recurrent layers
    dtype_of_float32: str = "float16"
    own_config: str = ""  # the config class that its checkpoints bring: it has the same name to SGLang
