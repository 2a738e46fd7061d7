"""What a release makes of a server command: each value, what was asked, the rule, and since when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from runtime.server.cache_key import named_parts
from runtime.server.errors import ConfigError
from runtime.server.flags import CommandLine, flags_of
from runtime.server.releases import NEWEST, RELEASES, Release
from runtime.server.shape import Server
from sgl_tune.deployment.deployment import Deployment, deploy
from sgl_tune.explain.fields import AS_SET, DEFAULT, FIELDS, Field, Told, other_fields

PART_FIELDS = {
    "dtype": "dtype",
    "quantization": "quantization",
    "MoE backend": "moe_runner_backend",
    "tp": "tp_size",
    "pp": "pp_size",
    "attention dp": "attn_dp_size",
    "ep": "ep_size",
    "config class": "config_class",
}
_PART_RULES = {
    "model path": "as it is typed",
    "candidate_selection": "how this release chooses among tactics",
    "skip_ops": "--flashinfer-autotune-skip-ops, and what the release always skips",
    "draft_quant": "the draft's own quantization",
}
_DRAFT_RULES = {"dtype": "the draft's own", "config class": "the draft's own"}


@dataclass(frozen=True, slots=True)
class Explained:
    """`set`: what was asked, None where nobody did. `since`: the first release that does so, None where every
    known one up to this does."""

    field: Field
    label: str
    value: Any
    set: Any
    why: str
    since: str | None

    @property
    def is_plain(self) -> bool:
        """It goes without saying: the default, or just what was asked for."""
        return self.value == self.field.plain or self.why in (AS_SET, DEFAULT)

    def to_json(self) -> dict[str, Any]:
        return {
            "field": self.field.name,
            "value": self.value,
            "set": self.set,
            "why": self.why,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    name: str
    value: str
    part: str
    why: str
    since: str | None

    def to_json(self) -> dict[str, Any]:
        return {"part": self.part, "name": self.name, "why": self.why, "since": self.since}


class Explanation:
    """One deployment's, and what the other releases would make of the same."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.server = deployment.server
        self.told = Told(self.server)

    @cached_property
    def line(self) -> CommandLine:
        return command_line_of(self.server.release)

    @cached_property
    def fields(self) -> tuple[Explained, ...]:
        others = other_fields(self.server, self.line)
        return tuple(self._explained(field) for field in (*FIELDS, *others))

    @cached_property
    def key_parts(self) -> tuple[ExplainedPart, ...]:
        return tuple(self._parts(_target_parts, rule_of_part))

    @cached_property
    def draft_parts(self) -> tuple[ExplainedPart, ...]:
        """Those in which the draft worker's key is another than its target's."""
        parts = self._parts(_draft_parts, lambda name, told: _DRAFT_RULES.get(name, rule_of_part(name, told)))
        target = {part.name: part.value for part in self.key_parts}
        return tuple(part for part in parts if target.get(part.name) != part.value)

    def to_json(self) -> dict[str, Any]:
        return {
            "explained": [one.to_json() for one in self.fields],
            "explained_key": [part.to_json() for part in self.key_parts],
            "explained_draft_key": [part.to_json() for part in self.draft_parts],
        }

    def _explained(self, field: Field) -> Explained:
        told = self.told
        says = told.says(field)
        since = _first([(row, one is not None and one.says(field) == says) for row, one in self._earlier])
        return Explained(
            field, field.label(self.line), told.value(field), told.asked(field), told.why(field), since
        )

    def _parts(
        self, parts_of: Callable[[Server], tuple[str, ...]], rule: Callable[[str, Told], str]
    ) -> Iterator[ExplainedPart]:
        parts = parts_of(self.server)
        for part, (name, value) in zip(parts, named_parts(parts).items(), strict=True):
            has = [
                (row, one is not None and named_parts(parts_of(one.server)).get(name) == value)
                for row, one in self._earlier
            ]
            yield ExplainedPart(name, value, part, rule(name, self.told), _first(has))

    @cached_property
    def _earlier(self) -> list[tuple[Release, Told | None]]:
        """This release's and those before it, the newest first; None for one that refuses this server."""
        number = min(self.server.release, NEWEST, key=lambda row: row.number).number
        older = [row for row in reversed(RELEASES) if row.number <= number]
        servers = [(row, under(self.deployment, row)) for row in older]
        return [(row, Told(server) if server else None) for row, server in servers]


def _target_parts(server: Server) -> tuple[str, ...]:
    return server.key_parts


def _draft_parts(server: Server) -> tuple[str, ...]:
    return server.draft.key_parts if server.draft else ()


def rule_of_part(name: str, told: Told) -> str:
    field = next((one for one in FIELDS if one.name == PART_FIELDS.get(name)), None)
    return told.why(field) if field else _PART_RULES.get(name, DEFAULT)


def under(deployment: Deployment, release: Release) -> Server | None:
    try:
        return deploy(replace(deployment.inputs, sglang_version=release.version)).server
    except ConfigError:
        return None


def command_line_of(release: Release) -> CommandLine:
    return flags_of(min(release, NEWEST, key=lambda row: row.number).version)


def _first(follows: list[tuple[Release, bool]]) -> str | None:
    """Of releases, the newest first, that do something: the first one, where an earlier one does not."""
    since = None
    for release, does_so in follows:
        if not does_so:
            return since
        since = release.version
    return None
