"""A bundle there and back through a real registry, with everything killed on the way."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("oras")

from sgl_tune.ship.signing.keys import read_private_key
from sgl_tune.ship.signing.signature import signature_of, write_signature
from tests.programs import program
from tests.sgl_tune.cache.children import finish_child, start_child
from tests.sgl_tune.running import PROGRAM, ROOT, Ran, environment, run_here
from tests.sgl_tune.schemas import SCHEMAS, schema_faults
from tests.sgl_tune.ship.bundles import make_bundle
from tests.sgl_tune.ship.registries import (
    PASSWORD,
    SECONDS,
    USER,
    Registry,
    Wire,
    certificates,
    log_in,
    needs_registry,
    started,
)
from tests.sgl_tune.ship.signing import make_keys
from tests.warm.processes import until

CACHES = ROOT / "cache-examples" / "cache"
PULLS = f".sgl-tune-pulls-{os.geteuid()}"
pytestmark = needs_registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with started(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(autouse=True)
def nobody_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr("sgl_tune.ship.remote.registry.SETTLE_SECONDS", 0)


def push(bundle: Path, url: str, *more: object) -> Ran:
    return run_here("push", bundle, url, "--plain-http", *more)


def pull(url: str, *more: object) -> Ran:
    return run_here("pull", url, "--plain-http", *more)


def told(ran: Ran) -> Any:
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_a_pushed_bundle_is_listed_and_pulled_unchanged(registry: Registry, tmp_path: Path) -> None:
    bundle, url = make_bundle(tmp_path / "b.tar.gz"), f"{registry.url}:there"
    first = told(push(bundle, url, "--format", "json"))
    assert schema_faults("push", first) == [] and first["sent"] > bundle.stat().st_size
    again = told(push(bundle, url, "--format", "json"))
    assert again["sent"] == 0 and again["bundle"] == first["bundle"] and again["replaced"] == []
    listed = told(pull(url, "--list", "--format", "json"))
    assert schema_faults("pull", listed) == [] and listed["bundles"] == [first["bundle"]]
    for reference in (url, first["bundle"]["reference"]):
        back = told(pull(reference, "--gpu", "h200", "-o", tmp_path / "back.tar.gz", "--format", "json"))
        assert schema_faults("pull", back) == [] and back["bundle"] == first["bundle"]
        assert (tmp_path / "back.tar.gz").read_bytes() == bundle.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"b.tar.gz", "back.tar.gz"}


def test_other_tools_read_a_bundle_as_an_image(registry: Registry, tmp_path: Path) -> None:
    """skopeo copies the image, and umoci and tar unpack the same files from it."""
    skopeo, umoci = shutil.which("skopeo"), shutil.which("umoci")
    if not skopeo or not umoci:
        pytest.skip("skopeo or umoci is not installed")
    bundle, url = make_bundle(tmp_path / "b.tar.gz"), f"{registry.url}:image"
    assert push(bundle, url).code == 0
    copy = [skopeo, "--insecure-policy", "copy", "-q", "--src-tls-verify=false"]
    copy += [f"docker://{url.removeprefix('oci://')}", f"oci:{tmp_path}/layout:image"]
    subprocess.run(copy, check=True, timeout=SECONDS)
    unpack = [umoci, "unpack", "--rootless", "--image", f"{tmp_path}/layout:image", f"{tmp_path}/out"]
    subprocess.run(unpack, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    with tarfile.open(bundle) as tar:
        wanted = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]
    root = tmp_path / "out" / "rootfs"
    assert {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()} == wanted
    layers = [path.read_bytes() for path in (tmp_path / "layout/blobs/sha256").iterdir()]
    assert bundle.read_bytes() in layers


def test_a_tag_holds_one_bundle_for_each_gpu(registry: Registry, tmp_path: Path) -> None:
    url = f"{registry.url}:gpus"
    names = {"h100": "NVIDIA H100 80GB HBM3", "b200": "NVIDIA B200"}
    bundles = {gpu: make_bundle(tmp_path / f"{gpu}.tar.gz", gpu=name) for gpu, name in names.items()}
    pushed = {gpu: told(push(path, url, "--format", "json")) for gpu, path in bundles.items()}
    assert [one["gpu"] for one in pushed["b200"]["beside"]] == [names["h100"]]
    for gpu, path in bundles.items():
        assert pull(url, "--gpu", gpu, "-o", tmp_path / "got").code == 0
        assert (tmp_path / "got").read_bytes() == path.read_bytes()
    assert pull(url, "--gpu", "h200", "-o", tmp_path / "none").ends(2, "no bundle for H200, sm90", "B200")
    newer = make_bundle(tmp_path / "newer.tar.gz", seed=9, gpu=names["h100"])
    replaced = told(push(newer, url, "--format", "json"))
    assert replaced["replaced"] == [pushed["h100"]["bundle"]] and len(replaced["beside"]) == 1
    alone = told(push(newer, url, "--replace", "--format", "json"))
    assert alone["beside"] == []


def test_several_that_fit_are_listed(registry: Registry, tmp_path: Path) -> None:
    url = f"{registry.url}:several"
    for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"):
        assert push(make_bundle(tmp_path / "b.tar.gz", gpu=gpu), url).code == 0
    ran = pull(url, "-o", tmp_path / "x")  # there is no GPU here
    assert ran.code == 2
    assert all(said in ran.err for said in ("2 fit linux/", ": Qwen/Qwen3-30B-A3B (", "H100", "--gpu NAME"))


def test_a_push_says_that_a_pull_could_not_choose(registry: Registry, tmp_path: Path) -> None:
    """For example tactics, and later the same with one more deployment: both fit this machine."""
    url = f"{registry.url}:rivals"
    older = make_bundle(tmp_path / "older.tar.gz")
    newer = make_bundle(tmp_path / "newer.tar.gz", seed=2, key="b" * 16)
    first = push(older, url)
    assert first.code == 0 and not first.err
    assert push(newer, url).ends(0, "2 bundles that fit one machine", "--replace")
    ran = pull(url, "--gpu", "h200", "-o", tmp_path / "x")
    assert ran.code == 2 and "2 fit H200" in ran.err and "--gpu NAME" not in ran.err
    other = push(make_bundle(tmp_path / "other.tar.gz", gpu="NVIDIA B200"), url)
    assert other.code == 0 and not other.err, "that is for others"
    alone = push(newer, url, "--replace")
    assert alone.code == 0 and not alone.err
    assert pull(url, "--gpu", "h200", "-o", tmp_path / "x").code == 0


def test_pushes_at_once_are_kept(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sgl_tune.ship.remote.registry.SETTLE_SECONDS", 0.3)
    url, children = f"{registry.url}:at-once", []
    for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200"):
        bundle = make_bundle(tmp_path / f"{gpu}.tar.gz", gpu=gpu)
        children.append(start_child(partial(push, bundle, url)))
    assert [finish_child(*child).code for child in children] == [0, 0, 0]
    assert len(told(pull(url, "--list", "--format", "json"))["bundles"]) == 3


def test_an_image_that_was_copied_is_a_tag_of_one(registry: Registry, tmp_path: Path) -> None:
    """Copying tools take one image of an index, and leave the index behind."""
    import requests

    pushed = told(push(make_bundle(tmp_path / "b.tar.gz"), f"{registry.url}:index", "--format", "json"))
    place = f"http://localhost:{registry.port}/v2/caches/glm/manifests"
    kind = "application/vnd.oci.image.manifest.v1+json"
    digest = pushed["bundle"]["reference"].partition("@")[2]
    image = requests.get(f"{place}/{digest}", headers={"Accept": kind}, timeout=5).content
    requests.put(f"{place}/copy", image, headers={"Content-Type": kind}, timeout=5).raise_for_status()
    assert pull(f"{registry.url}:copy", "--gpu", "h200", "-o", tmp_path / "x").code == 0
    other = make_bundle(tmp_path / "c.tar.gz", gpu="NVIDIA B200")
    beside = told(push(other, f"{registry.url}:copy", "--format", "json"))["beside"]
    assert beside == [pushed["bundle"]]
    for gpu in ("h200", "b200"):
        assert pull(f"{registry.url}:copy", "--gpu", gpu, "-o", tmp_path / "x").code == 0


@pytest.mark.parametrize("when", ["packed", "pushed"])
def test_who_vouches_for_code_is_asked_before_it_lands(registry: Registry, tmp_path: Path, when: str) -> None:
    pytest.importorskip("cryptography")
    (private, public), (_, other) = make_keys(tmp_path), make_keys(tmp_path, "other")
    bundle, url = make_bundle(tmp_path / "b.tar.gz", gpu=None), f"{registry.url}:signed-{when}"
    unsigned = f"{registry.url}:unsigned-{when}"
    assert push(make_bundle(tmp_path / "u.tar.gz", seed=2, gpu=None), unsigned).code == 0
    if when == "packed":
        digest = sha256(bundle.read_bytes()).hexdigest()
        write_signature(bundle, signature_of(read_private_key(private), f"sha256:{digest}"))
    assert push(bundle, url, *(("--sign", private) if when == "pushed" else ())).code == 0
    root = ("--cache-dir", tmp_path / "root")
    for reference, more, code, words in (
        (url, ("--trust", public), 0, ""),
        (url, ("--trust", other), 1, "is signed, but not by"),
        (url, (), 2, "holds code (tilelang)"),
        (unsigned, ("--trust", public), 1, "is not signed"),
        (unsigned, (), 2, "it is not signed"),
        (unsigned, ("--allow-unsigned-code",), 0, ""),
    ):
        ran = pull(reference, *more, *root)
        assert ran.code == code and words in ran.err, (more, ran.err)
        assert (tmp_path / "root" / "tilelang").exists() == (code == 0), more
        shutil.rmtree(tmp_path / "root")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_two_sign_an_image_and_each_is_found_where_cosign_looks(registry: Registry, tmp_path: Path) -> None:
    bundle, url = make_bundle(tmp_path / "b.tar.gz", seed=7, gpu=None), f"{registry.url}:by-two"
    pairs = [make_keys(tmp_path, name) for name in ("first", "second")]
    for private, _ in (*pairs, pairs[0]):
        pushed = push(bundle, url, "--sign", private, "--format", "json")
        assert pushed.code == 0, pushed.err
    digest = json.loads(pushed.out)["bundle"]["reference"].partition("@")[2]
    place = f"http://localhost:{registry.port}/v2/caches/glm"
    kept = _got(f"{place}/manifests/{digest.replace(':', '-')}.sig")
    layers = json.loads(kept)["layers"]
    assert len(layers) == 2, "one of each, however often they sign"
    for (_, public), layer in zip(pairs[::-1], layers, strict=True):  # the first has signed again
        assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
        statement, signature = tmp_path / "statement", tmp_path / "signature"
        statement.write_bytes(_got(f"{place}/blobs/{layer['digest']}"))
        signature.write_bytes(base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"]))
        line = ["openssl", "dgst", "-sha256", "-verify", public, "-signature", signature, statement]
        assert subprocess.run(line, capture_output=True, timeout=SECONDS).stdout == b"Verified OK\n"
        assert json.loads(statement.read_bytes())["critical"]["image"] == {"docker-manifest-digest": digest}
        into = tmp_path / public.stem
        assert pull(url, "--trust", public, "--cache-dir", into).code == 0


def _got(url: str) -> bytes:
    asked = Request(url, headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})
    with urlopen(asked, timeout=SECONDS) as answer:
        return bytes(answer.read())


def test_a_pull_lands_as_unpack_does_it(registry: Registry, tmp_path: Path) -> None:
    bundle, url = tmp_path / "b.tar.gz", f"{registry.url}:real"
    assert run_here("pack", CACHES, "-o", bundle).code == 0
    pushed = told(push(bundle, url, "--format", "json"))["bundle"]
    env = ("--target", ROOT / "cache-examples" / "h200.env.json")
    pulled = told(pull(url, *env, "--cache-dir", tmp_path / "one", "--format", "json"))
    unpacked = told(run_here("unpack", bundle, *env, "--cache-dir", tmp_path / "two", "--format", "json"))
    assert schema_faults("pull", pulled) == [] and pulled["bundle"] == pushed
    assert pulled["unpacked"]["tactics"] == unpacked["tactics"] and pulled["unpacked"]["verdict"]
    assert files(tmp_path / "one") == files(tmp_path / "two") != {}
    assert run_here("verify", tmp_path / "one", *env).code == 0
    other = pull(url, "--cache-dir", tmp_path / "three", "--digest", f"sha256:{'0' * 64}")
    assert other.code == 1 and "another bundle" in other.err and not files(tmp_path / "three")


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.suffix != ".part"}


def test_the_schema_of_pull_holds_that_of_unpack() -> None:
    pull_schema, unpack_schema = (
        json.loads((SCHEMAS / f"{name}.json").read_text()) for name in ("pull", "unpack")
    )
    assert pull_schema["properties"]["unpacked"]["properties"] == {
        name: value for name, value in unpack_schema["properties"].items() if name != "schema_version"
    }


def test_a_missing_tag_digest_or_repository_is_named(registry: Registry, tmp_path: Path) -> None:
    url, out = f"{registry.url}:absent-1", ("-o", tmp_path / "x")
    assert push(make_bundle(tmp_path / "b.tar.gz"), url).code == 0
    assert "did you mean absent-1?" in pull(f"{registry.url}:absnet-1", *out).err
    assert "absent-1" in pull(registry.url, "--list").out.splitlines()
    wrong = pull(f"{registry.url}@sha256:{'0' * 64}", *out)
    assert (wrong.code, len(wrong.err.splitlines())) == (2, 2) and "no such thing" in wrong.err
    assert pull(f"oci://localhost:{registry.port}/caches/other:1", *out).ends(2, "no caches/other")
    assert pull(registry.url, *out).code == 2  # no tag
    assert not (tmp_path / "x").exists()


def test_a_tag_of_somebody_elses_is_left_alone(registry: Registry, tmp_path: Path) -> None:
    import requests

    place = f"http://localhost:{registry.port}/v2/caches/glm/manifests/theirs"
    kind = "application/vnd.oci.image.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": kind, "manifests": []}
    bundle = make_bundle(tmp_path / "b.tar.gz")
    about = told(push(bundle, f"{registry.url}:ours", "--format", "json"))["bundle"]
    digest = about["reference"].partition("@")[2]
    image = "application/vnd.oci.image.manifest.v1+json"
    size = len(requests.get(place.replace("theirs", digest), headers={"Accept": image}, timeout=5).content)
    platform = {"os": "linux", "architecture": "amd64"}
    index["manifests"] = [{"mediaType": image, "digest": digest, "size": size, "platform": platform}]
    put = requests.put(place, json.dumps(index), headers={"Content-Type": kind}, timeout=5)
    assert put.status_code == 201
    assert push(bundle, f"{registry.url}:theirs").ends(2, "that sgl-tune did not push", "--replace")
    assert push(bundle, f"{registry.url}:theirs", "--replace").code == 0


def test_a_pull_that_was_killed_is_taken_up(registry: Registry, tmp_path: Path) -> None:
    bundle, url = make_bundle(tmp_path / "b.tar.gz", 6_000_000), f"{registry.url}:killed"
    digest = told(push(bundle, url, "--format", "json"))["bundle"]["digest"]
    wire = Wire(registry.port, 3_000_000, lambda: time.sleep(SECONDS))
    through = url.replace(str(registry.port), str(wire.port))
    client = subprocess.Popen(
        [*PROGRAM, "pull", through, "--plain-http", "-o", tmp_path / "x.tar.gz"], env=environment()
    )
    part = tmp_path / PULLS / f"{digest.removeprefix('sha256:')}.part"
    until(lambda: part.exists() and part.stat().st_size > 2_000_000, SECONDS)
    client.kill()
    client.wait(SECONDS)
    wire.close()
    there = part.stat().st_size
    assert 2_000_000 < there < 4_000_000 and not (tmp_path / "x.tar.gz").exists()
    ran = pull(url, "-o", tmp_path / "x.tar.gz", "--format", "json")
    assert told(ran)["received"] == bundle.stat().st_size - there and "from an earlier pull" in ran.err
    assert (tmp_path / "x.tar.gz").read_bytes() == bundle.read_bytes()
    assert not part.parent.exists()


def test_two_who_pull_at_once_both_have_it(registry: Registry, tmp_path: Path) -> None:
    """Both pull into one folder, as pods of a node do that share a cache."""
    bundle, url = make_bundle(tmp_path / "b.tar.gz", 3_000_000), f"{registry.url}:shared"
    assert push(bundle, url).code == 0
    words = [(url, "-o", tmp_path / f"x{number}", "--quiet") for number in range(3)]
    children = [start_child(partial(pull, *one)) for one in words]
    assert [finish_child(*child) for child in children] == [Ran(0, f"{one[2]}\n", "") for one in words]
    assert all((tmp_path / f"x{number}").read_bytes() == bundle.read_bytes() for number in range(3))
    assert not (tmp_path / PULLS).exists()


def test_a_spoilt_part_of_an_earlier_pull_is_replaced(registry: Registry, tmp_path: Path) -> None:
    bundle, url = make_bundle(tmp_path / "b.tar.gz"), f"{registry.url}:spoilt"
    digest = told(push(bundle, url, "--format", "json"))["bundle"]["digest"]
    part = tmp_path / PULLS / f"{digest.removeprefix('sha256:')}.part"
    for content in (b"x" * 5000, b"x" * bundle.stat().st_size, b"x" * 1_000_000):
        part.parent.mkdir()
        part.write_bytes(content)
        assert pull(url, "-o", tmp_path / "x").code == 0
        assert (tmp_path / "x").read_bytes() == bundle.read_bytes()
    part.parent.mkdir()
    part.symlink_to(tmp_path / "elsewhere")
    assert pull(url, "-o", tmp_path / "x").code == 3 and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("upward", [True, False], ids=["push", "pull"])
def test_a_transfer_survives_a_restart(registry: Registry, tmp_path: Path, upward: bool) -> None:
    bundle, url = make_bundle(tmp_path / "b.tar.gz", 4_000_000, seed=upward), f"{registry.url}:dies"

    def die() -> None:
        registry.kill()
        registry.start()

    wire = Wire(registry.port, 2_500_000, die, up=upward)
    through = url.replace(str(registry.port), str(wire.port))
    ran = push(bundle, through if upward else url)
    if not upward:
        ran = pull(through, "-o", tmp_path / "x.tar.gz")
    wire.close()
    assert ran.code == 0 and "once more in 0.5 s" in ran.err
    assert pull(url, "-o", tmp_path / "x.tar.gz").code == 0
    assert (tmp_path / "x.tar.gz").read_bytes() == bundle.read_bytes()


def test_a_registry_with_tls_and_a_password_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    authority, server = certificates(tmp_path / "tls")
    with started(tmp_path / "registry", tls=server, password=True) as registry:
        url, bundle = f"{registry.url}:1", make_bundle(tmp_path / "b.tar.gz")
        assert run_here("push", bundle, url).ends(3, "no trusted TLS", "REQUESTS_CA_BUNDLE")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        assert run_here("push", bundle, url).ends(2, "wants a user and a password", "docker login")
        folder = tmp_path / "docker"
        for password, code in (("wrong", 2), (PASSWORD, 0)):
            log_in(folder, registry.port, password)
            ran = run_here("push", bundle, url)
            assert ran.code == code and ("does not let carol" in ran.err) == bool(code)
        answer = json.dumps({"Username": USER, "Secret": PASSWORD})
        helper = program(tmp_path / "bin/docker-credential-test", f"print({answer!r})", sys.executable)
        monkeypatch.setenv("PATH", str(helper.parent), prepend=os.pathsep)
        (folder / "config.json").write_text('{"credsStore": "test"}')
        assert run_here("pull", url, "-o", tmp_path / "x").code == 0
        assert (tmp_path / "x").read_bytes() == bundle.read_bytes()
        assert PASSWORD not in ran.err + ran.out
        plain = run_here("pull", url, "--plain-http", "-o", tmp_path / "y")
        assert plain.code == 3 and len(plain.err.splitlines()) <= 2
