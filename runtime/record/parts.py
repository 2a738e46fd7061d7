"""The parts of a record: frozen data, each with the names that JSON has."""

import re
from dataclasses import dataclass
from typing import Any

from runtime.record.checked import expect

_MAKER = re.compile(r"[a-z][a-z0-9_.]{0,100}:gen_[a-z0-9_]{1,100}")


@dataclass(frozen=True)
class Asked:
    """The question: a server command for one rank, the GPU, and the server.

    `lacking`: protections of the cage that this kernel does not offer, each with the reason.
    """

    argv: tuple[str, ...]
    rank: int
    gpu: str
    source: str  # ghost, measured or core
    python: str
    cuda: str
    versions: dict[str, str]
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class Phase:
    """One step of a start. Peaks are the highest within it; the other readings are from its end."""

    name: str
    depth: int
    seconds: float
    allocated_before: int
    allocated: int
    reserved: int
    peak: int
    reserved_peak: int
    free: int
    total: int
    least_free: int

    def __post_init__(self) -> None:
        counts = (self.allocated_before, self.allocated, self.reserved, self.peak, self.reserved_peak)
        expect(min(*counts, self.free, self.total, self.least_free) >= 0, "of 0 bytes or more", "phase")

    @property
    def outside(self) -> int:
        """Bytes in use that torch did not reserve."""
        return self.total - self.free - self.reserved


@dataclass(frozen=True)
class Sizes:
    """What a server that became ready can hold."""

    kv_tokens: int
    max_running_requests: int | None
    mem_fraction_static: float
    chunked_prefill_size: int | None
    context_length: int


@dataclass(frozen=True)
class Ending:
    """How a start ended: ready, died in a phase, refused by SGLang, stopped early as asked, or broken."""

    how: str
    phase: str | None = None
    type: str | None = None
    text: str | None = None
    stack: tuple[str, ...] = ()
    at: Phase | None = None  # the phase as it was when the start died in it


@dataclass(frozen=True)
class Inexact:
    """One reason why a number of the record may be wrong."""

    kind: str  # stub, unread, guess, capped, module, kernel, peer, attribute or tuner
    name: str
    phase: str
    frame: str
    why: str


@dataclass(frozen=True)
class Module:
    """A compiled module that the start loaded: the real one, only its host code, or a stub.

    `maker` is FlashInfer's function that makes it: MODULE:NAME, below `flashinfer.jit` if not of flashinfer;
    in its `arguments` the name of a dtype means torch's dtype. Empty if it is not known.
    """

    library: str
    name: str
    path: str
    state: str
    digest: str
    maker: str = ""
    arguments: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        plain = all(one is None or isinstance(one, (str, int, float)) for one in self.arguments)
        expect(plain, "of words and numbers", "module.arguments")
        expect(not self.maker or bool(_MAKER.fullmatch(self.maker)), "made by FlashInfer", "module.maker")


@dataclass(frozen=True)
class Key:
    """An entry that FlashInfer's tuner was asked for, how often, and how many tactics it measured."""

    mode: str  # tune or serve
    op: str
    key: str
    asked: int
    profiled: int


@dataclass(frozen=True)
class Kernel:
    """A kernel that the start compiles. A Triton kernel has the key of Triton's own cache, its target GPU,
    and the bytes of shared memory per block."""

    library: str
    name: str
    digest: str = ""
    target: str = ""
    shared: int = 0


@dataclass(frozen=True)
class CacheFile:
    """A cache file that the start looked for, or that another rank of the same server looks for."""

    store: str
    path: str
    found: bool
    phase: str = ""


@dataclass(frozen=True)
class Held:
    """Bytes of weights in all modules of one class, after the phase that loaded them."""

    phase: str
    what: str
    bytes: int


@dataclass(frozen=True)
class Said:
    """A line that SGLang or FlashInfer logged."""

    phase: str
    level: str
    text: str


@dataclass(frozen=True)
class Cost:
    """What the start cost: its CPU seconds, and the most memory of its process."""

    cpu: float
    rss: int
