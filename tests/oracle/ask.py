"""Asks the wheels: commands grouped by release and GPU, for an interpreter takes long to start."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.oracle.commands import Command
from tests.oracle.inside import run_inside
from tests.oracle.published import published
from tests.oracle.wheels import interpreter, transformers_of, wheel_of

SECONDS_TO_START, SECONDS_EACH = 600, 30
USUAL = "meta-llama/Llama-3.1-8B-Instruct"  # answered once, to have everything imported
Answer = dict[str, Any]


def ask(commands: Sequence[Command], work: Path, jobs: int) -> Iterator[tuple[Command, Answer]]:
    """In the order of releases. A group that fails is told on standard error and left out."""
    groups: dict[tuple[str, str], list[Command]] = defaultdict(list)
    for command in sorted(commands, key=lambda one: (one.release, one.gpu)):
        groups[command.release, command.gpu].append(command)
    interpreter(work)
    for release in sorted({release for release, _ in groups}):
        transformers_of(wheel_of(release, work), work)
    with ThreadPoolExecutor(jobs) as pool:
        for pairs in pool.map(lambda group: _group(group, work), groups.values()):
            yield from pairs


def _group(commands: list[Command], work: Path) -> list[tuple[Command, Answer]]:
    release, gpu = commands[0].release, commands[0].gpu
    lines = [json.dumps({"id": one.id, "argv": one.argv}) for one in commands]
    deadline = SECONDS_TO_START + SECONDS_EACH * len(commands)
    try:
        wheel = wheel_of(release, work)
        told = run_inside("read_server", wheel, gpu, work, lines, deadline, published()[USUAL].path)
        answers = {answer.pop("id"): answer for answer in told}
    except Exception as error:
        print(f"{release} on {gpu}: {error}", file=sys.stderr)
        return []
    return [(one, answers[one.id]) for one in commands if one.id in answers]
