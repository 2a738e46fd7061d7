"""What of a server command no rule reads, as it is told: with its value, unless that is a secret."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.server.flags import Parsed
from runtime.server.flags.effects import not_modelled, without_effect

_PLAIN = {"device": "cuda"}  # what the rules take for granted
_FOLLOWED = {  # of what they read in part: the other ways quantize weights, or keep some away
    "load_format": (
        *("auto", "pt", "safetensors", "instanttensor", "npcache", "dummy", "sharded_state", "presharded"),
        *("mistral", "layered", "remote", "remote_instance", "fastsafetensors", "runai_streamer"),
    ),
}
_SECRETS = frozenset(("api_key", "admin_api_key", "ssl_keyfile_password"))
# Variables of the libraries that a start stands on. Any other is nobody's here.
_MAY_MATTER = ("SGLANG_", "SGL_", "FLASHINFER_", "PYTORCH_", "TORCH_", "NCCL_", "NVSHMEM_")


@dataclass(frozen=True, slots=True)
class Unread:
    """`without_effect` on memory, key and entries; `not_modelled` may change them, and no rule says how;
    `variables` may too, and nobody has looked."""

    without_effect: tuple[str, ...]
    not_modelled: tuple[str, ...]
    variables: tuple[str, ...]

    @classmethod
    def of(cls, parsed: Parsed, environment: Mapping[str, str]) -> Unread:
        """Of what is not asked as it would be anyway."""
        none, unknown = list(parsed.ignored), []
        for name, value in parsed.given.items():
            is_usual = value in (parsed.command_line.defaults.get(name), _PLAIN.get(name))
            if value in _FOLLOWED.get(name, ()):
                continue
            if name in not_modelled() and not is_usual:
                unknown.append(_said(parsed, name, value))
            elif name in not_modelled() or name in without_effect():
                none.append(_said(parsed, name, value))
        matter = [name for name in environment if name.startswith(_MAY_MATTER)]
        others = [name for name in environment if name not in matter]
        return cls((*others, *none), tuple(unknown), tuple(f"{name}={environment[name]}" for name in matter))


def _said(parsed: Parsed, name: str, value: Any) -> str:
    if name in _SECRETS:
        return f"{parsed.spelled[name]} ***"
    return shlex.join([parsed.spelled[name], *_words(value)])


def _words(value: Any) -> list[str]:
    if isinstance(value, bool):
        return [] if value else ["false"]
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
