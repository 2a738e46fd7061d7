"""Starts a stock server on this machine's GPUs, one process per rank, with the code that asks the ghost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any, BinaryIO

from runtime.ghost.cage import kill_group
from runtime.record.events import Event, record_of
from runtime.record.parts import Asked
from runtime.record.record import Record
from runtime.sglang.server_process import LONGEST_LINE, MAIN


def measure(
    python: Path,
    argv: Sequence[str],
    ranks: range,
    work: Path,
    gpu: str,
    seconds: float = 900,
    environment: Mapping[str, str] | None = None,
) -> list[Record]:
    """Start all ranks at once and wait for their ends; each rank's log is `work`/rankN.log.

    `environment` has variables for the server's processes besides those of this process.
    """
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    if len(ranks) > 1:
        argv = [*argv, "--nccl-port", str(_free_port())]
    variables = {**os.environ, **(environment or {})}
    started = [_start(python, argv, rank, work, variables) for rank in ranks]
    try:
        with ThreadPoolExecutor(len(started)) as pool:
            streams = list(pool.map(lambda one: _events(one[1], seconds), started))
    finally:
        for process, _ in started:
            process.kill()
            process.wait()
    return [_record(argv, rank, gpu, events) for rank, events in zip(ranks, streams, strict=True)]


def _start(
    python: Path, argv: Sequence[str], rank: int, work: Path, variables: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    ours, theirs = os.pipe()
    given = {"stream": theirs, "parent": os.getpid(), "ghost": None}
    request = {
        "argv": list(argv),
        "rank": rank,
        "outside": None,
        "log": str(work / f"rank{rank}.log"),
        "ghost": False,
    }
    process = subprocess.Popen(
        [python, "-I", MAIN, json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=(work / f"imports{rank}.log").open("wb"),
        env=variables,
        pass_fds=[theirs],
    )
    os.close(theirs)
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    return process, os.fdopen(ours, "rb")


def _events(stream: BinaryIO, seconds: float) -> list[Event]:
    """Return all events of one rank, until it ends or its time is over."""
    timer: Timer | None = None
    found: list[Event] = []
    try:
        for event in _lines(stream):
            found.append(event)
            if event["event"] == "began":
                timer = Timer(seconds, kill_group, [event["pid"]])
                timer.start()
            if event["event"] == "ended":
                break
    finally:
        if timer:
            timer.cancel()
    return found


def _lines(stream: BinaryIO) -> Iterator[Event]:
    while (line := stream.readline(LONGEST_LINE)).endswith(b"\n"):
        yield json.loads(line)


def _record(argv: Sequence[str], rank: int, gpu: str, events: list[Event]) -> Record:
    hello: dict[str, Any] = next((one for one in events if one["event"] == "hello"), {})
    asked = Asked(
        argv=tuple(argv),
        rank=rank,
        gpu=gpu,
        source="measured",
        python=hello.get("python", ""),
        cuda=hello.get("cuda") or "",
        versions=hello.get("versions", {}),
    )
    return record_of(asked, events)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
