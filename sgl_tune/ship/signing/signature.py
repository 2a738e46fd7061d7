"""Signatures as cosign makes them, of a file or of a statement about an image; and which bundles may land."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.reading import bounded_bytes
from sgl_tune.ship.manifest import BadBundle, BundleManifest
from sgl_tune.ship.remote.registry_name import DIGEST
from sgl_tune.ship.signing.keys import sign, verifies
from sgl_tune.stores.rows import BY_ID
from sgl_tune.units import shown
from sgl_tune.writing import write_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

SUFFIX = ".sig"
LARGEST_SIGNATURE = 1 << 10
LARGEST_STATEMENT = 64 << 10
STATEMENT_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
ANNOTATION = "dev.cosignproject.cosign/signature"
ALLOW = "--allow-unsigned-code"
_WHAT = "cosign container image signature"
_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,200}={0,2}")


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature. `statement`: what was signed, if it is not the bundle. It names the image's manifest,
    which names the bundle; the code that found it has checked both."""

    text: str
    statement: bytes | None = None

    def is_by(self, key: EllipticCurvePublicKey, digest: str) -> bool:
        """Whether this key signed the bundle with this digest."""
        signed = _raw(digest) if self.statement is None else hashlib.sha256(self.statement).digest()
        return verifies(key, signed, self.text)


def signature_of(key: EllipticCurvePrivateKey, digest: str) -> Signature:
    """Sign the file with this digest, as `cosign sign-blob --key` does."""
    return Signature(sign(key, _raw(digest)))


def parse_signature(raw: bytes, where: str) -> Signature:
    text = raw.decode("ascii", errors="replace").strip()
    if not _BASE64.fullmatch(text):
        raise CheckFailed(f"{where} holds no signature: {shown(text)}", "one line of base64 is needed")
    return Signature(text)


def signature_path(bundle: Path) -> Path:
    return bundle.with_name(bundle.name + SUFFIX)


def read_signature(bundle: Path) -> Signature | None:
    """Read the signature beside a bundle, or return None. A dangling link is an error."""
    path = signature_path(bundle)
    try:
        return parse_signature(bounded_bytes(path, LARGEST_SIGNATURE), str(path))
    except FileNotFoundError as error:
        if path.is_symlink():
            raise CheckFailed(f"{path} cannot be read: {error.strerror}") from None
        return None
    except OSError as error:
        raise CheckFailed(f"{path} cannot be read: {error.strerror}") from None


def write_signature(bundle: Path, signature: Signature) -> Path:
    path = signature_path(bundle)
    write_text(path, signature.text)
    return path


def keep_signature(bundle: Path, signatures: Iterable[Signature]) -> None:
    """Write the fetched signature beside the bundle; remove another file's signature, with which it would
    be refused."""
    found = next((one for one in signatures if one.statement is None), None)
    if found is None:
        signature_path(bundle).unlink(missing_ok=True)
    else:
        write_signature(bundle, found)


def statement_about(manifest: str, reference: str) -> bytes:
    """Return the statement to sign in a registry: that the signer means `manifest`, a digest. `reference`
    is informative only: cosign does not compare it with the image's place."""
    image = {"docker-manifest-digest": manifest}
    critical = {"identity": {"docker-reference": reference}, "image": image, "type": _WHAT}
    return json.dumps({"critical": critical, "optional": None}, separators=(",", ":")).encode()


def signed_statement(key: EllipticCurvePrivateKey, manifest: str, reference: str) -> Signature:
    """Sign a statement. It becomes a layer at the tag `statement_tag(manifest)`, with `text` as
    annotation."""
    statement = statement_about(manifest, reference)
    return Signature(sign(key, hashlib.sha256(statement).digest()), statement)


def statement_tag(manifest: str) -> str:
    return manifest.replace(":", "-") + SUFFIX


def statement_found(text: str, statement: bytes, manifest: str) -> Signature:
    """Return a signature found in a registry. `manifest`: the digest in the tag where it was found."""
    about = _manifest_in(statement)
    if about != manifest:
        raise CheckFailed(f"the signature of {manifest} is about {about}", "somebody has moved it: sign anew")
    return Signature(parse_signature(text.encode(errors="replace"), manifest).text, statement)


def _manifest_in(statement: bytes) -> str:
    try:
        critical = json.loads(statement)["critical"]
        manifest = critical["image"]["docker-manifest-digest"]
        if critical["type"] == _WHAT and DIGEST.fullmatch(manifest):
            return str(manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CheckFailed("a signature in the registry is about something else than an image")


def _raw(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


class Trusted(NamedTuple):
    """A public key of --trust. `name`: its file's name."""

    name: str
    key: EllipticCurvePublicKey


class Verdict(NamedTuple):
    """Who signed a bundle. `doubt`: a server would run code that nobody signed."""

    signed_by: tuple[str, ...]
    words: str
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """What a bundle must be, to land. Its digest is judged before it is opened, then its contents.
    `pinned`: its digest. `trusted`: keys, one of which must have signed it.
    `pulled`: it comes from where others can write. `allowed`: unsigned code is accepted."""

    pinned: str | None = None
    trusted: tuple[Trusted, ...] = ()
    signatures: tuple[Signature, ...] = ()
    pulled: bool = False
    allowed: bool = False

    @property
    def check(self) -> Callable[[str], tuple[str, ...]] | None:
        """Return the check of the digest before anything is decompressed, or None if nothing requires it."""
        return self.signers if self.pinned or self.trusted else None

    def signers(self, digest: str) -> tuple[str, ...]:
        """Return the names of the keys that signed this digest; raise if the bundle must not be opened."""
        if self.pinned and digest != self.pinned:
            told = f"its digest is {digest}, not {self.pinned}"
            raise BadBundle(told, "this is another bundle: do not use it")
        good = tuple(
            one.name for one in self.trusted if any(sig.is_by(one.key, digest) for sig in self.signatures)
        )
        if self.trusted and not self.signatures:
            raise CheckFailed(f"{digest} is not signed, and --trust asks for that", "pack it with --sign")
        if self.trusted and not good:
            names = ", ".join(one.name for one in self.trusted)
            raise CheckFailed(
                f"{digest} is signed, but not by {names}",
                "it was changed after it was signed, or somebody else signed it: get it anew, or ask who did",
            )
        return good

    def judge(self, digest: str | None, manifest: BundleManifest) -> Verdict:
        """Judge before the first byte lands; raise if unsigned code was pulled and is not allowed."""
        if self.trusted and digest:
            good = self.signers(digest)
            return Verdict(good, f"signed by {', '.join(good)}")
        unread = "; --trust KEY checks its signature" if self.signatures else ""
        code = ", ".join(row.store for row in manifest.stores if BY_ID[row.store].executable)
        if not code:
            return Verdict((), f"it holds tactics alone and no code{unread}")
        if self.pulled and not self.allowed:
            why = "no key was given to check its signature" if self.signatures else "it is not signed"
            way = "add --trust KEY" if self.signatures else "have it signed"
            way = f"{way}, or `pull` it with {ALLOW}"
            raise UsageError(f"the bundle holds code ({code}), and {why}", way)
        unknown = f"it holds code ({code}) without a checked signature, and a server would run it{unread}"
        return Verdict((), unknown, doubt=True)
