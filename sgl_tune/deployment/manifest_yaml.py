"""Find the containers in a manifest: Kubernetes objects, a Compose file, or a single container. Its YAML is
read by the reader that SGLang uses, up to a limited size."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sgl_tune.deployment.container import PRODUCT, Container, Mount
from sgl_tune.deployment.shell_words import Pasted, Word, shell_commands
from sgl_tune.errors import UsageError

if TYPE_CHECKING:
    from yaml import Node, SafeLoader

_DEEPEST = 30
_GROUPS = {"leaderWorkerTemplate": "LWS", "leaderWorkerPattern": "RBG_LWP"}  # the prefix of its variables
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")  # Kubernetes's references
_COMPOSE_DEFAULT = re.compile(r"\$\$|\$\{[A-Za-z_]\w*:?-([^{}$]*)\}")
_COMPOSE_REFERENCE = re.compile(r"(?<!\$)\$(?:\{[^}]*\}|[A-Za-z_]\w*)")
LARGEST = 1 << 18
_MOST_VALUES = 40_000


class _Inside(NamedTuple):
    """The objects around a container, the keys on the way to it, and the variables that they set in it."""

    where: str
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    given: Mapping[str, Word] = MappingProxyType({})

    def named(self, name: Any) -> _Inside:
        return self._replace(names=(*self.names, name)) if isinstance(name, str) else self

    @property
    def all_names(self) -> tuple[str, ...]:
        return (*self.names, *self.keys)


def containers_of(text: Pasted) -> list[Container]:
    where = f"the manifest {text.where}"
    inside = _Inside(where)
    found = [one for document in read_yaml(text, where) for one in _containers(document, inside, _DEEPEST)]
    return [container.counted_from(text.folder) for container in found]


def _containers(value: Any, inside: _Inside, depth: int) -> Iterator[Container]:
    if depth == 0:
        raise UsageError(f"{inside.where} is nested more than {_DEEPEST} deep")
    if isinstance(value, list):
        for item in value:
            yield from _containers(item, inside, depth - 1)
    if not isinstance(value, Mapping):
        return
    metadata, services = value.get("metadata"), value.get("services")
    inside = inside.named((metadata if isinstance(metadata, Mapping) else value).get("name"))
    for kind, prefix in _GROUPS.items():
        if isinstance(group := value.get(kind), Mapping):
            inside = inside._replace(given=_given_to_leader(inside, group.get("size", 1), prefix))
            leader = group.get("leaderTemplate") or group.get("template") or group.get("workerTemplate")
            value = {"leader": leader}
    if {"leader", "worker"} <= value.keys():  # one server: the workers' command is the leader's
        value = {"leader": value["leader"]}
    if isinstance(services, Mapping):
        for name, item in services.items():
            if isinstance(item, Mapping):
                used: dict[str, str] = {}
                within = inside.named(name)._replace(keys=("services",))
                service = _of_service(_with_defaults(item, used), within)
                told = (f"{one} is {value}, the default in the manifest" for one, value in used.items())
                yield replace(service, assumed=tuple(told))
    elif isinstance(value.get("containers"), list):
        yield from (_of_pod(item, value, inside) for item in _mappings(value["containers"]))
    elif isinstance(value.get("command"), (list, str)) or isinstance(value.get("args"), list):
        is_pods = "args" in value or "env" in value
        yield _of_pod(value, {}, inside) if is_pods else _of_service(value, inside)
    else:
        for key, item in value.items():
            within = inside._replace(keys=(*inside.keys, str(key)))
            yield from _containers(item, within, depth - 1)


def _given_to_leader(inside: _Inside, size: Any, prefix: str) -> dict[str, Word]:
    """Return the variables that a group of pods sets in the first pod of its first group."""
    name = inside.names[-1] if inside.names else ""
    given = {"WORKER_INDEX": "0", "GROUP_SIZE": str(size) if type(size) is int else ""}
    given["LEADER_ADDRESS"] = f"{name}-0.{name}" if name else ""
    return {f"{prefix}_{variable}": Word(value) for variable, value in given.items() if value}


def _named(items: Any) -> dict[str, Mapping[str, Any]]:
    return {str(item.get("name")): item for item in _mappings(items)}


def _mappings(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _product(pod: Mapping[str, Any]) -> str | None:
    """Return the one GPU product that the pod's nodes must have, by selector or required affinity."""
    selector = pod.get("nodeSelector")
    told = [selector.get(PRODUCT)] if isinstance(selector, Mapping) else []
    terms = pod.get("affinity")
    for name in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        terms = terms.get(name) if isinstance(terms, Mapping) else None
    for term in _mappings(terms):
        for rule in _mappings(term.get("matchExpressions")):
            if rule.get("key") == PRODUCT and rule.get("operator") == "In":
                told += _list(rule.get("values"))
    named = {one for one in told if isinstance(one, str) and one}
    return named.pop() if len(named) == 1 else None


