"""The password for a registry goes to that registry and to nobody else, whoever names an address."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("oras")

from tests.sgl_tune.running import Ran, run_here
from tests.sgl_tune.ship.hostile import IMAGE, Asked, Deed, Good, Hostile, answer, hostile
from tests.sgl_tune.ship.registries import certificates, log_in

BASIC = f"Basic {base64.b64encode(b'carol:secret').decode()}"
ASKS = answer(401, WWW_Authenticate='Basic realm="here"')
TWO_READINGS = {
    "a backslash before the user": r"https://{thief}\@{home}/x",
    "a backslash after the host": r"https://{home}\@{thief}/x",
    "a backslash without a scheme": r"//{thief}\@{home}/x",
    "backslashes for slashes": r"https:\\{thief}/x",
    "a user": "https://{home}@{thief}/x",
    "a user and a password": "https://a:b@{home}/x",
    "a fragment before the user": "https://{thief}#@{home}/x",
    "a query before the user": "https://{thief}?@{home}/x",
    "a tab in the host": "https://{home}\t@{thief}/x",
    "a space in the host": "https://{thief} @{home}/x",
    "a host in percents": "https://%31%32%37.0.0.1:{thief_port}/x",
    "a wide digit": "https://127.0.0.\u00b9:{thief_port}/x",
    "three slashes": "https:///{thief}/x",
    "no slashes": "https:{thief}/x",
    "no port": "https://localhost:/x",
}  # fmt: skip


class Way(NamedTuple):
    """`registry` is where the user logged in; `thief` and `store` are others, who have a good certificate."""

    registry: Hostile
    store: Hostile
    thief: Hostile

    def lead(self, location: str) -> None:
        """Makes the registry send on to its store, and the store send on to this place."""
        words = {"home": home(self.registry), "thief": other(self.thief), "thief_port": self.thief.port}
        there = location.format(**words)
        self.store.deeds["GET "] = answer(307, Location=there)
        away = answer(307, Location=f"https://{other(self.store)}/blob")
        self.registry.deeds["GET /v2/caches/glm/blobs"] = lambda asked: away

    def wants_tokens_of_the_thief(self) -> None:
        scope = 'service="s",scope="repository:caches/glm:pull"'
        realm = f'Bearer realm="https://{other(self.thief)}/token",{scope}'
        asks, good = answer(401, WWW_Authenticate=realm), answer(200, Good().raw, Content_Type=IMAGE)
        is_known = lambda asked: asked.headers.get("authorization") == "Bearer abc"  # noqa: E731
        self.registry.deeds["GET /v2/caches/glm/manifests/1"] = lambda one: good if is_known(one) else asks


def home(server: Hostile) -> str:
    return f"localhost:{server.port}"


def other(server: Hostile) -> str:
    return f"127.0.0.1:{server.port}"


def known(good: bytes, **headers: str) -> Deed:
    """For whom the registry knows; everybody else is asked for his password."""

    def deed(asked: Asked) -> bytes:
        return answer(200, good, **headers) if asked.headers.get("authorization") == BASIC else ASKS

    return deed


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Path, Path]]:
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def way(
    tls: tuple[Path, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Way]:
    monkeypatch.setattr("sgl_tune.ship.remote.registry_client.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("sgl_tune.ship.remote.registry_client.ATTEMPTS", 2)
    monkeypatch.setattr("sgl_tune.ship.remote.registry.SETTLE_SECONDS", 0)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    ca, pair = tls
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ca))
    deeds = {"GET_manifests_1": known(Good().raw, Content_Type=IMAGE)}
    with (
        hostile(tls=pair, **deeds) as registry,
        hostile(tls=pair) as store,
        hostile(tls=pair, GET=answer(200, Good().layer)) as thief,
    ):
        log_in(tmp_path / "docker", registry.port)
        yield Way(registry, store, thief)


def pull(way: Way, tmp_path: Path, *more: object) -> Ran:
    words = ("--timeout", 5, "-o", tmp_path / "out.tar.gz", *more)
    return run_here("pull", f"{way.registry.url}:1", *words)


def push(way: Way, tmp_path: Path) -> Ran:
    (tmp_path / "b.tar.gz").write_bytes(Good().layer)
    words = ("--timeout", 5)
    return run_here("push", tmp_path / "b.tar.gz", f"{way.registry.url}:1", *words)


def secrets_shown(*servers: Hostile) -> list[str]:
    return [asked.path for server in servers for asked in server.seen if "authorization" in asked.headers]


def refused(ran: Ran, words: str) -> None:
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert ran.code == 3 and len(errors) == 1 and words in errors[0], ran.err


@pytest.mark.parametrize("name", TWO_READINGS)
def test_a_redirect_that_can_be_read_in_two_ways_is_refused(name: str, way: Way, tmp_path: Path) -> None:
    way.lead(TWO_READINGS[name])
    ran = pull(way, tmp_path)
    assert secrets_shown(way.registry) and way.store.seen
    assert way.thief.seen == [] and secrets_shown(way.store) == []
    refused(ran, "no address of the web")


@pytest.mark.parametrize("name", TWO_READINGS)
def test_an_upload_that_can_be_read_in_two_ways_is_refused(name: str, way: Way, tmp_path: Path) -> None:
    """The other host gets neither the password nor a byte of the bundle."""
    words = {"home": home(way.registry), "thief": other(way.thief), "thief_port": way.thief.port}
    there = TWO_READINGS[name].format(**words)
    way.registry.deeds["GET /v2/caches/glm/manifests/1"] = answer(404)
    accepted = answer(202, Location=there)
    way.registry.deeds["POST "] = lambda asked: accepted if "authorization" in asked.headers else ASKS
    refused(push(way, tmp_path), "no address of the web")
    assert secrets_shown(way.registry) and way.thief.seen == []


def test_an_upload_to_another_host_takes_no_password_there(way: Way, tmp_path: Path) -> None:
    there = answer(202, Location=f"https://{other(way.thief)}/upload")
    way.registry.deeds["GET /v2/caches/glm/manifests/1"] = answer(404)
    way.registry.deeds["POST "] = lambda asked: there if "authorization" in asked.headers else ASKS
    push(way, tmp_path)
    assert secrets_shown(way.registry) and way.thief.seen and secrets_shown(way.thief) == []


def test_a_redirect_back_to_the_registry_carries_no_password(way: Way, tmp_path: Path) -> None:
    """Otherwise the store could choose a request that the registry runs in this user's name."""
    way.registry.deeds["GET /v2/caches/glm/tags"] = answer(200, bytes(len(Good().layer)))
    way.lead("https://{home}/v2/caches/glm/tags/list?secret")
    assert pull(way, tmp_path).ends(1, "for the")
    asked = [asked for asked in way.registry.seen if "secret" in asked.path]
    assert asked and not any("authorization" in one.headers for one in asked)


