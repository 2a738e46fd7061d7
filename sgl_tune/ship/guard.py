"""What is asked of a bundle before it lands: of its bytes, and then of its manifest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sgl_tune.ship.manifest import BadBundle, BundleManifest
from sgl_tune.ship.policy import Contents, Policy
from sgl_tune.ship.signature import Signature
from sgl_tune.ship.trust import Verdict, judge, vouched
from sgl_tune.stores.find import TACTICS

_UNKNOWN = "(unknown)"


@dataclass(frozen=True, slots=True)
class Guard:
    """`pulled`: it comes from where others write. `allowed`: code that nobody vouches for is wanted."""

    pinned: str | None = None
    policy: Policy | None = None
    signatures: tuple[Signature, ...] = ()
    pulled: bool = False
    allowed: bool = False

    @property
    def check(self) -> Callable[[str], None] | None:
        """For the digest, before anything is decompressed. None: nothing is asked that needs it."""
        return self._check if self.pinned or self.policy else None

    def judge(self, digest: str | None, manifest: BundleManifest) -> Verdict:
        """`digest`: what was checked; where nothing was, no policy is met."""
        given = vouched(self.policy, self.signatures, digest or "")
        return judge(given, contents_of(manifest), self.pulled, self.allowed)

    def _check(self, digest: str) -> None:
        if self.pinned and digest != self.pinned:
            told = f"its digest is {digest}, and not {self.pinned}"
            raise BadBundle(told, "this is another bundle: do not use it")
        vouched(self.policy, self.signatures, digest)


def contents_of(manifest: BundleManifest) -> Contents:
    """Which stores there are was held against the list of its files; models and keys are its maker's word."""
    models = tuple(dict.fromkeys(next(iter(cache.key_parts), _UNKNOWN) for cache in manifest.caches))
    stores = tuple(row.store for row in manifest.stores)
    return Contents(models, manifest.keys, (TACTICS, *stores) if manifest.caches else stores)
