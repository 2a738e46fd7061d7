"""The key that a bundle is signed with: cosign's own file, or PEM as openssl writes it."""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular
from sgl_tune.ship.curve import WrongKey, need_library, private_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

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
