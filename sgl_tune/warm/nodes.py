"""The nodes of a search after they have met: what the workers of one tell, told to the workers of all."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sgl_tune.errors import WorkFailed
from sgl_tune.processes.pump import Pump
from sgl_tune.warm.channel import Channel

HELLO = "hello"  # a guest: which node it is and how many workers it has
WELCOME = "welcome"  # node 0: its first worker's rank, and how many there are in all
REFUSED = "refused"  # node 0: why it is not let in
_TOLD = "told"  # a guest: what its workers told
_ALL = "all"  # node 0: what all workers told, in rank order
_ALIVE, _DONE, _FAILED = "alive", "done", "failed"

_BEAT_SECONDS = 1.0
_GOODBYE_SECONDS = 2.0


class Nodes:
    """Node 0 has a channel to every other one, each of those one to it. All have the same rounds."""

    def __init__(self, rank: int, channels: Mapping[int, Channel], first: int, size: int, pump: Pump) -> None:
        self.rank, self.first, self.size, self.pump = rank, first, size, pump
        self._channels = channels
        self._told: dict[int, list[Any]] = {}
        self._all: list[Any] | None = None
        self._finished: set[int] = set()
        self._beat_at = 0.0
        for channel in channels.values():
            channel.heard_at = time.monotonic()

    def tell(self, values: list[Any]) -> None:
        """This node's part of a round."""
        if self.rank == 0:
            self._add(0, values)
        else:
            self._channels[0].send(_TOLD, values=values)

    def told_by_all(self, silence: float) -> list[Any] | None:
        """The whole round, once it is there. Raises when a node is lost."""
        self._beat()
        for rank, channel in self._channels.items():
            while channel.messages:
                self._hear(rank, channel.messages.popleft())
            self._check(rank, channel, silence)
        everything, self._all = self._all, None
        return everything

    def fail(self, message: str) -> None:
        self._send_all(_FAILED, message=message)

    def done(self) -> None:
        self._send_all(_DONE)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.flush(_GOODBYE_SECONDS)
            channel.close()
        self.pump.close()

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == _TOLD:
            self._add(rank, message["values"])
        elif kind == _ALL:
            self._all = message["values"]
        elif kind == _DONE:
            self._finished.add(rank)
        elif kind == _FAILED:
            raise WorkFailed(message["message"])

    def _add(self, rank: int, values: list[Any]) -> None:
        self._told[rank] = values
        if len(self._told) == 1 + len(self._channels):
            self._all = [value for node in sorted(self._told) for value in self._told[node]]
            self._told.clear()
            self._send_all(_ALL, values=self._all)

    def _check(self, rank: int, channel: Channel, silence: float) -> None:
        if rank in self._finished:
            return
        if channel.lost is not None:
            raise WorkFailed(f"node {rank} was lost: {channel.lost}")
        silent = time.monotonic() - channel.heard_at
        if silent > silence:
            raise WorkFailed(f"node {rank} gave no sign of life for {silent:.0f} s")

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beat_at > _BEAT_SECONDS:
            self._beat_at = now
            self._send_all(_ALIVE)

    def _send_all(self, kind: str, **fields: Any) -> None:
        for channel in self._channels.values():
            if channel.lost is None:
                with suppress(OSError):
                    channel.send(kind, **fields)
