"""Keys on P-256, the one curve of cosign's formats: public in PEM, private as cosign or openssl writes it."""

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
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )


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
_CURVE = "secp256r1"


def read_private_key(path: Path, environ: Mapping[str, str] = os.environ) -> EllipticCurvePrivateKey:
    need_library("--sign")
    try:
        raw = _read(path)
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
        remedy = HOW_TO_MAKE if password is None else f"it is in {PASSWORD}, or asked for"
        raise UsageError(f"--sign {path} {error}", remedy) from None


def _read(path: Path) -> bytes:
    with open_regular(path, _LARGEST) as file:
        mode = os.fstat(file.fileno()).st_mode
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            open_to = f"--sign {path}: others may use it (mode {stat.S_IMODE(mode):03o})"
            raise UsageError(open_to, f"chmod 600 {path}")
        return file.read(_LARGEST)


def _password(path: Path, environ: Mapping[str, str]) -> bytes:
    if PASSWORD in environ:
        return environ[PASSWORD].encode(errors="surrogateescape")
    if not sys.stdin.isatty():
        raise UsageError(f"--sign {path} needs a password, and nobody can type it here", f"set {PASSWORD}")
    try:
        return getpass.getpass(f"Password of {path}: ").encode()
    except EOFError:
        raise UsageError(f"--sign {path} needs a password, and none was typed", f"set {PASSWORD}") from None


def _opened(envelope: bytes, password: bytes) -> bytes:
    """cosign's own: scrypt, and NaCl's secret box around the key in PKCS #8."""
    need_library("a key of cosign's", "nacl")
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    try:
        told = json.loads(envelope)
        kdf, cipher = told["kdf"], told["cipher"]
        if kdf["name"] != "scrypt" or cipher["name"] != "nacl/secretbox" or kdf["params"] not in _STRENGTHS:
            raise WrongKey("is locked in a way that cosign does not use")
        box = SecretBox(_derived(password, _bytes(kdf["salt"]), kdf["params"]))
        return box.decrypt(_bytes(told["ciphertext"]), _bytes(cipher["nonce"]))
    except CryptoError:
        raise WrongKey("cannot be opened with this password") from None
    except WrongKey:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise WrongKey("is no key of cosign's") from None


def _bytes(text: Any) -> bytes:
    return base64.b64decode(text, validate=True)


def _derived(password: bytes, salt: bytes, strength: dict[str, int]) -> bytes:
    n, r, p = strength["N"], strength["r"], strength["p"]
    return hashlib.scrypt(password, salt=salt, n=n, r=r, p=p, dklen=32, maxmem=256 * n * r)


class WrongKey(ValueError):
    """The message goes on where the key's name ends: `is a key of the kind RSA`."""


def need_library(what: str, library: str = "cryptography") -> None:
    if find_spec(library) is None:
        raise UsageError(f"{what} needs {library}", INSTALL)


def public_key(pem: bytes) -> EllipticCurvePublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise WrongKey("is no public key in PEM") from None
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name != _CURVE:
        raise WrongKey(f"is {_kind(key)}: keys on the curve P-256 are read")
    return key


def private_key(der: bytes, password: bytes | None) -> EllipticCurvePrivateKey:
    """In PKCS #8, or in the form that curves had before it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        key = load_der_private_key(der, password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        told = "is no private key" if password is None else "cannot be opened with this password"
        raise WrongKey(told) from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name != _CURVE:
        raise WrongKey(f"is {_kind(key)}: keys on the curve P-256 are read")
    return key


def sign(key: EllipticCurvePrivateKey, digest: bytes) -> str:
    """`digest` is the SHA-256 of what is signed; in base64, on one line."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
    from cryptography.hazmat.primitives.hashes import SHA256

    return base64.b64encode(key.sign(digest, ECDSA(Prehashed(SHA256())))).decode()


def verifies(key: EllipticCurvePublicKey, digest: bytes, text: str) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        key.verify(base64.b64decode(text, validate=True), digest, ECDSA(Prehashed(SHA256())))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _kind(key: object) -> str:
    """`an RSA key`, from the library's own name for it."""
    curve = getattr(getattr(key, "curve", None), "name", None)
    if curve:
        return f"a key on the curve {curve}"
    name = type(key).__name__.removeprefix("_").removesuffix("PublicKey").removesuffix("PrivateKey")
    return f"a key of the kind {name}"
