"""Containers of a manifest: Kubernetes objects, a Compose file, or one container cut out of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sgl_tune.deployment.container import PRODUCT, Container, Mount, host_folder
from sgl_tune.deployment.shell_words import Pasted, Word, shell_commands
from sgl_tune.deployment.yaml_text import read_yaml
from sgl_tune.errors import UsageError

_DEEPEST = 30
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")  # Kubernetes'
_COMPOSE_REFERENCE = re.compile(r"(?<!\$)\$(?:\{[^}]*\}|[A-Za-z_]\w*)")


def containers_of(text: Pasted) -> list[Container]:
    where = f"the manifest {text.where}"
    found = [one for document in read_yaml(text, where) for one in _containers(document, where, _DEEPEST)]
    return [container.counted_from(text.folder) for container in found]


def _containers(value: Any, where: str, depth: int) -> Iterator[Container]:
    if depth == 0:
        raise UsageError(f"{where} is nested more than {_DEEPEST} deep")
    if isinstance(value, list):
        for item in value:
            yield from _containers(item, where, depth - 1)
    if not isinstance(value, Mapping):
        return
    services = value.get("services")
    if isinstance(services, Mapping):
        yield from (_of_service(item) for item in services.values() if isinstance(item, Mapping))
    elif isinstance(value.get("containers"), list):
        volumes = _named(value.get("volumes"))
        gpu = _product(value)
        yield from (_of_pod(item, volumes, gpu) for item in value["containers"] if isinstance(item, Mapping))
    elif isinstance(value.get("command"), (list, str)) or isinstance(value.get("args"), list):
        yield _of_pod(value, {}, None) if "args" in value or "env" in value else _of_service(value)
    else:
        for item in value.values():
            yield from _containers(item, where, depth - 1)


def _named(items: Any) -> dict[str, Mapping[str, Any]]:
    return {str(item.get("name")): item for item in _mappings(items)}


def _mappings(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _product(pod: Mapping[str, Any]) -> str | None:
    """What its nodes must have, where that is one product: a selector, or a required affinity."""
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


def _of_pod(item: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]], gpu: str | None) -> Container:
    environment: dict[str, Word] = {}
    for name, entry in _named(item.get("env")).items():
        environment[name] = _value_of(entry, environment)
    words = [*_list(item.get("command")), *_list(item.get("args"))]
    mounts = [
        Mount(_host_path(volumes.get(str(mount.get("name")), {})), str(mount.get("mountPath", "")))
        for mount in _mappings(item.get("volumeMounts"))
    ]
    command = tuple(_referring(word, environment) for word in words)
    return Container(_text(item.get("image")), command, environment, tuple(mounts), gpu=gpu)


def _value_of(entry: Mapping[str, Any], before: Mapping[str, Word]) -> Word:
    value = entry.get("value")
    word = _referring("" if value is None else str(value), before)
    word.expands = f"${entry.get('name')}" if "valueFrom" in entry else word.expands
    return word


def _host_path(volume: Mapping[str, Any]) -> str | None:
    path = volume.get("hostPath")
    source = path.get("path") if isinstance(path, Mapping) else None
    return source if isinstance(source, str) else None


def _referring(text: str, environment: Mapping[str, Word]) -> Word:
    """`$(NAME)` is what the manifest's own env says."""

    def value(found: re.Match[str]) -> str:
        known = environment.get(found[1])
        return found[0] if known is None or known.expands else str(known)

    word = Word(_REFERENCE.sub(value, text))
    left = _REFERENCE.search(word)
    word.expands = left[0] if left and "\n" not in word and " " not in word else ""
    return word


def _of_service(item: Mapping[str, Any]) -> Container:
    words = [*_compose_words(item.get("entrypoint")), *_compose_words(item.get("command"))]
    return Container(
        _text(item.get("image")), tuple(words), _compose_environment(item.get("environment")),
        tuple(_compose_mounts(item.get("volumes"))),
        tuple(f"env_file {name}" for name in _list(item.get("env_file"))),
    )  # fmt: skip


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
            yield Mount(host_folder(str(item.get("source", ""))), str(item.get("target", "")))
        else:
            source, _, target = str(item).partition(":")
            yield Mount(host_folder(source), target.partition(":")[0])


def _list(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(item) for item in value] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
