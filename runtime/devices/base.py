"""Where a rank runs: `Cuda` measures, `Meta` predicts, `Cpu` computes and counts, behind one interface."""

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
    """Return `decode` for `decode 8`, the form in which captures are named."""
    return graph.rpartition(" ")[0]


class Device(ABC):
    torch_device: torch.device
    sm_major = 9

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run the runtime inside: a device that counts allocations counts only those."""
        yield

    @abstractmethod
    def memory(self) -> MemoryReading:
        """Read the memory; peaks count from the last `reset_peak`."""

    @abstractmethod
    def reset_peak(self) -> None: ...
    @abstractmethod
    def empty_cache(self) -> None: ...

    @abstractmethod
    def largest_at_peak(self, count: int) -> list[Held]:
        """The largest allocations since `reset_peak` that were live at the peak; empty if not recorded."""

    def synchronize(self) -> None:  # noqa: B027
        """Wait for what was launched."""

    def claim(self, what: str, count: int = 1) -> None:  # noqa: B027
        """Count memory taken outside torch. Only predictions need this."""

    def in_phase(self, name: str) -> None:  # noqa: B027
        """Set the phase to which later allocations belong."""

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """A stream of its own, as autotuning uses; torch caches blocks per stream."""
        yield

    @abstractmethod
    def graph_pool(self) -> Any:
        """Return a memory pool that several graphs may share."""

    @abstractmethod
    def capture(
        self, run: Callable[[], Any], pool: Any, before: Callable[[], None] = nothing, name: str = ""
    ) -> Graph:
        """Run `WARM_UPS` times, each after `before` (a barrier, say), then capture one more run.

        `name` is the forward in the start, such as `decode 8`. Each kind has a stream of its own.
        """
