"""Keys on P-256, the only curve of cosign's formats: public as PEM, private as cosign or openssl writes."""

from __future__ import annotations

import base64
import binascii
import getpass
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

PASSWORD = "COSIGN_PASSWORD"
HOW_TO_MAKE = (
    "cosign generate-key-pair, or: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes256"
    " -out sign.key"
)
_LARGEST = 64 << 10
_PEM = re.compile(rb"-----BEGIN ((?:[A-Z]+ ){0,2}PRIVATE KEY)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_OF_COSIGN = (b"ENCRYPTED SIGSTORE PRIVATE KEY", b"ENCRYPTED COSIGN PRIVATE KEY")
_LOCKED = b"ENCRYPTED PRIVATE KEY"
# The strengths that its library writes; any other would be somebody else's word on how long this takes.
_STRENGTHS = ({"N": 1 << 15, "r": 8, "p": 1}, {"N": 1 << 16, "r": 8, "p": 1}, {"N": 1 << 17, "r": 8, "p": 1})
INSTALL = "pip install 'sgl-tune[sign]'"


def read_private_key(path: Path, environ: Mapping[str, str] = os.environ) -> EllipticCurvePrivateKey:
    need_library("--sign")
    try:
        raw = _read(path, stat.S_IRWXO | stat.S_IWGRP, f"--sign {path}: others may use it", "600")
    except OSError as error:
        raise UsageError(f"--sign {path}: {error.strerror}", HOW_TO_MAKE) from None
    block = _PEM.search(raw)
    if block is None:
        what = "a public key" if b"PUBLIC KEY" in raw else "no private key in PEM"
        raise UsageError(f"--sign {path} is {what}", HOW_TO_MAKE)
    kind, body = block[1], base64.b64decode(block[2])
    password = _password(path, environ) if kind in (*_OF_COSIGN, _LOCKED) else None
    try:
        if kind in _OF_COSIGN:
            return private_key(_opened(body, password or b""), None)
        return private_key(body, password)
    except WrongKey as error:
        remedy = HOW_TO_MAKE if password is None else f"the password is in {PASSWORD}, or asked for"
        raise UsageError(f"--sign {path} {error}", remedy) from None


def read_public_key(path: Path) -> EllipticCurvePublicKey:
    """Read a public key. Others must not be able to write its file: it decides whom we trust."""
    need_library("--trust")
    try:
        raw = _read(path, stat.S_IWGRP | stat.S_IWOTH, f"{path}: others may write it", "go-w", owned=True)
    except OSError as error:
        raise UsageError(f"--trust {path} cannot be read: {error.strerror}") from None
    try:
        return public_key(raw)
    except WrongKey as error:
        remedy = "give the public key: cosign.pub, or what `openssl pkey -in KEY -pubout` writes"
        if b"public-key" in raw:
            remedy = "policy files are no longer read: give --trust once for each of its keys"
        raise UsageError(f"{path} {error}", remedy) from None


def _read(path: Path, forbidden: int, told: str, mode: str, owned: bool = False) -> bytes:
    with open_regular(path, _LARGEST) as file:
        status = os.fstat(file.fileno())
        if status.st_mode & forbidden:
            raise UsageError(f"{told} (mode {stat.S_IMODE(status.st_mode):03o})", f"chmod {mode} {path}")
        if owned and status.st_uid not in (0, os.geteuid()):
            raise UsageError(f"{path} belongs to user {status.st_uid}", "give a copy of your own, or root's")
        return file.read(_LARGEST)


def _password(path: Path, environ: Mapping[str, str]) -> bytes:
    if PASSWORD in environ:
        return environ[PASSWORD].encode(errors="surrogateescape")
    if not sys.stdin.isatty():
        raise UsageError(f"--sign {path} needs a password, and no terminal is here", f"set {PASSWORD}")
    try:
        return getpass.getpass(f"Password of {path}: ").encode()
    except EOFError:
        raise UsageError(f"--sign {path} needs a password, and none was typed", f"set {PASSWORD}") from None


def _opened(envelope: bytes, password: bytes) -> bytes:
    """Decrypt cosign's key file: scrypt, and NaCl's secret box around a PKCS #8 key."""
    need_library("a key of cosign's", "nacl")
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    try:
        told = json.loads(envelope)
        kdf, cipher = told["kdf"], told["cipher"]
        if kdf["name"] != "scrypt" or cipher["name"] != "nacl/secretbox" or kdf["params"] not in _STRENGTHS:
            raise WrongKey("is locked in a way that cosign does not use")
        n, r, p = (kdf["params"][name] for name in "Nrp")
        salt = _bytes(kdf["salt"])
        key = hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, dklen=32, maxmem=256 * n * r)
        return SecretBox(key).decrypt(_bytes(told["ciphertext"]), _bytes(cipher["nonce"]))
    except CryptoError:
        raise WrongKey("cannot be opened with this password") from None
    except WrongKey:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise WrongKey("is no key of cosign's") from None


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


class WrongKey(ValueError):
    """A key cannot be used. The message continues a sentence: `is a key of the kind RSA`."""


def need_library(what: str, library: str = "cryptography") -> None:
    if find_spec(library) is None:
        raise UsageError(f"{what} needs {library}", INSTALL)


def public_key(pem: bytes) -> EllipticCurvePublicKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _loaded(lambda: load_pem_public_key(pem), "is no public key in PEM")
    assert isinstance(key, EllipticCurvePublicKey)
    return key


def private_key(der: bytes, password: bytes | None) -> EllipticCurvePrivateKey:
    """Load a private key, in PKCS #8 or in the older form for curves."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    told = "is no private key" if password is None else "cannot be opened with this password"
    key = _loaded(lambda: load_der_private_key(der, password), told)
    assert isinstance(key, EllipticCurvePrivateKey)
    return key


def _loaded(load: Callable[[], object], otherwise: str) -> object:
    """Return the key that `load` reads. Raise WrongKey if it cannot, or if the key is on another curve."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = load()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise WrongKey(otherwise) from None
    curve = getattr(getattr(key, "curve", None), "name", None)
    if curve == "secp256r1":
        return key
    kind = type(key).__name__.removesuffix("PublicKey").removesuffix("PrivateKey")
    what = f"a key on the curve {curve}" if curve else f"a key of the kind {kind}"
    raise WrongKey(f"is {what}: keys on the curve P-256 are read")


def sign(key: EllipticCurvePrivateKey, digest: bytes) -> str:
    """Sign `digest`, the SHA-256 of the signed content; return the signature in base64 on one line."""
    return base64.b64encode(key.sign(digest, _ecdsa())).decode()


def verifies(key: EllipticCurvePublicKey, digest: bytes, text: str) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(base64.b64decode(text, validate=True), digest, _ecdsa())
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _ecdsa() -> Any:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
    from cryptography.hazmat.primitives.hashes import SHA256

    return ECDSA(Prehashed(SHA256()))
