"""Bundles in folders and in S3: a real server of that protocol on loopback, and every way that it fails."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

pytest.importorskip("s3fs")
pytest.importorskip("moto")
pytest.importorskip("flask_cors")

from sgl_tune.errors import UsageError
from sgl_tune.ship.remote.remotes import parse_object_name
from tests.sgl_tune.running import PROGRAM, Ran, environment, run_here
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.ship.bundles import make_bundle
from tests.sgl_tune.ship.s3 import Server

PIECE = 8 << 20
H200 = ("--gpu", "h200")
SIGNATURE = "MEUC" * 24
SECONDS = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server().running() as server:
        server.client().create_bucket(Bucket="bundles")
        yield server


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("sgl_tune.ship.remote.object_store._PAUSES", (0.01, 0.01))
    yield running
    running.door = lambda request: None
    for row in running.client().list_objects_v2(Bucket="bundles").get("Contents", ()):
        running.client().delete_object(Bucket="bundles", Key=row["Key"])


def _bundle(folder: Path, name: str = "glm.tar.gz", size: int = 1000) -> Path:
    path = folder / name
    return make_bundle(path, size, crc32(name.encode()), gpu=None)


def _sgl_tune(server: Server, *words: object, **changes: str) -> Ran:
    with pytest.MonkeyPatch.context() as here:
        for name, value in server.environment(**changes).items():
            here.setenv(name, value)
        return run_here(*words)


def _put(server: Server, name: str, content: bytes) -> None:
    server.client().put_object(Bucket="bundles", Key=name, Body=content)


def _names(server: Server) -> list[str]:
    listed = server.client().list_objects_v2(Bucket="bundles")
    return [row["Key"] for row in listed.get("Contents", ())]


def test_a_bundle_goes_to_s3_and_comes_back(server: Server, tmp_path: Path) -> None:
    bundle = _bundle(tmp_path)
    bundle.with_name("glm.tar.gz.sig").write_text(SIGNATURE)
    pushed = _sgl_tune(server, "push", bundle, "s3://bundles/tuned/", *H200, "--format", "json")
    told = json.loads(pushed.out)
    assert schema_faults("push", told) == []
    assert told["sent"] == bundle.stat().st_size and told["bundle"]["gpu"] == "H200"
    assert told["bundle"]["reference"] == "s3://bundles/tuned/glm.tar.gz"
    assert _names(server) == [f"tuned/glm.tar.gz{end}" for end in ("", ".sig")]
    back = tmp_path / "back.tar.gz"
    pulled = _sgl_tune(server, "pull", "s3://bundles/tuned", "-o", back, "--format", "json")
    assert schema_faults("pull", json.loads(pulled.out)) == []
    assert json.loads(pulled.out)["bundle"]["digest"] == told["bundle"]["digest"]
    assert back.read_bytes() == bundle.read_bytes()
    assert back.with_name("back.tar.gz.sig").read_text() == SIGNATURE
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gz", ".gz", ".sig", ".sig"]


def test_the_signature_of_an_older_bundle_does_not_stay(server: Server, tmp_path: Path) -> None:
    bundle = _bundle(tmp_path)
    bundle.with_name("glm.tar.gz.sig").write_text(SIGNATURE)
    assert _sgl_tune(server, "push", bundle, "s3://bundles/").code == 0
    bundle.with_name("glm.tar.gz.sig").unlink()
    make_bundle(bundle, 2000, gpu=None)
    assert _sgl_tune(server, "push", bundle, "s3://bundles/").code == 0
    assert _names(server) == ["glm.tar.gz"]


def test_of_a_folder_the_only_bundle_is_taken_and_never_one_of_two(server: Server, tmp_path: Path) -> None:
    out = tmp_path / "out.tar.gz"
    assert _sgl_tune(server, "push", _bundle(tmp_path, "a.tar.gz"), "s3://bundles/").code == 0
    _put(server, "notes.txt", b"no bundle")
    assert _sgl_tune(server, "pull", "s3://bundles/", "-o", out).code == 0
    assert _sgl_tune(server, "push", _bundle(tmp_path, "b.tar.gz"), "s3://bundles/").code == 0
    two = _sgl_tune(server, "pull", "s3://bundles/", "-o", out)
    assert two.code == 2 and "holds 2 bundles: s3://bundles/a.tar.gz, s3://bundles/b.tar.gz" in two.err
    assert "kB" in _sgl_tune(server, "pull", "--list", "s3://bundles/").out
    listed = _sgl_tune(server, "pull", "--list", "s3://bundles/", "--format", "quiet")
    assert listed.out.split() == [f"s3://bundles/{name}.tar.gz" for name in "ab"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("push", "FILE", "s3://elsewhere/x/"), "s3://elsewhere/x/glm.tar.gz: there is no such thing"),
        (("pull", "s3://elsewhere/x/", "-o", "OUT"), "s3://elsewhere/x/: there is no such thing"),
        (("pull", "s3://bundles/none.tar.gz", "-o", "OUT"), "none.tar.gz: there is no such thing"),
        (("pull", "s3://bundles/none/", "-o", "OUT"), "s3://bundles/none/: there is no such thing"),
        (("pull", "s3://me:hush@bundles/x", "-o", "OUT"), "'s3://***@bundles/x': a URL holds no name"),
        (("pull", "ftp://me:hush@bundles/x", "-o", "OUT"), "ftp://***@bundles/x is not an address"),
    ],
)
def test_what_is_not_there_is_said(words: tuple[str, ...], told: str, server: Server, tmp_path: Path) -> None:
    names = {"FILE": _bundle(tmp_path), "OUT": tmp_path / "out.tar.gz"}
    ran = _sgl_tune(server, *(names.get(word, word) for word in words), *H200)
    assert ran.code == 2 and told in ran.err and "hush" not in ran.err
    assert not (tmp_path / "out.tar.gz").exists()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://bundles/../x.tar.gz", "names nothing to read from"),
        ("s3://bundles//x.tar.gz", "names nothing to read from"),
        ("s3://", "names nothing to read from"),
        ("s3:///x.tar.gz", "names nothing to read from"),
        ("s3://bundles/*.tar.gz", "is no plain path"),
        ("s3://bundles/a\nb.tar.gz", "is no plain path"),
        (f"s3://bundles/{'x' * 2000}", "is no plain path"),
        ("s3://bundles/x::y.tar.gz", "is no name for a bundle"),
        ("file://host/x.tar.gz", "names the host 'host'"),
        ("hf://me:hush@datasets/x", "a URL holds no name and no password"),
    ],
)
def test_a_url_is_read_strictly(url: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        parse_object_name(url)
    assert "hush" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "folder", "bundle"),
    [
        ("s3://bundles", "bundles", None),
        ("s3://bundles/tuned", "bundles/tuned", None),
        ("s3://bundles/tuned/", "bundles/tuned", None),
        ("s3://bundles/tuned/x.tar.gz", "bundles/tuned", "x.tar.gz"),
        ("s3://bundles/tuned/x.tar.gz/", "bundles/tuned/x.tar.gz", None),
        ("file:///srv/x.tar.zst", "/srv", "x.tar.zst"),
        ("hf://datasets/org/name@main/x.tgz", "datasets/org/name@main", "x.tgz"),
    ],
)
def test_a_url_names_a_folder_or_a_bundle_in_it(url: str, folder: str, bundle: str | None) -> None:
    name = parse_object_name(url)
    assert (name.folder, name.bundle) == (folder, bundle)


def test_what_changes_while_it_is_read_is_refused(server: Server, tmp_path: Path) -> None:
    url, out = "s3://bundles/by-hand.tar.gz", tmp_path / "out.tar.gz"
    _put(server, "by-hand.tar.gz", b"1" * (PIECE + 10))

    def door(request: dict[str, Any]) -> Iterable[bytes] | None:
        if request.get("HTTP_RANGE", "").startswith(f"bytes={PIECE}-"):
            server.door = lambda request: None
            _put(server, "by-hand.tar.gz", b"2" * (PIECE + 10))
        return None

    server.door = door
    ran = _sgl_tune(server, "pull", url, "-o", out)
    assert ran.code == 3 and f"{url} changed while it was read" in ran.err and not out.exists()


def test_a_push_that_was_killed_leaves_nothing_and_can_be_done_again(server: Server, tmp_path: Path) -> None:
    bundle = _bundle(tmp_path, size=2 * PIECE + (1 << 20))
    words = ["push", bundle, "s3://bundles/", *H200]
    _killed(server, words, lambda request: "partNumber=2" in request["QUERY_STRING"])
    assert _names(server) == []
    assert _sgl_tune(server, *words).code == 0
    got = server.client().get_object(Bucket="bundles", Key="glm.tar.gz")["Body"].read()
    assert got == bundle.read_bytes()


def _killed(server: Server, words: list[object], when: Any) -> None:
    """Dead while the server has the request that `when` knows, and has not answered it."""
    reached, over = threading.Event(), threading.Event()

    def door(request: dict[str, Any]) -> Iterable[bytes] | None:
        if not when(request):
            return None
        reached.set()
        over.wait(SECONDS)
        request["start"]("500 Gone", [])
        return [b"gone"]

    server.door = door
    line = [*PROGRAM, *map(str, words)]
    with subprocess.Popen(line, env=environment(**server.environment()), stderr=subprocess.DEVNULL) as child:
        assert reached.wait(SECONDS)
        child.send_signal(signal.SIGKILL)
    server.door = lambda request: None
    over.set()


def test_a_server_that_stalls_or_sends_for_ever_is_left(server: Server, tmp_path: Path) -> None:
    _put(server, "glm.tar.gz", b"content")
    over = threading.Event()

    def endless(request: dict[str, Any]) -> Iterable[bytes] | None:
        if not request.get("HTTP_RANGE"):
            return None
        request["start"]("206 Partial Content", [("Content-Range", "bytes 0-6/7")])
        return iter(lambda: b"x" * 65536, None)

    def stalled(request: dict[str, Any]) -> Iterable[bytes] | None:
        if not request.get("HTTP_RANGE"):
            return None
        over.wait(SECONDS)
        return [b""]

    out = tmp_path / "out.tar.gz"
    words = ("pull", "s3://bundles/glm.tar.gz", "-o", out, "--timeout", 0.3)
    server.door = endless
    assert _sgl_tune(server, *words).ends(3, "bytes came of 7")
    server.door = stalled
    began = time.monotonic()
    ran = _sgl_tune(server, *words)
    over.set()
    assert ran.code == 3 and "s3://bundles/glm.tar.gz: " in ran.err
    assert time.monotonic() - began < SECONDS / 2 and not out.exists()


def test_a_folder_is_a_place_too(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    bundle, out = _bundle(tmp_path), tmp_path / "out.tar.gz"
    assert run_here("push", bundle, store.as_uri(), *H200).code == 0
    assert [path.name for path in store.iterdir()] == ["glm.tar.gz"]
    assert run_here("pull", store.as_uri(), "-o", out, *H200).code == 0
    assert out.read_bytes() == bundle.read_bytes()
    missing = run_here("push", bundle, (tmp_path / "none").as_uri(), *H200)
    assert missing.code == 2 and f"there is no folder {tmp_path}/none" in missing.err
    assert f"fix: mkdir -p {tmp_path}/none" in missing.err and not (tmp_path / "none").exists()
    assert run_here("push", bundle, tmp_path / "none", *H200).ends(2, f"fix: write file://{tmp_path}/none")
    for gpu in ("H200", "B200"):
        make_bundle(store / f"{gpu}.tar.gz", gpu=f"NVIDIA {gpu}")
    os.mkfifo(store / "pipe.tar.gz")
    assert "NVIDIA B200  sm100" in run_here("pull", "--list", store.as_uri()).out
    (store / "glm.tar.gz").unlink()
    assert run_here("pull", store.as_uri(), "-o", out, "--gpu", "b200").code == 0
    assert out.read_bytes() == (store / "B200.tar.gz").read_bytes()
    assert run_here("pull", store.as_uri(), "-o", out, "--gpu", "l40s").ends(2, "no bundle for L40S")
    assert run_here("pull", f"{store.as_uri()}/pipe.tar.gz", "-o", out).ends(2, "is no file")


def test_a_library_that_is_not_there_is_named_with_the_line_that_brings_it(tmp_path: Path) -> None:
    ran = run_here("push", _bundle(tmp_path), "gs://bundles/", *H200)
    if "gcsfs" in ran.err:
        assert ran.code == 2 and "pip install 'sgl-tune[stores]' gcsfs" in ran.err
    else:
        pytest.skip("gcsfs is installed here")
