"""What a registry may answer to hurt: one line says what it was, soon, and little of it was read."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("oras")

from sgl_tune.ship.remote.registry_name import read_address
from sgl_tune.ship.remote.registry_session import Broken, Session
from sgl_tune.ship.remote.remotes import How
from tests.sgl_tune.running import Ran, run_here
from tests.sgl_tune.ship.hostile import IMAGE, INDEX, Asked, Good, Hostile, answer, digest, drip, hostile
from tests.sgl_tune.ship.registries import log_in

PATIENCE, SHORT = 10.0, 0.3  # the second where nothing comes, or too little
SOON = 20.0
HEAD = b"HTTP/1.1 200 x\r\n"
ASIDE = b"HTTP/1.1 302 x\r\nLocation: ?\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 x\r\n\r\n" * 100
RUDE = b'{"errors":[{"message":"\\u001b[31mI"}]}'
BLOB = HEAD + b"Content-Length: %d\r\n\r\n"


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr("sgl_tune.ship.remote.registry_client.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("sgl_tune.ship.remote.registry_client.ATTEMPTS", 3)
    monkeypatch.setattr("sgl_tune.ship.remote.registry.SETTLE_SECONDS", 0)


def patience(words: str) -> float:
    return SHORT if "slowly" in words or "does not answer" in words else PATIENCE


def pull(server: Hostile, tmp_path: Path, reference: str = ":1", seconds: float = PATIENCE) -> Ran:
    more = ("--plain-http", "--timeout", seconds, "-o", tmp_path / "x.tar.gz")
    return run_here("pull", f"{server.url}{reference}", *more)


def push(server: Hostile, tmp_path: Path, seconds: float) -> Ran:
    (tmp_path / "b.tar.gz").write_bytes(server.good.layer)
    return run_here("push", tmp_path / "b.tar.gz", f"{server.url}:1", "--plain-http", "--timeout", seconds)


def one_line(ran: Ran, words: str, code: int | None = None) -> None:
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and words in errors[0], ran.err
    assert ran.out == "" and ran.code in ((1, 2, 3) if code is None else (code,))
    assert not {"bug", "Traceback", "unexpected"} & set(ran.err.replace(":", " ").split()), ran.err


def manifest(**changes: Any) -> dict[str, Any]:
    return {"GET_manifests_1": answer(200, Good(**changes).raw, Content_Type=IMAGE)}


def says(body: bytes, kind: str = IMAGE) -> dict[str, Any]:
    return {"GET_manifests_1": answer(200, body, Content_Type=kind)}


def index(*lines: object) -> bytes:
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": lines}).encode()


LAYER = Good().layer
LINE = {"mediaType": IMAGE, "digest": digest(b"1"), "size": 1, "annotations": {"sgl-tune.bundle": "x"}}
FOR_OTHERS = {"sgl-tune.bundle": "x", "sgl-tune.gpu": "B200"}


def moved(to: str) -> dict[str, Any]:
    return {"GET_blobs": answer(307, Location=to)}


PULLED: dict[str, tuple[dict[str, Any], str]] = {
    # the bundle itself
    "another blob": ({"GET_blobs": answer(200, bytes(len(LAYER)))}, "for the"),
    "a shorter blob": ({"GET_blobs": answer(200, LAYER[:-1])}, "stopped before the end"),
    "a longer blob": ({"GET_blobs": answer(200, LAYER + b"x")}, "sends more than"),
    "an endless blob": ({"GET_blobs": drip(HEAD + b"\r\n", bytes(1 << 20), 0)}, "sends more than"),
    "a blob cut off": ({"GET_blobs": lambda asked: iter([BLOB % 100 + b"x"])}, "stopped before the end"),
    "a blob that drips": ({"GET_blobs": drip(BLOB % len(LAYER), b"x", 0.05)}, "too slowly"),
    "a packed blob": ({"GET_blobs": answer(200, LAYER, Content_Encoding="gzip")}, "answers in 'gzip'"),
    "no blob": ({"GET_blobs": answer(404)}, "answers 404"),
    # the manifest
    "an endless manifest": ({"GET_manifests": drip(HEAD + b"\r\n", bytes(1 << 20), 0)}, "more than 4.2 MB"),
    "a huge manifest": (says(b" " * (5 << 20)), "more than 4.2 MB"),
    "a deep manifest": (says(b'{"a":' * 300 + b"1" + b"}" * 300), "nested more than 60"),
    "a bottomless manifest": (says(b"[" * 1_000_000), "is not JSON"),
    "no JSON": (says(b"<html>"), "is not JSON"),
    "no object": (says(b"[]"), "not a JSON object"),
    "a login page": (says(b"<html>", "text/html"), "gives text/html for a manifest"),
    "two kinds": (says(Good().raw, INDEX), "says otherwise itself"),
    "no layers": (manifest(layers=[]), "that sgl-tune did not push"),
    "two layers": (manifest(layers=[{}, {}]), "that sgl-tune did not push"),
    "layers of nothing": (manifest(layers=[None]), "where an object should be"),
    "no annotations": (manifest(annotations=[]), "no bundle for"),
    "a size below nothing": (manifest(layer_says={"size": -1}), "has -1 bytes"),
    "a size that is none": (manifest(layer_says={"size": True}), "has True bytes"),
    "a size beyond any disk": (manifest(layer_says={"size": 1 << 49}), "are free"),
    "a size beyond any number": (manifest(layer_says={"size": 1 << 70}), "bytes"),
    "a digest that is a path": (manifest(layer_says={"digest": "sha256:../../etc/passwd"}), "as a digest"),
    "a layer that is no tar": (manifest(layer_says={"mediaType": "text/plain"}), "which no bundle is"),
    "another bundle's name": (manifest(annotations={"sgl-tune.bundle": digest(b"")}), "and has another"),
    # the index
    "an index of one": (says(index(7), INDEX), "where an object should be"),
    "an index without end": (says(index(*([LINE] * 1001)), INDEX), "more than 1000"),
    "an index of the bundle for others": (
        says(index(LINE | {"digest": digest(Good().raw), "annotations": FOR_OTHERS}), INDEX),
        "the tag calls its sgl-tune.gpu 'B200'",
    ),
    "an index of something else": (says(index(LINE), INDEX), "gives something else for"),
    # the way there
    "a redirect to a file": (moved("file:///etc/passwd"), "no address"),
    "a redirect to gopher": (moved("gopher://x"), "no address"),
    "a redirect to nonsense": (moved("http://[x"), "no address of the web"),
    "a redirect to itself": (moved("?x"), "more than 5 times"),
    "a redirect with a body": ({"GET_blobs": drip(ASIDE, bytes(1 << 20), 0)}, "5 times"),
    "silence": ({"GET_manifests": drip(b"", b"", 0.05)}, "does not answer"),
    "headers that drip": ({"GET_manifests": drip(HEAD, b"X: y\r\n", 0.05)}, "too slowly"),
    "a manifest that drips": ({"GET_manifests": drip(HEAD + b"\r\n", b" ", 0.05)}, "too slowly"),
    "headers without end": ({"GET_manifests": drip(HEAD, b"X: y\r\n" * 1000, 0)}, "more than 100 headers"),
    "one long header": ({"GET_manifests": drip(HEAD + b"X: ", b"y" * 100_000, 0)}, "line"),
    "continue without end": ({"GET_manifests": drip(b"", CONTINUE, 0.01)}, "too slowly"),
    "no HTTP": ({"GET_manifests": lambda asked: iter([b"SSH-2.0-OpenSSH_9\r\n"])}, "SSH-2.0"),
    "nothing": ({"GET_manifests": lambda asked: iter([])}, "closed connection"),
    "an odd length": ({"GET_manifests": lambda asked: iter([HEAD + b"Content-Length: x\r\n\r\n{}"])}, ""),
    "busy for years": ({"GET_manifests": answer(429, Retry_After="99999999")}, "99,999,999 s"),
    "broken": ({"GET_manifests": answer(503)}, "answers 503"),
    "a teapot": ({"GET_manifests": answer(418, RUDE)}, "418"),
    "errors without end": ({"GET_manifests": answer(400, b'{"errors":' + b"[" * 99999)}, "400"),
    # who is asked for the password
    "no way to log in": ({"GET": answer(401)}, "wants a user and a password"),
    "a realm that is a file": (
        {"GET": answer(401, WWW_Authenticate='Bearer realm="file:///etc/passwd"')},
        "no address of the web",
    ),
    "no realm": ({"GET": answer(401, WWW_Authenticate="Bearer x")}, "does not say from where"),
    "forbidden": ({"GET": answer(403)}, "wants a user and a password"),
}  # fmt: skip


@pytest.mark.parametrize("name", PULLED)
def test_a_pull_ends_with_one_line(name: str, tmp_path: Path) -> None:
    deeds, words = PULLED[name]
    began = time.monotonic()
    with hostile(**deeds) as server:
        one_line(pull(server, tmp_path, seconds=patience(words)), words)
    assert time.monotonic() - began < SOON and server.sent < 24 << 20
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_bundle_of_an_honest_registry_arrives(tmp_path: Path) -> None:
    with hostile() as server:
        ran = pull(server, tmp_path)
    assert ran.code == 0, ran.err
    assert (tmp_path / "x.tar.gz").read_bytes() == server.good.layer


def test_an_answer_with_another_digest_is_refused(tmp_path: Path) -> None:
    with hostile() as server:
        one_line(pull(server, tmp_path, f"@sha256:{'0' * 64}"), "gives something else", 1)


PUSHED: dict[str, tuple[dict[str, Any], str]] = {
    "nowhere to send it": ({"POST": answer(202)}, "does not say where an upload goes"),
    "to a file": ({"POST": answer(202, Location="file:///tmp/x")}, "no address of the web"),
    "sent on": ({"PUT_blobs": answer(307, Location="/elsewhere")}, "redirects a PUT"),
    "kept as something else": (
        {"PUT_blobs": answer(201, Docker_Content_Digest=digest(b""))},
        "keeps sha256:",
    ),
    "refused in its own words": (
        {"PUT_blobs": answer(400, b'{"errors":[{"message":"digest did not match"}]}')},
        "digest did not match",
    ),
    "a tag that is never kept": ({"PUT_manifests_1": answer(201)}, "others write this tag"),
    "too full": ({"PUT_blobs": answer(507)}, "answers 507"),
    "no answer to a push": ({"PUT_blobs": drip(b"", b"", 0.05)}, "does not answer"),
}


@pytest.mark.parametrize("name", PUSHED)
def test_a_push_ends_with_one_line(name: str, tmp_path: Path) -> None:
    deeds, words = PUSHED[name]
    tag = {"GET_manifests_1": answer(404)}
    began = time.monotonic()
    with hostile(**{**tag, **deeds}) as server:
        one_line(push(server, tmp_path, patience(words)), words)
    assert time.monotonic() - began < SOON


def test_endless_pages_of_tags_are_cut_off(tmp_path: Path) -> None:
    def page(asked: Asked) -> bytes:
        return answer(200, b'{"tags": ["\\u001b[31m", 7, "x"]}', Link=f'<{asked.path}x>; rel="next"')

    with hostile(GET_tags=page) as server:
        ran = run_here("pull", server.url, "--plain-http", "--list")
        assert ran.code == 0 and "\x1b" not in ran.out and len(server.seen) == 20
    with hostile(GET_tags=answer(200, b'{"tags": 7}')) as server:
        assert run_here("pull", server.url, "--plain-http", "--list").out.startswith("Nothing at")


def test_a_busy_registry_is_asked_again(tmp_path: Path) -> None:
    busy = [answer(429, Retry_After="0"), answer(503)]
    good = Good()
    deeds = {"GET_blobs": lambda asked: busy.pop() if busy else answer(200, good.layer)}
    with hostile(good, **deeds) as server:
        ran = pull(server, tmp_path)
    assert ran.code == 0 and "answers 503; once more in" in ran.err


def test_what_broke_off_is_taken_up_by_range(tmp_path: Path) -> None:
    """The registry respects Range, ignores it, or answers it with something else."""
    good = Good(bytes(range(256)) * 4000)

    def broken(rest: Callable[[int], bytes]) -> Callable[[Asked], Any]:
        def deed(asked: Asked) -> Any:
            start = int(asked.headers.get("range", "bytes=0-")[6:-1])
            if not start and len(server.seen) < 5:
                return iter([BLOB % len(good.layer) + good.layer[:600_000]])
            return rest(start)

        return deed

    size = len(good.layer)
    seven = f"bytes 7-{size - 1}/{size}"
    for rest in (
        lambda start: answer(206, good.layer[start:], Content_Range=f"bytes {start}-{size - 1}/{size}"),
        lambda start: answer(200, good.layer),
        lambda start: answer(206, good.layer[7:], Content_Range=seven) if start else answer(200, good.layer),
        lambda start: answer(416) if start else answer(200, good.layer),
    ):
        with hostile(good, GET_blobs=broken(rest)) as server:
            ran = pull(server, tmp_path)
        assert ran.code == 0, ran.err
        assert (tmp_path / "x.tar.gz").read_bytes() == good.layer


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("first", [b"", bytes(1 << 16), bytes(300_000)], ids=len)
def test_a_registry_that_drips_chunks_is_left(first: bytes, tmp_path: Path) -> None:
    """Each chunk has one byte, and none of the chunks is late."""
    good = Good(bytes(range(256)) * 2000)
    began = time.monotonic()
    begun = CHUNKED + (chunk(first) if first else b"")
    with hostile(good, GET_blobs=drip(begun, chunk(b"x"), 0.01)) as server:
        one_line(pull(server, tmp_path, seconds=SHORT), "too slowly", 3)
    assert time.monotonic() - began < 5


def test_a_slow_registry_that_keeps_the_least_rate_is_waited_for(tmp_path: Path) -> None:
    """The whole transfer takes longer than --timeout."""
    good = Good(bytes(range(256)) * 8000)

    def slow(asked: Asked) -> Iterator[bytes]:
        yield CHUNKED
        for at in range(0, len(good.layer), 300_000):
            time.sleep(0.3)
            yield chunk(good.layer[at : at + 300_000])
        yield b"0\r\n\r\n"

    began = time.monotonic()
    with hostile(good, GET_blobs=slow) as server:
        ran = pull(server, tmp_path, seconds=1)
    assert ran.code == 0 and time.monotonic() - began > 2, ran.err
    assert len([asked for asked in server.seen if "/blobs/" in asked.path]) == 1


def test_a_registry_that_breaks_off_after_a_few_bytes_is_not_asked_for_ever(tmp_path: Path) -> None:
    """Each attempt gets some bytes, but no more than the one before."""
    with hostile(GET_blobs=answer(200, b"{}")) as server:
        one_line(pull(server, tmp_path), "stopped before the end", 3)
    assert len([asked for asked in server.seen if "/blobs/" in asked.path]) < 6


BASIC = 'Basic realm="here"'


def _asking(asked: Asked) -> bytes:
    known = "authorization" in asked.headers
    return answer(200, Good().raw, Content_Type=IMAGE) if known else answer(401, WWW_Authenticate=BASIC)


@pytest.mark.parametrize("asks", [BASIC, 'Bearer realm="http://127.0.0.1:1/token"'])
def test_a_password_stays_with_its_registry(asks: str, tmp_path: Path) -> None:
    """A blob may be on another host. If that host asks for a password, it gets none."""
    with hostile(GET=answer(401, WWW_Authenticate=asks)) as other:
        away = answer(307, Location=f"http://127.0.0.1:{other.port}/blob")
        with hostile(GET_manifests_1=_asking, GET_blobs=away) as server:
            log_in(tmp_path / "docker", server.port)
            one_line(pull(server, tmp_path), f"127.0.0.1:{other.port}, which wants a password", 3)
        assert any("authorization" in asked.headers for asked in server.seen)
        assert other.seen and not any("authorization" in asked.headers for asked in other.seen)
    with hostile(GET=answer(200, Good().layer)) as other:
        away = answer(307, Location=f"http://127.0.0.1:{other.port}/blob")
        with hostile(GET_manifests_1=_asking, GET_blobs=away) as server:
            log_in(tmp_path / "docker", server.port)
            assert pull(server, tmp_path).code == 0
        assert other.seen and not any("authorization" in asked.headers for asked in other.seen)


def test_tokens_are_fetched_anew_and_by_nobody_in_particular(tmp_path: Path) -> None:
    """Each token is fetched without a login, and is good for one answer."""
    given: list[str] = []

    def token(asked: Asked) -> bytes:
        given.append(f"t{len(given)}")
        return answer(200, json.dumps({"access_token": given[-1]}).encode())

    with hostile(GET=token) as realm:
        where = f'Bearer realm="http://127.0.0.1:{realm.port}/token"'
        used: set[str] = set()

        def asking(asked: Asked) -> bytes:
            shown = asked.headers.get("authorization", "")
            if shown != f"Bearer {given[-1] if given else ''}" or shown in used:
                return answer(401, WWW_Authenticate=where)
            used.add(shown)
            good = "/blobs/" in asked.path
            return answer(200, Good().layer if good else Good().raw, Content_Type=IMAGE)

        missing = {"GET_manifests_sha256": answer(404)}
        with hostile(**missing, GET=asking) as server:
            assert pull(server, tmp_path).code == 0
    assert len(given) == 2 and not any("authorization" in asked.headers for asked in realm.seen)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"token": "abc"}', "does not let carol"),  # and the registry wants another, and another
        (b"{}", "does not let carol"),
        (b"[]", "gives no token"),
        (b"[" * 99999, "gives no token"),
        (b'{"token": {"a": 1}}', "gives no token"),
        (b'{"token": "a\\nb"}', "gives no token"),
        (b'{"token": "%s"}' % (b"a" * 99999), "gives no token"),
        (b" " * (5 << 20), "more than 4.2 MB"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_bad_token_ends_a_pull_with_one_line(body: bytes, words: str, tmp_path: Path) -> None:
    with hostile(GET=answer(200, body)) as realm:
        where = f'Bearer realm="http://127.0.0.1:{realm.port}/token"'
        with hostile(GET=answer(401, WWW_Authenticate=where)) as server:
            log_in(tmp_path / "docker", server.port)
            one_line(pull(server, tmp_path), words)
    assert len(realm.seen) < 4


@pytest.mark.parametrize(
    ("home", "there", "words"),
    [
        ("https://8.8.8.8", "http://8.8.4.4/x", "without TLS"),
        ("https://8.8.8.8", "http://8.8.8.8/x", "without TLS"),
        ("https://8.8.8.8", "https://169.254.169.254/latest", "inside this network"),
        ("https://8.8.8.8", "https://localhost/x", "inside this network"),
        ("https://8.8.8.8", "https://[::1]:8/x", "inside this network"),
        ("https://8.8.8.8", "https://[::ffff:127.0.0.1]/x", "inside this network"),
        ("https://8.8.8.8", "https://10.0.0.1/x", "inside this network"),
        ("https://10.0.0.1", "https://127.0.0.1/x", "inside this network"),
        ("https://10.0.0.1", "https://[::ffff:127.0.0.1]/x", "inside this network"),
        ("https://8.8.8.8", "https://2130706433/x", "inside this network"),
        ("https://8.8.8.8", "ssh://8.8.8.8/x", "no address of the web"),
        ("https://8.8.8.8", "https://", "no address of the web"),
    ],
)
def test_a_redirect_inside_or_without_tls_is_refused(home: str, there: str, words: str) -> None:
    with pytest.raises(Broken, match=words):
        session(home).check(there, "sends on to")
    with pytest.raises(Broken, match="without TLS"):
        session("http://127.0.0.1", plain_http=True).check("http://8.8.8.8/x", "sends on to")
    session("https://10.0.0.1").check("https://8.8.8.8/x", "sends on to")
    session("https://10.0.0.1").check("https://10.0.0.2/x", "sends on to")


def session(home: str, plain_http: bool = False) -> Session:
    address = read_address(home)
    assert address is not None
    return Session(address.origin, How(plain_http))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("oci://registry.local/a:1 --plain-http", "is not this machine"),
        ("oci://127.0.0.1.nip.io/a:1 --plain-http", "is not this machine"),
        ("oci:///a:1", "no registry's host"),
        ("oci://localhost:0/a:1", "'localhost:0' is no registry's host"),
        ("oci://localhost:65536/a:1", "'localhost:65536' is no registry's host"),
        ("oci://user:pw@host/a:1", "no registry's host"),
        ("oci://host/A:1", "is no name"),
        ("oci://host/../a:1", "is no name"),
        ("oci://host/a:x/y", "is no tag"),
        ("oci://host/a@sha256:12", "is no digest"),
        ("ocy://host/a:1", "did you mean oci?"),
        ("host/a:1", "is not an address of bundles"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused(url: str, words: str, tmp_path: Path) -> None:
    assert run_here("pull", *url.split(), "-o", tmp_path / "x").ends(2, words)
