"""Find the server's own arguments in what people paste: a shell line, wrappers, containers."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations

from sgl_tune.deployment.container import OFFICIAL, Container, docker_run, kubectl_run
from sgl_tune.deployment.file_option import (
    ASSIGNMENT,
    CONTAINERS,
    PYTHON,
    SHELLS,
    WRAPPERS,
    base_name,
    is_program,
)
from sgl_tune.deployment.manifest_yaml import containers_of
from sgl_tune.deployment.model_files import is_hub_id
from sgl_tune.deployment.shell_words import Pasted, Word, filled, manifest_in, set_once, shell_commands
from sgl_tune.errors import UsageError
from sgl_tune.units import shown

_LONGEST_ECHO, _MOST = 80, 20
_MANIFEST = re.compile(r"(?:[ \t]*(?:#[^\n]*|---[ \t]*)?\n)*[ \t]*(?:- )?[A-Za-z_][\w.-]*:(?:[ \t\n]|\Z)")
_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:\.(?:Values|Release|Chart)\b|\$|include |range |if |end |toYaml )"
)  # Helm's
_SERVER_FILE = re.compile(r"(.*/)?sglang/launch_server\.py")
_NO_SERVER = {
    "sglang.bench_one_batch": "it measures batches, without a server's start",
    "sglang.bench_offline_throughput": "it measures an engine of its own",
    "sglang.bench_serving": "it asks a server that runs already",
    "sglang.bench_one_batch_server": "it asks a server, or starts one of its own",
    "sglang_router.launch_router": "it starts a router, and no server",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started. `behind_router`: its data-parallel ranks are separate servers of
    sglang_router."""

    arguments: tuple[Word, ...]
    environment: dict[str, Word] = field(default_factory=dict)
    serve: bool = False
    behind_router: bool = False
    container: Container | None = None

    def within(self, environment: dict[str, Word], container: Container | None = None) -> "Launch":
        merged = {**environment, **self.environment}
        return replace(self, environment=merged, container=self.container or container)


def launch_of(words: Sequence[str]) -> Launch:
    """Return how a server is started. `words`: as a shell passes them, or one string: command or manifest."""
    try:
        return _launch_of(words)
    except RecursionError:
        raise UsageError("the server command stands in too many others", "paste the innermost") from None


def container_of(words: Sequence[str]) -> Container | None:
    return launch_of(words).container if words else None


def _launch_of(words: Sequence[str]) -> Launch:
    if len(words) != 1 or not any(letter.isspace() for letter in words[0].strip()):
        return _launch([Word(word) for word in words])
    text = words[0] if isinstance(words[0], Pasted) else Pasted(words[0])
    if _TEMPLATE.search(text):
        raise UsageError(f"the text {text.where} is a template", "`helm template ... | sgl-tune ... -f -`")
    if _MANIFEST.match(text):
        return _of_manifest(text)
    if (manifest := manifest_in(text)) is not None:
        return _of_manifest(manifest)
    if text.name is not None:
        said = f"-f FILE:{text.name}: the text {text.where} is a script, which has no names"
        raise UsageError(said, "a manifest's containers and sgl-tune.toml's deployments have")
    return launch_of_text(text, text.where)


def _of_manifest(text: Pasted) -> Launch:
    servers, others = list[tuple[Container, Launch]](), list[tuple[Container, UsageError]]()
    for container in containers_of(text):
        try:
            servers.append((container, _inside(container)))
        except UsageError as error:
            others.append((container, error))
    names = [set(container.names) for container, _ in servers]
    picks = {
        _pick(container.names, names) or str(n): n for n, (container, _) in enumerate(servers[:_MOST], 1)
    }
    meant = set(text.name.split("/")) if text.name else set()
    found = [launch for has, (_, launch) in zip(names, servers, strict=True) if meant <= has]
    if text.name in picks:
        found = [servers[picks[text.name] - 1][1]]
    flags = (one.command for one, _ in others if not one.image and " ".join(one.command).startswith("--"))
    if len(found) == 1 and (more := next(flags, None)):
        said = f"the manifest {text.where} adds {_short(shlex.join(more))} to another object's command"
        raise UsageError(said, "write one command: sgl-tune ... -- python3 -m sglang.launch_server ...")
    if len(found) == 1:
        return found[0]
    refusals = [error for container, error in others if meant <= set(container.names)]
    if not found and refusals:
        raise refusals[-1]
    said, file = f"the manifest {text.where}", text.where.removeprefix("in ") if text.file else "FILE"
    way = f"-f {file}:NAME with one of {', '.join(picks)}"
    if found:
        within = f" in {text.name!r}" if text.name else ""
        raise UsageError(f"{said} starts {len(found)} servers{within}", f"name one: {way}")
    if text.name:
        raise UsageError(f"{said} has no server {text.name!r}", way if picks else "leave the name out")
    raise UsageError(f"{said} holds no command", "paste the command of the server")


