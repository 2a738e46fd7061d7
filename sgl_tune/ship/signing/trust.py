"""Decide whether a bundle may land: by its digest before it is opened, then by its contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.ship.manifest import BadBundle, BundleManifest
from sgl_tune.ship.signing.signature import Signature
from sgl_tune.stores.rows import BY_ID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

ALLOW = "--allow-unsigned-code"


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
    """What a bundle must be. `pinned`: its digest. `trusted`: keys, one of which must have signed it.
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
