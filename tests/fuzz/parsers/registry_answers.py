"""What a registry answers: manifests, indexes, tags, headers, tokens; and what `docker login` kept for it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from sgl_tune.ship.remote import registry, registry_client
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json, of_lines
from tests.fuzz.parser import Parser, Wrong, command
from tests.sgl_tune.ship.hostile import IMAGE, INDEX, Asked, Good, answer, digest, hostile

_GOOD = Good()
_LINE = {
    "mediaType": IMAGE,
    "digest": digest(_GOOD.raw),
    "size": len(_GOOD.raw),
    "platform": {"os": "linux", "architecture": "amd64"},
    "annotations": _GOOD.manifest["annotations"],
}
_INDEX = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [_LINE, _LINE]}).encode()
_TAGS = b'{"name": "caches/glm", "tags": ["1", "2"]}'
_BEARER = 'Bearer realm="http://localhost:1/token",service="here",scope="repository:caches/glm:pull"'
_HEADERS = answer(401, b"{}", WWW_Authenticate=_BEARER, Link='</v2/x>; rel="next"', Retry_After="1")
_LOGIN = json.dumps({"auths": {"localhost": {"auth": "YTpi"}}, "credHelpers": {"x": "y"}}).encode()
_SEEDS = (_GOOD.raw, _INDEX, _TAGS, _HEADERS, _LOGIN)


class _Made(NamedTuple):
    which: int
    raw: bytes


def _make(random: Random) -> _Made:
    which = random.randrange(len(_SEEDS))
    ways = (of_bytes, of_lines) if which == 3 else (of_json, of_json, duplicated_key, of_bytes)
    return _Made(which, mutated((_SEEDS[which],), random, *ways))


def _read(made: _Made, folder: Path) -> None:
    (folder / "config.json").write_bytes(made.raw if made.which == 4 else b"{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_CONFIG", str(folder))
        patch.setattr(registry_client, "ATTEMPTS", 2)
        patch.setattr(registry_client, "PAUSE_SECONDS", 0.0)
        patch.setattr(registry, "SETTLE_SECONDS", 0.0)
        _pull(made, folder)


def _pull(made: _Made, folder: Path) -> None:
    def answered(asked: Asked) -> bytes:
        if made.which == 3:
            return made.raw
        return answer(200, made.raw, Content_Type=(IMAGE, INDEX)[made.which] if made.which < 2 else "")

    deeds = {2: {"GET_tags": answered}, 4: {}}.get(made.which, {"GET_manifests_1": answered})
    with hostile(_GOOD, **deeds) as server:
        if made.which == 4:  # the key has no port
            server.deeds["GET /v2/"] = lambda asked: answer(401, WWW_Authenticate='Basic realm="x"')
        words = ("pull", f"{server.url}{'' if made.which == 2 else ':1'}", "--plain-http", "--timeout", 0.2)
        command(*words, "--list", "--format", "json")
        ran = command(*words, "-o", folder / "out.tar.gz")
        if ran.code == 0 and (folder / "out.tar.gz").read_bytes() != _GOOD.layer:
            raise Wrong("another bundle than the manifest's was kept")


PARSER = Parser(_make, _read)
