"""Signatures as cosign's own code and openssl make and read them."""

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.ship.signing.keys import WrongKey, public_key, read_private_key
from sgl_tune.ship.signing.signature import (
    Signature,
    parse_signature,
    read_signature,
    signature_of,
    signed_statement,
    statement_about,
    statement_found,
    statement_tag,
)
from tests.sgl_tune.ship.signing import make_keys

COSIGN = Path(__file__).with_name("cosign")
BUNDLE = b"a bundle\n"
DIGEST = f"sha256:{hashlib.sha256(BUNDLE).hexdigest()}"
OTHER = f"sha256:{hashlib.sha256(b'another').hexdigest()}"
PASSWORD = {"COSIGN_PASSWORD": "hello"}


def _key_of_cosign(folder: Path, name: str) -> Path:
    """As cosign leaves it: git keeps no such mode."""
    key = folder / f"{name}.key"
    key.touch(0o600)
    key.write_bytes((COSIGN / f"{name}.key").read_bytes())
    return key


@pytest.mark.parametrize("name", ["legacy", "standard"])
def test_what_cosigns_code_locked_and_signed_is_read(name: str, tmp_path: Path) -> None:
    public = public_key((COSIGN / f"{name}.pub").read_bytes())
    theirs = parse_signature((COSIGN / f"{name}.sig").read_bytes(), name)
    ours = signature_of(read_private_key(_key_of_cosign(tmp_path, name), PASSWORD), DIGEST)
    for signature in (theirs, ours):
        assert signature.is_by(public, DIGEST)
        assert not signature.is_by(public, OTHER)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_makes_keys_and_checks_what_they_sign(tmp_path: Path) -> None:
    def openssl(*words: object) -> str:
        line = ["openssl", *map(str, words)]
        return subprocess.run(line, check=True, capture_output=True, text=True, timeout=30).stdout

    private, public = tmp_path / "sign.key", tmp_path / "sign.pub"
    private.touch(0o600)
    curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    openssl("genpkey", *curve, "-aes256", "-pass", "pass:hello", "-out", private)
    openssl("pkey", "-in", private, "-passin", "pass:hello", "-pubout", "-out", public)
    bundle, raw = tmp_path / "bundle", tmp_path / "raw"
    bundle.write_bytes(BUNDLE)
    ours = signature_of(read_private_key(private, PASSWORD), DIGEST)
    raw.write_bytes(base64.b64decode(ours.text))
    assert openssl("dgst", "-sha256", "-verify", public, "-signature", raw, bundle) == "Verified OK\n"
    openssl("dgst", "-sha256", "-sign", private, "-passin", "pass:hello", "-out", raw, bundle)
    theirs = parse_signature(base64.b64encode(raw.read_bytes()), "theirs")
    assert theirs.is_by(public_key(public.read_bytes()), DIGEST)


def test_a_key_that_cannot_sign_is_refused_by_name(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    locked = _key_of_cosign(tmp_path, "legacy")
    foreign = tmp_path / "foreign.key"
    foreign.touch(0o600)
    strange = json.loads(base64.b64decode("".join(locked.read_text().splitlines()[1:-1])))
    strange["kdf"]["params"]["N"] = 1 << 30
    body = base64.b64encode(json.dumps(strange).encode()).decode()
    kind = "ENCRYPTED SIGSTORE PRIVATE KEY"
    foreign.write_text(f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
    public.chmod(0o600)
    for path, environ, told in [
        (locked, {"COSIGN_PASSWORD": "hullo"}, "cannot be opened with this password"),
        (locked, {}, "needs a password, and no terminal is here"),
        (foreign, PASSWORD, "is locked in a way that cosign does not use"),
        (public, {}, "is a public key"),
        (tmp_path / "none.key", {}, "No such file"),
        (tmp_path, {}, "is a folder"),
    ]:
        with pytest.raises(UsageError, match=told):
            read_private_key(path, environ)
    private.chmod(0o644)
    with pytest.raises(UsageError, match=r"others may use it \(mode 644\)"):
        read_private_key(private, {})


def test_keys_of_other_kinds_are_told_apart(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    for key, told in [
        (ed25519.Ed25519PrivateKey.generate(), "is a key of the kind Ed25519"),
        (ec.generate_private_key(ec.SECP384R1()), "is a key on the curve secp384r1"),
    ]:
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        with pytest.raises(WrongKey, match=told):
            public_key(pem)
    for raw in (b"", b"no key", make_keys(tmp_path)[0].read_bytes()):
        with pytest.raises(WrongKey, match="is no public key in PEM"):
            public_key(raw)


def test_a_signature_beside_a_bundle_is_read_or_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "cache.tar.gz"
    beside = tmp_path / "cache.tar.gz.sig"
    assert read_signature(bundle) is None
    beside.write_text("MEUC" * 20 + "\n")
    assert read_signature(bundle) == Signature("MEUC" * 20)
    for content in (b"", b"\xff\xfe", b"MEUC\nMEUC", b"<html>", b"A" * 5000):
        beside.write_bytes(content)
        with pytest.raises(CheckFailed, match=r"cache\.tar\.gz\.sig"):
            read_signature(bundle)
    beside.unlink()
    beside.symlink_to("nowhere")
    with pytest.raises(CheckFailed, match="cannot be read"):
        read_signature(bundle)


def test_a_statement_is_the_one_that_cosign_signs_and_binds_one_manifest(tmp_path: Path) -> None:
    # As cosign's own test spells it, but for the name: pkg/cosign/obsolete_test.go
    assert statement_about(OTHER, "registry.example/namespace/image") == (
        b'{"critical":{"identity":{"docker-reference":"registry.example/namespace/image"},"image":'
        b'{"docker-manifest-digest":"' + OTHER.encode() + b'"},"type":"cosign container image signature"},'
        b'"optional":null}'
    )
    private, public = make_keys(tmp_path)
    key = public_key(public.read_bytes())
    made = signed_statement(read_private_key(private, {}), OTHER, "localhost/tuned")
    assert made.statement is not None
    assert statement_tag(OTHER) == OTHER.replace("sha256:", "sha256-") + ".sig"
    found = statement_found(made.text, made.statement, OTHER)
    assert found.is_by(key, DIGEST), "the bundle's digest is the manifest's to say"
    assert not statement_found(made.text, statement_about(DIGEST, ""), DIGEST).is_by(key, DIGEST)
    with pytest.raises(CheckFailed, match=f"signature of {DIGEST} is about {OTHER}"):
        statement_found(made.text, made.statement, DIGEST)
    for statement in (b"", b"[]", b'{"critical":{}}', b'{"critical":{"image":[],"type":1}}', b"[" * 9999):
        with pytest.raises(CheckFailed, match="something else than an image"):
            statement_found(made.text, statement, OTHER)
