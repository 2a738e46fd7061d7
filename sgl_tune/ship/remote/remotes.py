"""Where a bundle can be pushed to and pulled from: one line a URL's scheme, one module behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.nearest import meant
from sgl_tune.errors import UsageError
from sgl_tune.ship.remote.partial import Partial
from sgl_tune.ship.signing.signature import Signature
from sgl_tune.units import human_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as PrivateKey

PATIENCE_SECONDS = 60.0
_SECRET = re.compile(r"//[^/\s]*@")
_STORES = "pip install 'sgl-tune[stores]'"


class Place(NamedTuple):
    """`module` of this package has `remote(url, how)`; it imports `library`, which is installed like that."""

    module: str
    library: str
    install: str


PLACES = {
    "oci": Place("registry", "oras", "pip install 'sgl-tune[oci]'"),
    "file": Place("object_store", "fsspec", _STORES),
    "s3": Place("object_store", "s3fs", f"{_STORES} s3fs"),
    "gs": Place("object_store", "gcsfs", f"{_STORES} gcsfs"),
    "hf": Place("object_store", "huggingface_hub", f"{_STORES} huggingface_hub"),
}


@dataclass(frozen=True, slots=True)
class How:
    """What a user said of the way there, and who hears of it: `note` of what he should know, `warn` of what
    no --quiet hides, `progress` of what is being done, the bytes that are done and all of them."""

    plain_http: bool = False
    patience: float = PATIENCE_SECONDS
    note: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, int, int], None] = lambda what, done, total: None


@dataclass(frozen=True, slots=True)
class Machine:
    """Whom a bundle is for. None: not known."""

    gpu: str | None = None
    arch: str | None = None
    platform: str | None = None

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.gpu, self.arch, self.platform))) or "any machine"


def fits(bundle: Machine, machine: Machine) -> bool:
    """What either does not say fits."""
    if bundle.arch and machine.arch and bundle.arch != machine.arch:
        return False
    if bundle.platform and machine.platform and bundle.platform != machine.platform:
        return False
    return not (bundle.gpu and machine.gpu) or _same_gpu(bundle.gpu, machine.gpu)


def _same_gpu(one: str, other: str) -> bool:
    try:
        return find_gpu(one).name == find_gpu(other).name
    except ConfigError:
        return one == other


@dataclass(frozen=True, slots=True)
class Offer:
    """One bundle at a URL. `reference` names it and nothing else, whatever is pushed there later."""

    reference: str
    digest: str
    bytes: int
    machine: Machine
    told: dict[str, str] = field(default_factory=dict)


def only_fit(offers: Sequence[Offer], machine: Machine, where: str, remedy: str) -> Offer:
    """The one for this machine. UsageError says what there is, where none or several are."""
    good = [one for one in offers if fits(one.machine, machine)]
    if len(good) == 1:
        return good[0]
    if not good:
        others = f", but {_in_words(offers)}" if offers else ""
        raise UsageError(f"{where}: no bundle for {machine}{others}", "--gpu names another GPU")
    by_gpu = "--gpu NAME, or " if len({one.machine.gpu for one in good}) > 1 else ""
    told = f"{where}: {len(good)} fit {machine}: {_in_words(good)}"
    raise UsageError(told, f"{by_gpu}name one: {good[0].reference}{remedy}")


def _in_words(offers: Sequence[Offer]) -> str:
    said = []
    for one in offers[:8]:
        what = one.told.get("sgl-tune.models", "kernels")
        said.append(f"{one.reference} ({one.machine}): {what} ({human_bytes(one.bytes)})")
    return "; ".join(said) + (" ..." if len(offers) > 8 else "")


@dataclass(frozen=True, slots=True)
class Pushed:
    """`replaced`: what the push removed from this URL; `beside`: what else is still there."""

    offer: Offer
    sent: int
    replaced: tuple[Offer, ...] = ()
    beside: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulled:
    """`file` has the digest and the size of its offer. Whether the signatures are good is not looked at."""

    offer: Offer
    file: Partial
    received: int
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """What is at a URL; of one that names no bundle, the names that would."""

    offers: tuple[Offer, ...] = ()
    names: tuple[str, ...] = ()


class Remote(Protocol):
    def push(self, bundle: Path, machine: Machine, alone: bool, key: PrivateKey | None) -> Pushed:
        """With the signature that lies beside it, and one by this key. `alone`: nothing is left beside it."""

    def pull(self, folder: Path, machine: Machine) -> AbstractContextManager[Pulled]:
        """A file in `folder`, checked, until the block ends. What broke off is taken up there, and what was
        refused is there for the next attempt."""

    def listing(self) -> Listing: ...


def without_secrets(text: str) -> str:
    """The text, without what may be a password in a URL."""
    return _SECRET.sub("//***@", text)


def remote(url: str, how: How) -> Remote:
    scheme, colon, _ = url.partition("://")
    place = PLACES.get(scheme) if colon else None
    if place is None:
        known = ", ".join(f"{name}://" for name in PLACES)
        folder = f"write file://{Path(url).resolve()}" if url.startswith(("/", ".")) else None
        near = meant(scheme, PLACES) if colon else folder
        raise UsageError(f"{without_secrets(url)} is not an address of bundles", near or f"write {known}...")
    if find_spec(place.library) is None:
        raise UsageError(f"{scheme}:// needs {place.library}", place.install)
    made: Remote = import_module(f"sgl_tune.ship.remote.{place.module}").remote(url, how)
    return made


def offer_json(offer: Offer) -> dict[str, object]:
    return {
        "reference": offer.reference,
        "digest": offer.digest,
        "bytes": offer.bytes,
        "gpu": offer.machine.gpu,
        "arch": offer.machine.arch,
        "platform": offer.machine.platform,
        "told": offer.told,
    }
