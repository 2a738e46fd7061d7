"""ECDSA on P-256 over SHA-256: the one scheme that every implementation of cosign's format must have."""

from __future__ import annotations

import base64
import binascii
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sgl_tune.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

INSTALL = "pip install 'sgl-tune[sign]'"
_CURVE = "secp256r1"


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