def _pick(names: Sequence[str], servers: Sequence[set[str]]) -> str | None:
    """Return the first name, or pair of names, that no other server has."""
    pairs = combinations(dict.fromkeys(names), 2)
    for some in chain(((name,) for name in names), pairs):
        if sum(has.issuperset(some) for has in servers) == 1:
            return "/".join(some)
    return None


def given_twice(flag: str, command: Sequence[str], name: str = "") -> UsageError:
    """Return the refusal of a flag beside a server's command. `name`: a deployment of the project file."""
    where = f"{name}'s in the project file" if name else getattr(command[0], "where", "after --")
    into = where.removeprefix("in ") if where.startswith("in ") else "the command"
    return UsageError(f"{flag} is given beside a server command, {where}", f"write it into {into}")


def launch_of_text(text: str, where: str = "after --") -> Launch:
    """Return the only command of a text that starts a server. Exports before it become its environment."""
    exported, once, above = dict[str, Word](), set_once(text), dict[str, str]()
    found: list[Launch] = []
    refusal: UsageError | None = None
    for words in shell_commands(text):
        if words[0] == "$" and len(words) > 1:  # a pasted prompt
            words = words[1:]
        words = [filled(word, above) for word in words]
        above |= {name: once[name] for name in _assignments(words) if name in once}
        if words[0] == "export":
            exported |= _assignments(words[1:])
            continue
        if found and words[0].startswith("-"):
            raise UsageError(
                f"the server command ends before {shown(str(words[0]))}",
                "a backslash continues a line only as its last character",
            )
        try:
            found.append(_launch(words).within(exported))
        except UsageError as error:
            names_it = any(PYTHON.fullmatch(base) or base == "sglang" for base in map(base_name, words))
            refusal = error if refusal is None or names_it else refusal
    if len(found) > 1:
        raise UsageError(f"the text {where} starts {len(found)} servers", "paste the command of one")
    if not found:
        raise refusal or UsageError("the server command is empty")
    return found[0]


def _assignments(words: Sequence[Word]) -> dict[str, Word]:
    return {is_one[1]: word.part(is_one[2]) for word in words if (is_one := ASSIGNMENT.fullmatch(word))}


def _launch(words: Sequence[Word]) -> Launch:
    """Return the launch of a command. Words that begin with a flag are taken as a server's flags."""
    environment: dict[str, Word] = {}
    for index, word in enumerate(words):
        rest = words[index + 1 :]
        if ASSIGNMENT.fullmatch(word):
            environment |= _assignments([word])
        elif word.startswith("-"):
            return Launch(tuple(words[index:]), environment)
        elif not is_program(word):
            raise UsageError(f"{shown(str(word))} starts no SGLang server", _instead_of(str(word)))
        else:
            return _started_by(word, rest).within(environment)
    raise UsageError("the server command sets variables and starts nothing")


def _instead_of(word: str) -> str:
    if word.endswith((".yaml", ".yml", ".sh", ".json")):
        return f"a file is given with -f: -f {shlex.quote(word)}"
    if word.endswith((".log", ".log.gz")) or word.startswith("[20"):  # a file, or a line of one
        name = shlex.quote(word) if word[0] != "[" else "FILE"
        return f"a server's log is read by sgl-tune mem-report --log {name}"
    if is_hub_id(word) or word.startswith(("/", "./")):
        return f"a model is given by --model-path {shlex.quote(word)}, a server by its whole command after --"
    return "give the whole command, after --: python -m sglang.launch_server --model-path ..."


