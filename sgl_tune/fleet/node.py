"""One machine, as a line of `sgl-tune env --format json` tells it: anybody may have written it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sgl_tune.cli.out import SCHEMA_VERSION
from sgl_tune.deployment.versions import Gpu
from sgl_tune.fleet.holdings import Holdings
from sgl_tune.reading import NoJson, NoObject, object_of
from sgl_tune.records import WrongMember, from_plain, to_plain
from sgl_tune.units import shown
from sgl_tune.verify.environment import Target

_LONGEST_NAME = 253  # as long as a host's may be


class UnreadLine(ValueError):
    """Why a line is no node."""


@dataclass(frozen=True, slots=True)
class Node:
    """`holdings` is None in what an older sgl-tune wrote; `metadata` where FlashInfer could not be asked."""

    name: str = ""
    metadata: dict[str, str] | None = None
    arch: str | None = None
    driver: str | None = None
    sglang: str | None = None
    gpus: tuple[Gpu, ...] = ()
    tool: str | None = None
    holdings: Holdings | None = None

    @property
    def target(self) -> Target:
        return Target.of(self.metadata or {}, "its env", self.arch, sglang=self.sglang, gpus=self.gpus[:1])


def holdings_json(holdings: Holdings) -> dict[str, Any]:
    """Members of the whole line; rows leave out what is nothing: there may be a thousand lines."""
    plain = to_plain(holdings)
    return {**plain, "caches": _lean(plain["caches"]), "stores": _lean(plain["stores"])}


def _lean(value: Any) -> Any:
    if isinstance(value, list):
        return [_lean(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _lean(item) for name, item in value.items() if item not in (0, "", [])}


def parse_node(raw: bytes) -> Node:
    try:
        content = object_of(raw)
    except NoObject as why:
        if isinstance(why, NoJson) and not raw.endswith(b"\n"):
            raise UnreadLine("it is cut off") from None
        raise UnreadLine(f"it {why}; one object a line is needed") from None
    return node_of(content)


def node_of(content: Mapping[str, Any]) -> Node:
    if content.get("schema_version") != SCHEMA_VERSION:
        told = shown(content.get("schema_version"))
        raise UnreadLine(
            f"its schema_version is {told}, and {SCHEMA_VERSION} is read here (written by sgl-tune"
            f" {shown(content.get('tool'))})"
        )
    if "metadata" not in content:
        raise UnreadLine("it is not what `sgl-tune env --format json` prints: it has no `metadata`")
    plain = {name: value for name, value in content.items() if name != "holdings"}
    try:
        node = from_plain(Node, plain, "it")
        if "caches" in content and not 0 < len(node.name) <= _LONGEST_NAME:
            raise WrongMember(f"its name is {shown(node.name)}")
        is_told = "caches" in content and plain.get("cache_dir")
        return replace(node, holdings=from_plain(Holdings, plain, "it")) if is_told else node
    except WrongMember as error:
        raise UnreadLine(str(error)) from None
