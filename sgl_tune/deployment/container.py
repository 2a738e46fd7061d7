"""Read `docker run` and its likes: image, environment, mounts and the inner command. Nothing is run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runtime.server.gpus import find_gpu
from runtime.sglang.releases import NEWEST
from sgl_tune.deployment.shell_words import Word, shell_commands
from sgl_tune.errors import UsageError

HOME, PRODUCT = "/root", "nvidia.com/gpu.product"
# Flags of `docker run` and `podman run` without a value; all others have one.
_SWITCHES = (
    "detach", "init", "interactive", "no-healthcheck", "oom-kill-disable", "privileged", "publish-all",
    "quiet", "read-only", "rm", "sig-proxy", "tty", "disable-content-trust", "replace", "rootful",
    "no-hosts", "env-host", "http-proxy", "tls-verify", "rmi", "no-hostname",
)  # fmt: skip
# Warnings that begin so are about the folder of the caches: they do not matter if nothing is tuned.
CACHE_FOLDER = "the server's cache folder "
OFFICIAL = re.compile(r"(^|/)lmsysorg/")  # these images run the command that they are given
_OF_HOME = re.compile(r"^\$(?:HOME|\{HOME\})(?=/|$)")
_QUIET = ("export", "set", "ulimit", "cd", "echo")  # commands of a script that fill no folder
_SHORT_SWITCHES = frozenset("ditPq")
_TAG = re.compile(r"v?((\d+)\.\d+\.\d+(?:\.?post\d+)?)(?:\.?rc\d+)?(?:[-_.].*)?")


@dataclass(frozen=True, slots=True)
class Mount:
    """A container's mount. `source`: None if it is no folder of this machine. `where`: "on" what it lies, if
    that may be another machine's. `starts_empty`: each start of the container finds it empty."""

    source: str | None
    target: str
    where: str = ""
    starts_empty: bool = False

    @classmethod
    def of(cls, source: str, target: str) -> Mount:
        """Return the mount that Docker or Compose makes."""
        source = _OF_HOME.sub("~", source)
        where = f"on volume {source}" if source else "on an anonymous volume"
        return cls(host_folder(source), target, "" if host_folder(source) else where, not source)

    @classmethod
    def short(cls, text: str) -> Mount:
        """Return the mount of SOURCE:TARGET[:OPTIONS]; a target alone is an anonymous volume."""
        source, colon, target = text.partition(":")
        return cls.of(source, target.partition(":")[0]) if colon else cls.of("", source)

    def counted_from(self, folder: str) -> Mount:
        if self.source is None or not self.source.startswith("."):
            return self
        return replace(self, source=posixpath.normpath(posixpath.join(folder, self.source)))


@dataclass(frozen=True, slots=True)
class Container:
    """A container that starts a server. `environment`: all variables that the server sees. `gpu`: the GPU
    that a manifest requests from its node."""

    image: str | None
    command: tuple[Word, ...]
    environment: Mapping[str, Word] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    unread: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    gpu: str | None = None
    names: tuple[str, ...] = ()

    @property
    def release(self) -> str | None:
        """Return the SGLang release in the tag of an image that is named sglang, or None. A private image may
        be tagged with numbers of its own, so there the first number must be SGLang's."""
        name, _, tag = (self.image or "").partition("@")[0].rpartition(":")
        folder, _, base = name.rpartition("/")
        found = _TAG.fullmatch(tag) if base == "sglang" else None
        if found and folder.rpartition("/")[2] != "lmsysorg" and int(found[2]) != NEWEST.number[0]:
            return None
        return found[1].replace("post", ".post").replace("..", ".") if found else None

    def agreed_gpu(self, named: str | None) -> str | None:
        """Return the chosen GPU, else the manifest's; raise UsageError if they differ, or for a slice."""
        said = f"the manifest's {PRODUCT} is {self.gpu}"
        if self.gpu and "-MIG-" in self.gpu.upper():
            raise UsageError(f"{said}: a slice of a GPU is not modelled", "name a whole GPU's product there")
        if named and self.gpu and find_gpu(self.gpu) != find_gpu(named):
            raise UsageError(f"the GPU is {named}, and {said}", "use that GPU, or change the manifest")
        return named or self.gpu

    @property
    def cache_folder(self) -> str:
        """Return SGLang's default cache folder in the container."""
        return posixpath.join(self.environment.get("HOME", HOME), ".cache/sglang")

    def mount_of(self, path: str) -> Mount | None:
        """Return the innermost mount that contains `path`."""
        over = [m for m in self.mounts if f"{path}/".startswith(f"{m.target.rstrip('/')}/")]
        return max(over, key=lambda mount: len(mount.target), default=None)

    def elsewhere(self, path: str) -> Mount | None:
        """Return what holds `path`, if that is not on this machine; a mount of / for the image itself."""
        mount, image = self.mount_of(path), self.image
        if mount is None:
            where = f"in no mount, only in the {f'image {image}' if image else 'running container'}"
            mount = Mount(None, "/", where, starts_empty=bool(OFFICIAL.search(image or "")))
        elif mount.source is not None and (not mount.where or Path(mount.source).is_dir()):
            return None
        return replace(mount, starts_empty=mount.starts_empty and not self._does_more)

    @property
    def _does_more(self) -> bool:
        """Whether its command is a script that also does something else, such as filling a folder."""
        script = self.command[-1] if self.command and self.command[0].endswith("sh") else ""
        return sum(words[0] not in _QUIET for words in shell_commands(script)) > 1

    def counted_from(self, folder: str) -> Container:
        """Return the container with relative mounts made relative to the folder of its file."""
        return replace(self, mounts=tuple(mount.counted_from(folder) for mount in self.mounts))

    def outside(self, path: str) -> str | None:
        """Return the path on this machine of the container's `path`, or None."""
        mount = self.mount_of(path)
        if mount is None or mount.source is None:
            return None
        rest = path[len(mount.target.rstrip("/")) :].lstrip("/")
        source = str(Path(mount.source).expanduser())
        return posixpath.join(source, rest) if rest else source


