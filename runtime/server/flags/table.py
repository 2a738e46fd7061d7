"""One release's command line as data. The generated modules beside this file hold rows, a flag a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

from runtime.server.errors import ConfigError

REQUIRED = "==REQUIRED=="  # in the place of a default
VALUELESS = ("set", "switch", "ignored", "refused")


@dataclass(frozen=True, slots=True)
class Flag:
    """`field` is the server argument that it sets. Several flags may set one; the first states its default.

    action: store, set (to `const`), switch (--x and --no-x), lora (a list of adapters), ignored, refused.
    type: of the value, by SGLang's name for it (see types.py); a flag that takes none has its action there.
    """

    names: tuple[str, ...]
    field: str
    type: str = "str"
    default: Any = None
    action: str = "store"
    nargs: str | None = None
    choices: tuple[Any, ...] | None = None
    const: Any = None
    instead: str | None = None
    refusal: str | None = None

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def deprecated(self) -> bool:
        return self.instead is not None or self.action in ("ignored", "refused")

    @property
    def takes_value(self) -> bool:
        return self.type != self.action


@dataclass(frozen=True, eq=False)
class CommandLine:
    release: str
    flags: tuple[Flag, ...]
    only_fields: Mapping[str, Any]  # defaults of those that no flag sets
    graph_keys: Mapping[str, tuple[str, ...]]  # of --cuda-graph-config
    serve_takes_model: bool  # `sglang serve MODEL`, without --model-path
    config_dicts_are_json: bool  # in a --config file, where they were Python's own text before
    config_keys_are_names: bool  # any spelling of a flag; before, its server argument

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What every server argument is when nothing is asked."""
        first = {flag.field: flag.default for flag in reversed(self.flags)}
        return {name: None if value == REQUIRED else value for name, value in first.items()} | dict(
            self.only_fields
        )

    @cached_property
    def by_name(self) -> dict[str, Flag]:
        return {name: flag for flag in self.flags for name in flag.names}

    @cached_property
    def by_field(self) -> dict[str, Flag]:
        """The flag to advise for a server argument: its first one that is not deprecated."""
        usable = [flag for flag in self.flags if not flag.deprecated]
        return {flag.field: flag for flag in reversed(usable)}


@lru_cache
def flags_of(release: str) -> CommandLine:
    """Post releases and builds that have no module of their own speak as the release that they follow."""
    for name in (release, ".".join(release.split("+")[0].split(".")[:3])):
        try:
            module = import_module(f"{__package__}.v{name.replace('.', '_')}")
        except ModuleNotFoundError:
            continue
        return CommandLine(
            name, tuple(_flag(*row) for row in module.FLAGS), module.ONLY_FIELDS, module.GRAPH_KEYS,
            module.SERVE_TAKES_MODEL, module.CONFIG_DICTS_ARE_JSON, module.CONFIG_KEYS_ARE_NAMES,
        )  # fmt: skip
    raise ConfigError(f"SGLang {release}: its command line is not known", "name a release that is")


def _flag(names: str, field: str, type: str, default: Any, more: Mapping[str, Any] | None = None) -> Flag:
    rest = dict(more or {})
    choices = rest.pop("choices", None)
    if choices is not None:
        rest["choices"] = tuple(int(word) if type == "int" else word for word in choices.split())
    action = rest.pop("action", type if type in VALUELESS else "store")
    if action == "set":
        rest.setdefault("const", True)
    return Flag(tuple(names.split()), field, type, default, action, **rest)
