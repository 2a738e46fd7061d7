"""Whether a bundle may land: by its bytes before anything of it is opened, then by what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.ship.manifest import BadBundle, BundleManifest
from sgl_tune.ship.signing.policy import Contents, Policy, Signer
from sgl_tune.ship.signing.signature import Signature
from sgl_tune.stores.find import TACTICS

ALLOW = "--allow-unsigned-code"
_UNKNOWN = "(unknown)"


@dataclass(frozen=True, slots=True)
class Vouched:
    """Whose signatures of these very bytes are good, and whether there was one that nobody could check."""

    policy: Policy | None
    signers: tuple[Signer, ...] = ()
    unchecked: bool = False


def vouched(policy: Policy | None, signatures: Sequence[Signature], digest: str) -> Vouched:
    """Before the first byte is opened. `digest` is that of the bytes which are then unpacked."""
    if policy is None:
        return Vouched(None, unchecked=bool(signatures))
    good = tuple(one for one in policy.signers if any(given.is_by(one.key, digest) for given in signatures))
    if signatures and not good:
        raise CheckFailed(
            f"{digest} is signed, but by no key of {policy.where}",
            "it was changed after it was signed, or somebody else signed it: get it anew, or ask who did",
        )
    if not signatures and policy.unsigned == "nothing":
        raise CheckFailed(f"{digest} is not signed, and {policy.where} asks for that", "pack it with --sign")
    return Vouched(policy, good)


class Verdict(NamedTuple):
    """`doubt`: a server would run what nobody vouches for."""

    signed_by: tuple[str, ...]
    words: str
    doubt: bool = False


def judge(given: Vouched, contents: Contents, pulled: bool, allow_unsigned_code: bool = False) -> Verdict:
    """Before the first byte lands: refused, or what is to be said of who stands for it."""
    code = ", ".join(contents.code)
    if given.policy is not None and given.signers:
        return _of_signers(given.policy, given.signers, contents)
    unread = "; --trust KEY would check its signature" if given.unchecked else ""
    if not code:
        return Verdict((), f"tactics alone, nothing in it is code{unread}")
    unknown = f"nobody vouches for the code in it ({code}), and a server that loads it runs it{unread}"
    nobody = Verdict((), unknown, doubt=True)
    holds = f"the bundle holds code ({code})"
    if given.policy is not None:
        if given.policy.unsigned == "anything":
            return nobody
        raise CheckFailed(f"{holds} and is not signed", f"{given.policy.where} asks for that")
    if not pulled or allow_unsigned_code:
        return nobody
    if given.unchecked:
        raise UsageError(f"{holds}, and nothing to check its signature with", f"add --trust KEY, or {ALLOW}")
    raise UsageError(f"{holds}, and nobody has signed it", f"have it signed, or add {ALLOW}")


def _of_signers(policy: Policy, signers: Sequence[Signer], contents: Contents) -> Verdict:
    beyond = {signer.name: signer.beyond(contents) for signer in signers}
    good = tuple(name for name, what in beyond.items() if what is None)
    if not good:
        name, what = next(iter(beyond.items()))
        raise CheckFailed(
            f"the bundle is signed by {name}, who may not sign {what}", f"{policy.where} limits that key"
        )
    return Verdict(good, f"signed by {', '.join(good)}")


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