def _of_pod(item: Mapping[str, Any], pod: Mapping[str, Any], inside: _Inside) -> Container:
    environment = dict(inside.given)
    for name, entry in _named(item.get("env")).items():
        environment[name] = _value_of(entry, environment)
    words = [*_list(item.get("command")), *_list(item.get("args"))]
    mounts = [_mount(mount, pod, item) for mount in _mappings(item.get("volumeMounts"))]
    command = tuple(_referring(word, environment) for word in words)
    image, names = _text(item.get("image")), inside.named(item.get("name")).all_names
    sources = [ref for one in _mappings(item.get("envFrom")) for ref in _mappings(list(one.values()))]
    unread = tuple(f"envFrom {ref.get('name')}" for ref in sources)
    return Container(image, command, environment, tuple(mounts), unread, gpu=_product(pod), names=names)


def _value_of(entry: Mapping[str, Any], before: Mapping[str, Word]) -> Word:
    value = entry.get("value")
    word = _referring("" if value is None else str(value), before)
    word.expands = f"${entry.get('name')}" if "valueFrom" in entry else word.expands
    return word


def _mount(mount: Mapping[str, Any], pod: Mapping[str, Any], container: Mapping[str, Any]) -> Mount:
    """Return a pod's mount. An emptyDir that another container mounts, too, may be filled by it."""
    name, target = str(mount.get("name")), str(mount.get("mountPath", ""))
    volume = _named(pod.get("volumes")).get(name, {})
    kind = next((key for key in volume if key != "name"), "volume")
    given = volume[kind] if isinstance(volume.get(kind), Mapping) else {}
    called = next((given[key] for key in ("claimName", "path", "reference") if key in given), name)
    others = [*_mappings(pod.get("initContainers")), *_mappings(pod.get("containers"))]
    others = [one for one in others if one is not container and name in _named(one.get("volumeMounts"))]
    beside = ", ".join(str(one.get("name")) for one in others)
    where = f"on {kind} {called}" + (f" (mounted by {beside}, too)" if others else "")
    path, below = (given.get("path") if kind == "hostPath" else None), str(mount.get("subPath") or "")
    source = posixpath.join(path, below) if isinstance(path, str) else None
    return Mount(source, target, where, kind == "emptyDir" and not others)


def _referring(text: str, environment: Mapping[str, Word]) -> Word:
    """Return the text with `$(NAME)` replaced by the manifest's own env."""

    def value(found: re.Match[str]) -> str:
        known = environment.get(found[1])
        return found[0] if known is None or known.expands else str(known)

    word = Word(_REFERENCE.sub(value, text))
    left = _REFERENCE.search(word)
    word.expands = left[0] if left and "\n" not in word and " " not in word else ""
    return word


