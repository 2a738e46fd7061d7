"""Calls of FlashInfer under which its tuner was asked, as data that anyone may have written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.record.arguments import check_arguments, check_function
from runtime.record.checked import expect


@dataclass(frozen=True)
class Storage:
    """Memory that tensors of one call lie in: only the bytes that they reach."""

    bytes: int
    device: str


@dataclass(frozen=True)
class Lookup:
    """One question to the tuner: the entries that it names, each with its bucket."""

    op: str
    runners: tuple[str, ...]
    keys: tuple[tuple[int, str], ...]
    policy: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Context:
    """An autotune(...) that was open around a call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """`function`: a name inside `flashinfer.`, as `fused_moe.core:cutlass_fused_moe`. `mode`: tune or serve.
    `cache`: the file that FlashInfer had loaded or would save; empty where it is not known.

    `unreplayable` says why the call cannot be made again from this data; empty where it can.
    """

    function: str
    mode: str
    phase: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    storages: tuple[Storage, ...]
    contexts: tuple[Context, ...]
    lookups: tuple[Lookup, ...]
    unreplayable: str = ""
    cache: str = ""

    def __post_init__(self) -> None:
        expect(self.mode in ("tune", "serve"), "tune or serve", "call.mode")
        sizes = [storage.bytes for storage in self.storages]
        for storage in self.storages:
            expect(storage.device in ("cpu", "cuda"), "cpu or cuda", "call.storages.device")
        if not self.unreplayable:
            check_function(self.function, "call.function")
            check_arguments([*self.arguments, *self.named.values()], sizes, "call.arguments")
            for one in self.contexts:
                check_arguments(list(one.arguments.values()), [], "call.contexts")
        for one in self.contexts:
            expect(one.name in CONTEXTS, " or ".join(CONTEXTS), "call.contexts.name")

    @property
    def keys(self) -> tuple[str, ...]:
        """Each entry that the call asks for, once."""
        return tuple(dict.fromkeys(key for lookup in self.lookups for _, key in lookup.keys))


CONTEXTS = ("autotune", "autotune_v2")
