"""Server commands as people publish them: what each release's own parser makes of them, and what we do.

python -m tests.oracle.published_commands [--record] [--gpu H200]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from runtime.server.flags import flags_of
from runtime.server.releases import release_named
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.server_command import arguments_of, parse_server_command
from sgl_tune.errors import UsageError
from tests.oracle.ask import ask as ask_servers
from tests.oracle.commands import Command
from tests.oracle.grammar import agree, ask
from tests.oracle.ours import our_answer
from tests.oracle.published import published
from tests.oracle.wheels import WORK

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTED = Path(__file__).with_suffix(".toml")
RECORDED = Path(__file__).parent / "recorded/published_commands.json.gz"
RELEASES = ("0.5.12", "0.5.17", "0.5.23")


@dataclass(frozen=True)
class PublishedCommand:
    source: str
    text: str
    refused: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def listed() -> list[PublishedCommand]:
    return [PublishedCommand(**row) for row in tomllib.loads(LISTED.read_text())["command"]]


@contextmanager
def beside(files: Mapping[str, str]) -> Iterator[None]:
    """In a folder where the command's files are."""
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def words_of(command: PublishedCommand, release: str) -> list[str]:
    with beside(command.files):
        return arguments_of(launch_of([command.text]), flags_of(release))


def our_reading(command: PublishedCommand, release: str) -> dict[str, Any]:
    with beside(command.files):
        try:
            line = parse_server_command([command.text], release_named(release).release)
        except UsageError as error:
            return {"refused": getattr(error.__cause__, "reason", error.message)}
    return {"model_path": line.asked.model_path}


def differences(answers: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Where one is taken and the other is not, or blamed for something else."""
    judged = [command for command in listed() if command.refused is None]
    for release, theirs in answers.items():
        for command, answer in zip(judged, theirs, strict=True):
            ours = our_reading(command, release)
            both = "refused" in ours and "refused" in answer
            if ("refused" in ours) != ("refused" in answer) or (both and not agree(ours, answer)):
                yield f"{release} {command.source}: ours {ours}, theirs {answer}"


def recorded() -> dict[str, list[dict[str, Any]]]:
    answers: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return answers


def servers(gpu: str) -> list[Command]:
    """Those whose checkpoint's config.json is here, for ServerArgs' own checks."""
    found = []
    for command in listed():
        for release in RELEASES if command.refused is None else ():
            argv = ["--trust-remote-code", *words_of(command, release)]
            if "--speculative-draft-model-path" in argv:
                continue  # of another checkpoint
            at = next(i for i, word in enumerate(argv) if word in ("--model-path", "--model")) + 1
            if argv[at] in published():
                argv[at] = published()[argv[at]].path
                found.append(Command(len(found), release, gpu, argv[at], tuple(argv)))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--record", action="store_true", help="keep the parsers' answers for the tests")
    options.add_argument("--gpu", help="ask ServerArgs too, on this GPU")
    options.add_argument("--work", type=Path, default=WORK)
    asked = options.parse_args()
    judged = [command for command in listed() if command.refused is None]
    answers = {}
    for release in RELEASES:
        lines = [words_of(command, release) for command in judged]
        answers[release] = ask(release, lines, asked.work.absolute())
        refused = [answer["refused"] for answer in answers[release] if "refused" in answer]
        print(
            f"{release}: {len(judged)} commands, {len(refused)} refused by its parser", *refused, sep="\n  "
        )
    print(
        f"{len(listed()) - len(judged)} more are not read down to a parser",
        "differences:",
        *differences(answers),
        sep="\n",
    )
    if asked.record:
        kept = {
            r: [{"refused": a["refused"]} if "refused" in a else {} for a in row]
            for r, row in answers.items()
        }
        RECORDED.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    if asked.gpu:
        for command, theirs in ask_servers(servers(asked.gpu), asked.work.absolute(), 1):
            ours = our_answer(command)
            said = "agree" if ("refused" in ours) == ("refused" in theirs) else "DIFFER"
            print(
                said,
                command.release,
                command.model,
                ours.get("refused", "read"),
                "|",
                theirs.get("refused", "read"),
            )


if __name__ == "__main__":
    main()
