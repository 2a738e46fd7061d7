"""Where a rank runs: `Cuda` measures, `Meta` predicts, `Cpu` computes and counts, behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from runtime.devices.readings import Held, MemoryReading


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured forward. `replay` computes it again from its static inputs into `outputs`."""

    outputs: Any
    replay: Callable[[], None]


WARM_UPS = 2  # before a capture


def nothing() -> None:
    pass


def kind_of(graph: str) -> str:
    """`decode` of `decode 8`, as captures are named."""
    return graph.rpartition(" ")[0]


class Device(ABC):
    torch_device: torch.device
    sm_major = 9

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run the runtime inside: a device that counts allocations counts them only here."""
        yield

    @abstractmethod
    def memory(self) -> MemoryReading:
        """The peaks are those since `reset_peak`."""

    @abstractmethod
    def reset_peak(self) -> None: ...
    @abstractmethod
    def empty_cache(self) -> None: ...

    @abstractmethod
    def largest_at_peak(self, count: int) -> list[Held]:
        """Of what was made since `reset_peak`; empty where allocations are not followed."""

    def synchronize(self) -> None:  # noqa: B027
        """Wait for what was launched."""

    def claim(self, what: str, count: int = 1) -> None:  # noqa: B027
        """Something outside torch's sight takes memory from now on: only a prediction has to be told."""

    def in_phase(self, name: str) -> None:  # noqa: B027
        """The phase that allocations belong to from now on."""

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """A stream of its own, as autotuning uses; torch caches blocks for each stream apart."""
        yield

    @abstractmethod
    def graph_pool(self) -> Any:
        """A memory pool that several graphs may share."""

    @abstractmethod
    def capture(
        self,
        run: Callable[[], Any],
        pool: Any,
        before: Callable[[], None] = nothing,
        name: str = "",
    ) -> Graph:
        """Run `WARM_UPS` times, each after `before` (a barrier, say), then capture one more run.

        `name` says which forward of the start it is: `decode 8`. Each kind has a stream of its own.
        """
