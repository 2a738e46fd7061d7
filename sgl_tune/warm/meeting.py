"""How nodes meet: node 0 lets in who proves the secret, until all are there; the others come and prove it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.processes.pump import Pump
from sgl_tune.warm.channel import Channel
from sgl_tune.warm.foreign_launcher import SlurmTask, TorchWorker
from sgl_tune.warm.nodes import HELLO, REFUSED, WELCOME, Nodes
from sgl_tune.warm.place import Place, connected, listen, may_come, parse_place
from sgl_tune.warm.secret import HOW_TO_MAKE, read_secret

_PROOF_SECONDS = 5.0  # that a stranger may take
_STRANGERS = 64  # that may be proving themselves at once
_RETRY_SECONDS = 0.2
_TURN_SECONDS = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Meeting:
    """`nodes` of them, each with some workers; `rank` 0 is the host."""

    place: Place
    secret: bytes
    nodes: int
    rank: int
    timeout: float


def find_meeting(
    deployment: Deployment, team: TorchWorker | SlurmTask | None, secret_file: Path | None, timeout: float
) -> Meeting | None:
    """None where one node's workers are all ours, or torchrun's."""
    nodes, address = deployment.parallel.nnodes, deployment.inputs.dist_init_addr
    if isinstance(team, TorchWorker):
        return None
    if team is None:
        if nodes == 1:
            return None
        place, rank = parse_place(address, nodes), deployment.parallel.node_rank
    else:
        nodes, rank = team.world_size, team.rank
        if team.address is None:
            return Meeting(Place(name=team.name), b"", nodes, rank, timeout)
        place = parse_place(address or team.address, nodes)
    if secret_file is None:
        raise UsageError(f"several nodes meet at {place}, and need --secret-file", HOW_TO_MAKE)
    return Meeting(place, read_secret(secret_file), nodes, rank, timeout)


@contextmanager
def met(meeting: Meeting, workers: int, say: Say) -> Iterator[Nodes]:
    pump = Pump()
    join = _host if meeting.rank == 0 else _visit
    nodes = join(meeting, workers, pump, say)
    try:
        yield nodes
    except WorkFailed as failure:
        nodes.fail(failure.message)
        raise
    except BaseException as error:
        nodes.fail(f"node {meeting.rank} ended: {str(error) or type(error).__name__}")
        raise
    finally:
        nodes.close()


def _host(meeting: Meeting, workers: int, pump: Pump, say: Say) -> Nodes:
    listener = listen(meeting.place)
    reception = _Reception(meeting, pump, say, listener)
    try:
        guests = reception.receive()
    finally:
        reception.close()
        pump.remove(listener)
        listener.close()
    counts = [workers, *(guests[rank][1] for rank in sorted(guests))]
    for rank, (channel, _) in guests.items():
        channel.send(WELCOME, first=sum(counts[:rank]), size=sum(counts))
    return Nodes(0, {rank: channel for rank, (channel, _) in guests.items()}, 0, sum(counts), pump)


class _Reception:
    def __init__(self, meeting: Meeting, pump: Pump, say: Say, listener: socket.socket) -> None:
        self._meeting, self._pump, self._say, self._listener = meeting, pump, say, listener
        self._pending: list[Channel] = []
        self._guests: dict[int, tuple[Channel, int]] = {}
        self._refused: set[str] = set()
        pump.add(listener, self._accept)

    def receive(self) -> dict[int, tuple[Channel, int]]:
        deadline = time.monotonic() + self._meeting.timeout
        while len(self._guests) < self._meeting.nodes - 1:
            if time.monotonic() > deadline:
                raise self._not_all_came()
            self._pump.turn(_TURN_SECONDS)
            for channel in list(self._pending):
                self._look_at(channel)
            for rank in [rank for rank, (channel, _) in self._guests.items() if channel.lost]:
                del self._guests[rank]  # it may come again
        return self._guests

    def close(self) -> None:
        for channel in self._pending:
            channel.close()

    def _accept(self) -> None:
        with suppress(OSError):
            connection, address = self._listener.accept()
            if len(self._pending) >= _STRANGERS or not may_come(connection):
                connection.close()
                return
            peer = str(address[0]) if address else "a process here"
            self._pending.append(
                Channel(connection, self._pump, self._meeting.secret, hosting=True, peer=peer)
            )

    def _look_at(self, channel: Channel) -> None:
        late = time.monotonic() - channel.began_at > _PROOF_SECONDS
        if channel.lost is None and not channel.messages and late:
            channel.close("it did not show that it knows the secret")
        if channel.lost is not None:
            self._pending.remove(channel)
            self._tell_of(channel)
        elif channel.messages:
            self._pending.remove(channel)
            self._seat(channel)

    def _tell_of(self, channel: Channel) -> None:
        if not channel.is_open and channel.peer not in self._refused and len(self._refused) < _STRANGERS:
            self._refused.add(channel.peer)
            self._say(f"a peer at {channel.peer} was refused: {channel.lost}")

    def _seat(self, channel: Channel) -> None:
        hello = channel.messages.popleft()
        why = self._why_not(hello)
        if why is None:
            self._guests[hello["node"]] = (channel, hello["workers"])
            return
        self._say(f"the node at {channel.peer} was sent away: {why}")
        channel.send(REFUSED, why=why)
        channel.flush(1.0)
        channel.close()

    def _why_not(self, hello: dict[str, int | str]) -> str | None:
        node, nodes = hello.get("node"), hello.get("nodes")
        if hello["kind"] != HELLO or nodes != self._meeting.nodes:
            return f"it was started with --nnodes {nodes}, node 0 with --nnodes {self._meeting.nodes}"
        if node not in range(1, self._meeting.nodes) or node in self._guests:
            return f"node 0 has a node of --node-rank {node} already"
        return None

    def _not_all_came(self) -> WorkFailed:
        missing = [str(rank) for rank in range(1, self._meeting.nodes) if rank not in self._guests]
        refused = f"; refused were {', '.join(sorted(self._refused))}" if self._refused else ""
        return WorkFailed(
            f"node {', '.join(missing)} of {self._meeting.nodes} did not come to {self._meeting.place} "
            f"within {self._meeting.timeout:.0f} s{refused}",
            "start the same command on every node, with the same --secret-file",
        )


def _visit(meeting: Meeting, workers: int, pump: Pump, say: Say) -> Nodes:
    deadline = time.monotonic() + meeting.timeout
    channel = _let_in(meeting, pump, deadline)
    channel.send(HELLO, node=meeting.rank, nodes=meeting.nodes, workers=workers)
    while not channel.messages:
        if channel.lost is None and time.monotonic() > deadline:
            channel.close(f"not all nodes came within {meeting.timeout:.0f} s")
        if channel.lost is not None:
            raise WorkFailed(f"node 0 at {meeting.place} ended before all nodes had met: {channel.lost}")
        pump.turn(_TURN_SECONDS)
    told = channel.messages.popleft()
    if told["kind"] == REFUSED:
        raise UsageError(f"node 0 at {meeting.place} sent this node away: {told['why']}")
    return Nodes(meeting.rank, {0: channel}, told["first"], told["size"], pump)


def _let_in(meeting: Meeting, pump: Pump, deadline: float) -> Channel:
    """Where nobody greets, node 0 is full of strangers or not there yet: this one comes again."""
    while True:
        channel = Channel(
            connected(meeting.place, deadline), pump, meeting.secret, hosting=False, peer="node 0"
        )
        while channel.lost is None and not channel.is_open:
            pump.turn(_TURN_SECONDS)
            if time.monotonic() - channel.began_at > _PROOF_SECONDS:
                channel.close("what listens there did not show that it knows the secret")
        if channel.is_open:
            return channel
        if channel.was_greeted or time.monotonic() > deadline:
            raise WorkFailed(
                f"node 0 at {meeting.place} did not let this node in: {channel.lost}",
                "give every node the same --secret-file",
            )
        time.sleep(_RETRY_SECONDS)
