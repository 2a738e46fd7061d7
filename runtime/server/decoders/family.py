"""A family of models: its name in a config.json, and how its fields become layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import Fields


@dataclass(frozen=True, slots=True)
class Family:
    """`defaults` are the config class's, of the optional fields; of some architectures it is another's."""

    model_type: str
    read: Callable[[Fields], ModelConfig]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    by_architecture: Mapping[str, str] = field(default_factory=dict)
