"""What SGLang refuses of flags that are given one by one, and what ends its start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.flags.spelling import line_of
from runtime.server.nearest import meant
from runtime.server.releases import Release


def check_choices(given: Mapping[str, Any], release: Release) -> None:
    """Of flags; a server command is read by its release's own command line, which refuses the same."""
    line = line_of(release)
    for name, value in given.items():
        flag = line.by_field.get(name)
        known = [str(choice) for choice in flag.choices or ()] if flag else []
        if flag and known and isinstance(value, str) and value not in known:
            raise ConfigError(
                f"{flag.names[0]} {value}: SGLang {release.version} has no such choice",
                meant(value, known) or f"one of {', '.join(known)}",
            )


def undivided_heads(asked: Asked, checkpoint: Checkpoint) -> Iterator[str]:
    heads = checkpoint.get("num_attention_heads")
    attn_tp = asked.tp_size // (asked.attn_dp_size or (asked.dp_size if asked.enable_dp_attention else 1))
    if isinstance(heads, int) and attn_tp and heads % attn_tp:
        yield (f"{heads} attention heads cannot be divided among {attn_tp} ranks (tp {asked.tp_size})")