def test_the_other_port_of_the_registry_is_another_host(way: Way, tmp_path: Path) -> None:
    """By its host name alone the thief is the registry."""
    way.lead("https://localhost:{thief_port}/x")
    pull(way, tmp_path)
    assert way.thief.seen and secrets_shown(way.thief) == []


def test_a_redirect_to_who_gives_tokens_carries_none(way: Way, tmp_path: Path) -> None:
    given = [answer(200, Good().layer), answer(200, b'{"token": "abc"}')]
    way.thief.deeds["GET "] = lambda asked: given.pop()
    way.wants_tokens_of_the_thief()
    way.lead("https://{thief}/token")
    assert pull(way, tmp_path).code == 0
    first, *later = [asked.headers.get("authorization") for asked in way.thief.seen]
    assert first == BASIC and later and set(later) == {None}


@pytest.mark.parametrize("quiet", [(), ("-q",), ("--format", "json")])
def test_who_else_gets_the_password_is_always_said(quiet: tuple[str, ...], way: Way, tmp_path: Path) -> None:
    way.thief.deeds["GET "] = answer(200, b'{"token": "abc"}')
    way.wants_tokens_of_the_thief()
    ran = pull(way, tmp_path, *quiet)
    said = f"names {other(way.thief)} to look at passwords: yours is sent there"
    assert ran.code == 0 and len([line for line in ran.err.splitlines() if said in line]) == 1, ran.err
    assert [asked.headers["authorization"] for asked in way.thief.seen] == [BASIC]
    assert "scope=repository" in way.thief.seen[0].path
