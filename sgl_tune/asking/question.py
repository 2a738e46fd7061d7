"""A question to a server: its flags and variables, as the user gave them, and a GPU of our table."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.ghost.gpus import Gpu, find, gpus
from runtime.sglang.releases import NEWEST, Release
from runtime.sglang.tactics import Tactics
from sgl_tune.deployment.flag_names import spelled
from sgl_tune.deployment.launch import given_twice, launch_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.server_command import arguments_of, check_expanded
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.servers.server import Server

MODEL_FLAGS = ("--model-path", "--model")


@dataclass(frozen=True)
class Question:
    """A question. `argv`: SGLang's flags. `total_bytes`: the GPU's memory, if not the table's.
    `taken_bytes`: the part that other processes hold. `title`: the model as typed. `until`: the start
    stops at "arguments" or "gates"; None: at its end. `tactics`: the rank files that it finds; None: no
    files."""

    server: Server
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    gpu: Gpu
    total_bytes: int | None = None
    taken_bytes: int = 0
    rank: int = 0
    title: str = ""
    until: str | None = None
    tactics: Tactics | None = None

    @property
    def model(self) -> str:
        return value_of(self.argv, MODEL_FLAGS) or ""

    def with_flags(self, flags: Sequence[str]) -> "Question":
        """Return the same start with these flags at the end, where they win over earlier ones."""
        return replace(self, argv=(*self.argv, *flags))


def question_of(
    server: Server,
    flags: ServerFlags,
    command: Sequence[str],
    total_bytes: int | None = None,
    taken_bytes: int = 0,
) -> Question:
    """Return the question that our own options ask, or that the server command (or manifest) after `--`
    asks."""
    launch = launch_of(command) if command else None
    if launch and launch.behind_router:
        raise UsageError(
            "sglang_router.launch_server starts several servers", "paste the command of one of them"
        )
    named = launch.container.agreed_gpu(flags.target.gpu) if launch and launch.container else flags.target.gpu
    gpu = gpu_of(named or next((one.name for one in local_gpus() if find(one.name)), None))
    argv, environment = argv_of(flags, command, NEWEST._replace(version=server.sglang))
    model = value_of(argv, MODEL_FLAGS)
    if model is None:
        raise UsageError("the server command names no model", "add --model-path FOLDER")
    if taken_bytes >= (total_bytes or gpu.total_bytes):
        raise UsageError("--taken leaves nothing of the GPU", "say how much of it other processes hold")
    return Question(server, tuple(argv), environment, gpu, total_bytes, taken_bytes, title=model)


def argv_of(flags: ServerFlags, command: Sequence[str], release: Release) -> tuple[list[str], dict[str, str]]:
    """Return the server's flags, as the release spells them, and its variables. A folder that a container
    mounts is replaced by this machine's folder."""
    argv, environment = server_flags(flags, release), dict[str, str]()
    if command:
        if argv:
            raise given_twice(argv[0], command)
        launch = launch_of(command)
        check_expanded(launch)
        argv = [str(word) for word in arguments_of(launch)]
        if launch.container is not None:
            outside = launch.container.outside
            argv = [outside(word) or word if word.startswith("/") else word for word in argv]
        environment = {name: str(word) for name, word in launch.environment.items()}
    if value_of(argv, MODEL_FLAGS) is None and argv and not argv[0].startswith("-"):
        argv = ["--model-path", *argv]
    return argv, environment


def server_flags(flags: ServerFlags, release: Release) -> list[str]:
    """Return the server's flags as the release spells them."""
    words: list[str] = []
    for field, value in flags.given().items():
        if value is not False:
            text = " ".join(map(shlex.quote, map(str, value if isinstance(value, tuple | list) else [value])))
            words += shlex.split(spelled(release, field, True if value is True else text))
    return words


def value_of(argv: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of a flag. If it is given twice, the last counts, as in argparse."""
    found = None
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else argv[place + 1] if place + 1 < len(argv) else None
    return found


def replaced(argv: Sequence[str], flags: Collection[str], words: Sequence[str]) -> tuple[str, ...]:
    """Return the command with `words` instead of these flags and their values, or with `words` appended."""
    found, rest, skips = list[str](), list(words), False
    for word in argv:
        if word.startswith("-"):
            skips = word.partition("=")[0] in flags
            found += rest if skips else [word]
            rest = [] if skips else rest
        elif not skips:
            found.append(word)
    return (*found, *rest)


def gpu_of(name: str | None) -> Gpu:
    """Return the row of the GPU table that --gpu names."""
    if name is None:
        raise UsageError("no GPU is named, and there is none here", "name the target: --gpu h200")
    if (found := find(name)) is None:
        raise UsageError(
            f"the GPU {name[:80]} is not in the ghost's table",
            f"one of {', '.join(sorted(gpus()))}; --server core asks the runtime core, which knows others",
        )
    return found