def _started_by(program: Word, rest: Sequence[Word]) -> Launch:
    base = base_name(program)
    if base in SHELLS:
        return _shell(program, rest)
    if base in CONTAINERS or base == "kubectl":
        container = (kubectl_run if base == "kubectl" else docker_run)(program, rest)
        return _inside(container)
    if base in WRAPPERS:
        return _wrapped(program, rest)
    if base == "sglang":
        if list(rest[:1]) == ["serve"]:
            return Launch(tuple(rest[1:]), serve=True)
        raise _none(program, rest)
    return _python(program, rest)


def _inside(container: Container) -> Launch:
    if not container.command:
        raise UsageError(f"{container.image or 'the container'}: no command follows the image")
    bare = container.command[0].startswith("-")
    if bare and "sglang" in (container.image or "") and not OFFICIAL.search(container.image or ""):
        said = f"{container.image} is taken to start sglang.launch_server"
        container = replace(container, assumed=(*container.assumed, said))
    elif bare:
        raise UsageError(
            f"after the image stands {container.command[0]}, a flag of the image's own program",
            "paste the command that it runs: python3 -m sglang.launch_server ...",
        )
    return _launch(container.command).within(dict(container.environment), container)


def _wrapped(program: Word, rest: Sequence[Word]) -> Launch:
    """Return the launch behind a wrapper, whose own flags end at a word that can start a server."""
    for index, word in enumerate(rest):
        if base_name(program) in ("uv", "poetry") and word in ("-m", "--module"):
            return _python(program, rest[index:])
        is_environment = base_name(word) == "sglang" and list(rest[index + 1 : index + 2]) != ["serve"]
        if not is_environment and (is_program(word) or ASSIGNMENT.fullmatch(word)):
            return _launch(rest[index:])
    raise _none(program, rest)


def _shell(program: Word, rest: Sequence[Word]) -> Launch:
    for index, word in enumerate(rest):
        if re.fullmatch(r"-[a-z]*c", word) and index + 1 < len(rest):
            return launch_of_text(rest[index + 1])
    said = f"{_short(' '.join([program, *rest[:2]]))}: a script is not read"
    raise UsageError(said, "paste the command that it runs, or name it: -f FILE")


def _python(program: Word, rest: Sequence[Word]) -> Launch:
    index = 0
    while index < len(rest) and rest[index].startswith("-") and rest[index] not in ("-m", "--module"):
        if re.fullmatch(r"-[a-zA-Z]*m", rest[index]):
            break
        index += 2 if rest[index] in ("-X", "-W") else 1
    if index < len(rest) and _SERVER_FILE.fullmatch(rest[index]):
        return Launch(tuple(rest[index + 1 :]))
    module = rest[index + 1] if index + 1 < len(rest) and rest[index].startswith("-") else ""
    arguments = tuple(rest[index + 2 :])
    if module == "sglang.launch_server":
        return Launch(arguments)
    if module == "sglang_router.launch_server":
        return Launch(_without_router_flags(arguments), behind_router=True)
    raise _none(program, rest, str(module))


def _without_router_flags(arguments: Sequence[Word]) -> tuple[Word, ...]:
    """Remove the router's flags, which begin with --router-, and their values."""
    kept, drops = [], False
    for word in arguments:
        if word.startswith("--"):
            drops = word.startswith("--router-")
        if not drops:
            kept.append(word)
    return tuple(kept)


def _none(program: Word, rest: Sequence[Word], module: str = "") -> UsageError:
    said = _short(" ".join([program, *rest[:2]]))
    why = f": {_NO_SERVER[module]}" if module in _NO_SERVER else ""
    return UsageError(
        f"{said} starts no SGLang server{why}",
        "sgl-tune reads `python -m sglang.launch_server ...` and `sglang serve ...`",
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_ECHO else f"{text[:_LONGEST_ECHO]}..."
