"""Calls to FlashInfer that asked its tuner, as data that is checked: anyone may have written it."""

from dataclasses import dataclass
from typing import Any

from runtime.record.arguments import LARGEST, bytes_made, check_arguments, check_function, check_storage
from runtime.record.checked import expect


@dataclass(frozen=True)
class Storage:
    """Memory that contains tensors of one call: only the bytes that they use."""

    bytes: int
    device: str

    def __post_init__(self) -> None:
        check_storage(self.bytes, self.device, "call.storages")


@dataclass(frozen=True)
class Lookup:
    """One question to the tuner: the entries that it looks up, each with its bucket."""

    op: str
    runners: tuple[str, ...]
    keys: tuple[tuple[int, str], ...]
    policy: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        expect(bool(self.runners), "with a runner", "call.lookups.runners")
        plain = all(one is None or isinstance(one, (str, int, float)) for one in self.policy)
        expect(plain, "of words and numbers", "call.lookups.policy")


@dataclass(frozen=True)
class Context:
    """An autotune(...) that was open around a call. No argument of it may name a file."""

    name: str
    arguments: dict[str, Any]

    def __post_init__(self) -> None:
        expect(self.name in CONTEXTS, " or ".join(CONTEXTS), "call.contexts.name")
        unknown = sorted(self.arguments.keys() - CONTEXTS[self.name])
        expect(not unknown, f"without {', '.join(map(repr, unknown))[:200]}", "call.contexts.arguments")


@dataclass(frozen=True)
class Call:
    """One call. `function` is a name inside `flashinfer.`, such as `fused_moe.core:cutlass_fused_moe`; `mode`
    is tune or serve; `cache` is the file that FlashInfer had loaded or would save, or "" if not known.

    `unreplayable` says why the call cannot be made again from this data, or is "" if it can.
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
        if not self.unreplayable:
            check_function(self.function, "call.function")
            arguments = [*self.arguments, *self.named.values()]
            check_arguments(arguments, sizes, "call.arguments")
            expect(sum(sizes) + bytes_made(arguments) <= LARGEST, "of less memory", "call.storages")
            for one in self.contexts:
                check_arguments(list(one.arguments.values()), [], "call.contexts")

    @property
    def keys(self) -> tuple[str, ...]:
        """Return each entry that the call looks up, once."""
        return tuple(dict.fromkeys(key for lookup in self.lookups for _, key in lookup.keys))


_OF_BOTH = {"tuning_buckets", "round_up", "skip_ops"}
CONTEXTS = {
    "autotune": {"tune_mode", "cuda_graph_profile_replays", *_OF_BOTH},
    "autotune_v2": {"mode", "measurement_policy", *_OF_BOTH},
}