def docker_run(program: Word, words: Sequence[Word]) -> Container:
    rest = list(words)
    if rest[:1] == ["container"]:
        rest.pop(0)
    verb = rest.pop(0) if rest else Word()
    if verb not in ("run", "create", "exec"):
        raise UsageError(
            f"{program} {verb} starts no container", f"paste {program} run ... IMAGE COMMAND ..."
        )
    flags = list(_flags(rest))
    if not rest:
        raise UsageError(f"{program} {verb}: no image follows its flags")
    image = rest.pop(0)
    entry = [value for name, value in flags if name == "entrypoint"]
    return Container(
        image=None if verb == "exec" else str(image),
        command=(*entry[-1:], *rest),
        environment=dict(_variables(flags)),
        mounts=tuple(_mounts(flags)),
        unread=tuple(f"--env-file {value}" for name, value in flags if name == "env-file"),
    )


def kubectl_run(program: Word, words: Sequence[Word]) -> Container:
    before = list(words[: words.index(Word("--"))] if "--" in words else words)
    command = words[len(before) + 1 :]
    if before[:1] not in (["run"], ["exec"]) or not command:
        raise UsageError(f"{program}: no command follows --", "paste the container's command, or its YAML")
    image, environment = None, dict[str, Word]()
    for word, following in zip(before, [*before[1:], Word()], strict=True):
        name, equals, value = word.partition("=")
        value = value if equals else str(following)
        if name == "--image":
            image = value
        elif name == "--env":
            environment[value.partition("=")[0]] = word.part(value.partition("=")[2])
    return Container(image, tuple(command), environment)


def _flags(rest: list[Word]) -> Iterator[tuple[str, Word]]:
    """Yield the flags with their values, and remove them from the front of `rest`."""
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            return
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            yield from _short(word, rest)
        elif equals or name[2:] in _SWITCHES:
            yield name[2:], word.part(value)
        else:
            yield name[2:], rest.pop(0) if rest else Word()


_LONG = {"e": "env", "v": "volume"}


def _short(word: Word, rest: list[Word]) -> Iterator[tuple[str, Word]]:
    """Yield short flags: `-it`, `-e A=b`, `-eA=b`."""
    for index, letter in enumerate(word[1:], 2):
        if letter in _SHORT_SWITCHES:
            continue
        attached = word[index:].removeprefix("=")
        yield _LONG.get(letter, letter), word.part(attached) if attached else rest.pop(0) if rest else Word()
        return


def _variables(flags: Sequence[tuple[str, Word]]) -> Iterator[tuple[str, Word]]:
    """Yield variables. `-e NAME` alone takes its value from the machine that starts the container."""
    for name, value in flags:
        if name == "env":
            variable, equals, text = value.partition("=")
            taken = value.part(text)
            taken.expands = value.expands if equals else f"${variable}"
            yield variable, taken


def _mounts(flags: Sequence[tuple[str, Word]]) -> Iterator[Mount]:
    for name, value in flags:
        if name == "volume":
            yield Mount.short(value)
        elif name == "mount":
            parts = dict(part.partition("=")[::2] for part in value.split(","))
            source = parts.get("source") or parts.get("src") or ""
            target = parts.get("target") or parts.get("dst") or parts.get("destination") or ""
            yield Mount.of(source, target)


def host_folder(source: str) -> str | None:
    """Return a folder of this machine, or None: a name without a slash is a volume, and `$` needs a shell."""
    is_path = source.startswith(("/", "./", "../", "~/")) or source in (".", "..")
    return source if is_path and "$" not in source else None
