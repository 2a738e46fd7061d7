"""A family of models: how its config.json is read, and what SGLang's servers choose for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from runtime.server.asked import Asked
from runtime.server.config import ModelConfig
from runtime.server.gpus import GpuModel


class Weights(NamedTuple):
    """The quantization as argument (`asked`), of the weights (`stored`), and in config.json (`declared`)."""

    asked: str | None
    stored: str | None
    declared: str | None


@dataclass(frozen=True, slots=True)
class Family:
    """A family. `config` is the dataclass of its config.json, and `layers` turns that into a model."""

    model_type: str
    architecture: str
    config_class: str  # its name is in the key
    config: type[Any]
    layers: Callable[[Any], ModelConfig]
    attends: Literal["heads", "latent", "sparse"] = "heads"
    # Takes the GPU's major version and the page size asked for; None: as in most families.
    attention: Callable[[Asked, int, int | None], tuple[str, int | None]] | None = None
    # The MoE backend if the command names none.
    experts: Callable[[Asked, Weights, GpuModel], str | None] | None = None
    writes_method: bool = False  # on a Blackwell server, a checkpoint's method becomes the argument
    writes_modelopt: bool = False  # on every server, if the method is ModelOpt's
    reads_headers: bool = False  # of a plain checkpoint on a Blackwell server: they may say fp8
    keeps_states: bool = False  # of recurrent layers
    dtype_of_float32: str = "float16"
    own_config: str = ""  # the config class in its checkpoints, which SGLang treats as its own