def _of_service(item: Mapping[str, Any], inside: _Inside) -> Container:
    words = [*_compose_words(item.get("entrypoint")), *_compose_words(item.get("command"))]
    return Container(
        _text(item.get("image")), tuple(words), _compose_environment(item.get("environment")),
        tuple(_compose_mounts(item.get("volumes"))),
        tuple(f"env_file {name}" for name in _list(item.get("env_file"))), names=inside.all_names,
    )  # fmt: skip


def _with_defaults(value: Any, used: dict[str, str]) -> Any:
    """Replace `${TP:-2}` in a Compose file by 2, assuming that the starting environment does not set TP."""

    def default(found: re.Match[str]) -> str:
        return found[0] if found[1] is None else used.setdefault(found[0], found[1])

    if isinstance(value, str):
        return _COMPOSE_DEFAULT.sub(default, value)
    if isinstance(value, Mapping):
        return {name: _with_defaults(item, used) for name, item in value.items()}
    return [_with_defaults(item, used) for item in value] if isinstance(value, list) else value


def _compose_words(value: Any) -> list[Word]:
    if isinstance(value, str):
        return [
            word for words in shell_commands(value.replace("\\\n", " ").replace("\n", " ")) for word in words
        ]
    return [_compose_word(text) for text in _list(value)]


def _compose_word(text: str) -> Word:
    word = Word(text.replace("$$", "$"))
    left = _COMPOSE_REFERENCE.search(text)
    word.expands = left[0] if left else ""
    return word


def _compose_environment(value: Any) -> dict[str, Word]:
    if isinstance(value, Mapping):
        return {str(name): _compose_word("" if text is None else str(text)) for name, text in value.items()}
    pairs = [text.partition("=") for text in _list(value)]
    return {name: _compose_word(text if equals else f"${name}") for name, equals, text in pairs}


def _compose_mounts(value: Any) -> Iterator[Mount]:
    for item in value if isinstance(value, list) else []:
        if isinstance(item, Mapping):
            yield Mount.of(str(item.get("source", "")), str(item.get("target", "")))
        else:
            yield Mount.short(str(item))


def _list(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(item) for item in value] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def read_yaml(text: str, where: str) -> list[Any]:
    """Return the documents of a YAML text; refuse tags that build objects, and endless aliases."""
    import yaml  # takes 10 % of a command's start, and few commands need it

    if len(text) > LARGEST:
        raise UsageError(f"{where} has {len(text)} letters: {LARGEST} are the most", "give one document")
    try:
        loader = yaml.SafeLoader(text)
        return list(_documents(loader, where))
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is not YAML: {' '.join(str(error).split())[:300]}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{where} cannot be read: {str(error)[:200]}") from None


def _documents(loader: SafeLoader, where: str) -> Iterator[Any]:
    """Yield the documents. Each is counted before its values are made, because merge keys copy values."""
    left = _MOST_VALUES
    while loader.check_node():
        node = loader.get_node()
        left -= _values(node, left)
        if left < 0:
            raise UsageError(f"{where} holds more than {_MOST_VALUES} values, its aliases followed")
        yield loader.construct_document(node)


def _values(root: Node | None, most: int) -> int:
    """Count a document's values with each alias written out; any number above `most` if there are more."""
    sizes: dict[int, int] = {}
    entered: set[int] = set()
    waiting = [root] if root is not None else []
    while waiting:
        node = waiting[-1]
        inner = _inner(node)
        if id(node) in sizes:
            waiting.pop()
        elif id(node) not in entered:
            entered.add(id(node))
            if any(id(item) in entered and id(item) not in sizes for item in inner):
                return most + 1  # an alias that contains itself
            waiting += inner
        else:
            sizes[id(node)] = min(1 + sum(sizes[id(item)] for item in inner), most + 1)
            waiting.pop()
    return sizes[id(root)] if root is not None else 0


def _inner(node: Node) -> list[Node]:
    """Return a node's children; none for a scalar."""
    if node.id == "mapping":
        return [item for pair in node.value for item in pair]
    return list(node.value) if node.id == "sequence" else []
