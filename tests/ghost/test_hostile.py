"""No hostile command runs code, reaches a host, or writes outside of the work folder.

Without a server the flags and variables are checked; test_command.py has those that are refused. Where
SGL_TUNE_GHOST_SERVER names the Python of a stock SGLang, each command is started too.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.ghost.build import library
from runtime.ghost.cage import Used, used_by_group
from runtime.ghost.gpus import gpus
from runtime.record.events import Event
from runtime.sglang.command import Checked, checked
from runtime.sglang.server_process import Ghost, Request, ServerBroken, ServerProcess
from tests.ghost.c_running import built
from tests.ghost.hostile_commands import COMMANDS, RAN, Hostile, Yard
from tests.ghost.listening import Listener, listener
from tests.warm.processes import until

__all__ = ["listener"]

_SERVER = os.environ.get("SGL_TUNE_GHOST_SERVER")
with_server = pytest.mark.skipif(not _SERVER, reason="SGL_TUNE_GHOST_SERVER names no server's Python")


@pytest.fixture
def yard(tmp_path: Path, listener: Listener) -> Yard:
    found = Yard(tmp_path, listener.port)
    found.model.mkdir()
    found.outside.mkdir()
    (found.outside / "kept").write_text("kept")
    found.config()
    return found


def check(command: Hostile, yard: Yard) -> Checked:
    return checked(command.argv(yard), command.environment(yard), trust_remote_code=command.trust)


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below `root` with its size and time."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            status = (Path(folder) / name).lstat()
            found[f"{folder}/{name}"] = (status.st_size, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_hostile_is_lost(name: str, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS[name]
    command.prepare(yard)
    monkeypatch.chdir(yard.root)
    before = tree(yard.root)
    found = check(command, yard)
    assert not any(str(yard.outside) in value for value in found.environment.values())
    assert not any("://" in word for word in found.argv)
    assert not any(name.startswith(("PYTHON", "LD_", "HF_")) for name in found.environment)
    assert tree(yard.root) == before


@pytest.fixture(scope="module")
def ghost(tmp_path_factory: pytest.TempPathFactory) -> Ghost:
    assert _SERVER is not None
    (packages,) = (Path(_SERVER).parents[1] / "lib").glob("python3*/site-packages")
    kept = library([packages], tmp_path_factory.mktemp("libraries"))
    return Ghost(kept, "h200", gpus()["h200"].row())


@pytest.fixture(scope="module")
def servers(ghost: Ghost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, ServerProcess]]:
    """Two servers, one of which lets a model's own code run. Each imports SGLang when it is first asked."""
    started: dict[bool, ServerProcess] = {}

    class Started(dict[bool, ServerProcess]):
        def __missing__(self, code: bool) -> ServerProcess:
            work = tmp_path_factory.mktemp("work") / f"code{code}"
            server = ServerProcess(Path(str(_SERVER)), work, ghost, {}, remote_code=code)
            started[code] = self[code] = server.__enter__()
            return self[code]

    yield Started()
    for server in started.values():
        server.__exit__(None, None, None)


@with_server
@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_command_that_is_started_runs_and_reaches_nothing(
    name: str,
    yard: Yard,
    listener: Listener,
    servers: dict[bool, ServerProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = COMMANDS[name]
    command.prepare(yard)
    monkeypatch.chdir(yard.root)
    for variable, value in command.environment(yard).items():
        monkeypatch.setenv(variable, value)  # ours too: nothing of it may reach the server
    found = check(command, yard)
    server = servers[found.remote_code]
    before = tree(yard.root)
    events: list[Event] = []
    request = Request(found.argv, name=name.replace(" ", "-").replace(",", ""))
    record = server.run(request, say=events.append, seconds=120)
    said = server.log(request).read_text(errors="replace")
    print(name, record.ending, [one for one in events if one["event"] == "tried"], said[-2000:])
    assert RAN not in said and RAN not in (server.log(request).parent / "imports.log").read_text()
    assert "reached" not in said
    assert tree(yard.root) == before
    assert listener.came() == 0
    (leader,) = (one["pid"] for one in events if one["event"] == "began")
    until(lambda: used_by_group(leader) == Used(), 60)
    if name == "remote code that is allowed":
        assert said.count("held ") == 5, said
    elif command.ready:
        assert record.ending.how == "ready", record.ending


def test_a_release_that_imports_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    """This Python has no SGLang. It stands for one whose SGLang lacks a module."""
    server = ServerProcess(Path(sys.executable), tmp_path, Ghost(built(), "h200", gpus()["h200"].row()), {})
    with pytest.raises(ServerBroken) as caught, server:
        raise AssertionError("it was imported")
    assert str(caught.value) == "ModuleNotFoundError: No module named 'sglang'"
    assert server._process.poll() is not None
