"""Asks a stock SGLang on GPUs that are not there what its wheels were once asked; 1 where an answer differs.

python -m tests.frozen                          # every release that `sgl-tune server add` installed
python -m tests.frozen --server 0.5.23
python -m tests.frozen --python PATH            # a Python, or a venv, that has one of these releases
python -m tests.frozen --add                    # installs the others one after the other, 7.5 GB each
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.ghost.build import library
from runtime.ghost.gpus import gpus
from runtime.ghost.outside import table
from runtime.record.record import Record
from runtime.sglang.asking import devices_of
from runtime.sglang.server_process import Ghost, Request, ServerBroken, ServerProcess
from sgl_tune.asking.kept import cache_folder
from sgl_tune.servers.home import added_servers
from sgl_tune.servers.installed import normal, packages_in
from sgl_tune.servers.server import NoServer, Server, server_at
from tests.frozen.compare import Difference, Verdict, verdict
from tests.frozen.questions import Question, frozen, releases, write_models

DEVICES = 8  # of the machine that the wheels saw
PINNED = re.compile(r"^Requires-Dist: ([\w.-]+)(?:\[[^]]*\])?==([\w.]+)$", re.MULTILINE)
SERVER = (sys.executable, "-m", "sgl_tune", "server")


@dataclass(frozen=True)
class Asked:
    question: Question
    record: Record | None
    verdict: Verdict


def ask(questions: Sequence[Question], server: Server, work: Path) -> Iterator[Asked]:
    """Ask a release's questions, by GPU. One process per kind and number of GPUs imports the server."""
    libraries = library(server.folders, cache_folder())
    groups: dict[tuple[str, int], list[Question]] = defaultdict(list)
    for one in questions:
        groups[one.gpu.lower().replace(" ", "-"), max(DEVICES, devices_of(one.argv))].append(one)
    for (gpu, devices), group in sorted(groups.items()):
        folder = work / f"{gpu}-{devices}"
        write_models(folder)
        ghost = Ghost(libraries, gpus()[gpu].name, gpus()[gpu].row(), devices=devices)
        started = ServerProcess(server.python, folder, ghost, {}, bytecode=cache_folder() / "bytecode")
        try:
            with started as process:
                while group:
                    yield answered(group.pop(0), process)
        except ServerBroken as error:
            print(f"{server.sglang} on {gpu}: {error}", file=sys.stderr)
            why = Difference(
                "import", "there", "this server cannot be imported on that GPU, see standard error"
            )
            yield from (Asked(one, None, Verdict("broken", differences=(why,))) for one in group)


def answered(question: Question, process: ServerProcess) -> Asked:
    request = Request(question.argv, 0, {"numbers": table().text()}, until="gates")
    record = process.run(request, seconds=120)
    return Asked(question, record, verdict(question, record))


def other_packages(server: Server) -> str:
    """Return the packages that the release pins and that are missing or have another version."""
    there = packages_in(server.folders)
    asked = PINNED.findall((there["sglang"].info / "METADATA").read_text())
    found = {name: there.get(normal(name)) for name, _ in asked}
    versions = {
        name: package.version.partition("+")[0] if package else None for name, package in found.items()
    }
    apart = [(name, wanted) for name, wanted in asked if versions[name] != wanted]
    return ", ".join(f"{name} {versions[name] or 'none'} for {wanted}" for name, wanted in apart)


def page(release: str, asked: Sequence[Asked]) -> Iterator[str]:
    how = Counter(one.verdict.how for one in asked)
    costs = sorted(one.record.cost.cpu for one in asked if one.record)
    told = ", ".join(f"{count} {name}" for name, count in sorted(how.items()))
    yield f"{release}: {len(asked)} commands: {told}"
    if costs:
        yield f"  CPU seconds of a command: median {costs[len(costs) // 2]:.2f}, at most {costs[-1]:.2f}"
    apart = Counter(difference.field for one in asked for difference in one.verdict.differences)
    for name, count in apart.most_common():
        yield f"  {name:<24}{count} apart"
    for one in asked:
        for difference in one.verdict.differences:
            yield f"  {one.question.gpu}: {' '.join(one.question.argv)}"
            yield f"    {difference.field}: frozen {difference.frozen}, asked {difference.asked}"


def main(argv: Sequence[str] | None = None) -> int:
    given = _arguments(argv)
    bad = asked_of = 0
    with ExitStack() as stack:
        work = given.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="frozen-")))
        for release in given.server or releases():
            with _server(release, given) as server:
                if server is None:
                    print(f"{release}: not installed; --add installs it, and removes it afterwards")
                    continue
                asked_of += 1
                asked = _all(release, server, given, work / release)
                print(*page(release, asked), sep="\n", flush=True)
                if others := other_packages(server):
                    print(f"  not as the release asks for it: {others}")
                bad += sum(one.verdict.how in ("different", "broken") for one in asked)
    return 1 if bad else 0 if asked_of else 2


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("--server", action="append", choices=releases(), help="a release; again for more")
    parser.add_argument("--python", type=Path, help="a Python, or a venv, that has this one release")
    parser.add_argument("--add", action="store_true", help="install what is not, one after the other")
    parser.add_argument("--gpu", help="the questions about this one alone")
    parser.add_argument("--first", type=int, help="so many of a release's questions")
    parser.add_argument("--work", type=Path, help="keep logs and records here")
    given = parser.parse_args(argv)
    if given.python is not None:
        found = server_at(given.python)
        if isinstance(found, NoServer) or found.sglang not in releases():
            parser.error(f"--python: {found.why if isinstance(found, NoServer) else found.sglang}")
        given.server = [found.sglang]
    return given


def _all(release: str, server: Server, given: argparse.Namespace, work: Path) -> list[Asked]:
    asked = []
    work.mkdir(parents=True, exist_ok=True)
    questions = [one for one in frozen(release).questions if given.gpu in (None, one.gpu)]
    for number, one in enumerate(ask(questions[: given.first], server, work)):
        print(release, number, one.verdict.how, one.question.gpu, one.question.model, file=sys.stderr)
        if one.record is not None:
            (work / f"{number}.json").write_text(one.record.to_json())
        asked.append(one)
    return asked


@contextmanager
def _server(release: str, given: argparse.Namespace) -> Iterator[Server | None]:
    """Yield the installed server or, with --add, one that is installed only while it is asked."""
    found = server_at(given.python) if given.python else _added(release)
    if isinstance(found, Server) or not given.add:
        yield found if isinstance(found, Server) else None
        return
    subprocess.run([*SERVER, "add", release, "-y"], check=True)
    try:
        added = _added(release)
        yield added if isinstance(added, Server) else None
    finally:
        subprocess.run([*SERVER, "remove", release, "-y"], check=True)


def _added(release: str) -> Server | NoServer | None:
    found = next((one for one in added_servers() if one.release == release), None)
    return server_at(found.venv, "added") if found and found.unusable is None else None


if __name__ == "__main__":
    raise SystemExit(main())
