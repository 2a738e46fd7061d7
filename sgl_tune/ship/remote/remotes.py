"""The places to push to and pull from: one line per URL scheme, and one module behind it; how long they may
take."""

import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.nearest import meant
from sgl_tune.errors import UsageError
from sgl_tune.ship.members import SUFFIXES
from sgl_tune.ship.remote.partial import Partial
from sgl_tune.ship.signing.signature import Signature
from sgl_tune.units import human_bytes, shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as PrivateKey

PATIENCE_SECONDS = 60.0
_SECRET = re.compile(r"//[^/\s]*@")
_STORES = "pip install 'sgl-tune[stores]'"
_ENDS = tuple(SUFFIXES)
_BUNDLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,199}")
_MEANS_MORE = "*?[]{}#\\"
_LONGEST = 1000


class Place(NamedTuple):
    """A kind of place. `module`: has the class `name` and imports `library`. `install`: installs it."""

    module: str
    name: str
    library: str
    install: str


PLACES = {
    "oci": Place("registry", "RegistryRemote", "oras", "pip install 'sgl-tune[oci]'"),
    "file": Place("object_store", "ObjectStore", "fsspec", _STORES),
    "s3": Place("object_store", "ObjectStore", "s3fs", f"{_STORES} s3fs"),
    "gs": Place("object_store", "ObjectStore", "gcsfs", f"{_STORES} gcsfs"),
    "hf": Place("object_store", "ObjectStore", "huggingface_hub", f"{_STORES} huggingface_hub"),
}


@dataclass(frozen=True, slots=True)
class How:
    """How a transfer is made. `note`: gets news. `warn`: gets warnings that no --quiet hides. `progress`:
    gets the current step, the bytes done and all bytes."""

    plain_http: bool = False
    patience: float = PATIENCE_SECONDS
    note: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None
    progress: Callable[[str, int, int], None] = lambda what, done, total: None


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine a bundle is for. None: not known."""

    gpu: str | None = None
    arch: str | None = None
    platform: str | None = None

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.gpu, self.arch, self.platform))) or "any machine"


def fits(bundle: Machine, machine: Machine) -> bool:
    """Whether a bundle fits a machine. Values that one of them leaves out fit."""
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
    """One bundle at a URL. `reference`: names exactly this bundle, even after later pushes."""

    reference: str
    digest: str
    bytes: int
    machine: Machine
    told: dict[str, str] = field(default_factory=dict)


def only_fit(offers: Sequence[Offer], machine: Machine, where: str, remedy: str) -> Offer:
    """Return the one bundle for this machine; raise UsageError with the choice if there is not one."""
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
    """The result of a push. `replaced`: what it removed from this URL. `beside`: what else is there."""

    offer: Offer
    sent: int
    replaced: tuple[Offer, ...] = ()
    beside: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulled:
    """A fetched bundle. `file`: has its offer's digest and size. Its signatures are not checked yet."""

    offer: Offer
    file: Partial
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The bundles at a URL; if it names no bundle, the names that do."""

    offers: tuple[Offer, ...] = ()
    names: tuple[str, ...] = ()


class Absent(UsageError):
    """The place does not have what was asked for."""


class Remote(Protocol):
    def push(self, bundle: Path, machine: Machine, alone: bool, key: "PrivateKey | None") -> Pushed:
        """Send a bundle with the signature beside it, and a new one by `key`. `alone`: remove all others."""

    def pull(self, folder: Path, machine: Machine) -> AbstractContextManager[Pulled]:
        """Yield a checked file in `folder` until the block ends. A broken download continues there, and a
        refused file stays for the next attempt."""

    def listing(self) -> Listing: ...


def without_secrets(text: str) -> str:
    """Return the text without passwords in URLs."""
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
    made: Remote = getattr(import_module(f"sgl_tune.ship.remote.{place.module}"), place.name)(url, how)
    return made


def offer_json(offer: Offer) -> dict[str, object]:
    return {
        "reference": offer.reference,
        "digest": offer.digest,
        "bytes": offer.bytes,
        **asdict(offer.machine),
        "told": offer.told,
    }


class TooSlow(Exception):
    """An answer did not come in time."""


@contextmanager
def within(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise TooSlow when the time is over: a peer that sends a byte a minute is never silent for long. The
    yielded function restarts the time, from any thread. Limits cannot be nested. Outside the main thread
    there is no limit but the socket's own."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    running, turn = [True], threading.Lock()

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    def begin() -> None:
        with turn:
            if running:
                signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    begin()
    try:
        yield begin
    finally:
        with turn:  # another thread may not restart the time after this
            running.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A bundle's address in an object store. `folder`: no slash at its end. `bundle`: None if the URL
    names no file."""

    scheme: str
    folder: str
    bundle: str | None = None

    @property
    def place(self) -> str:
        return f"{self.scheme}://{self.folder}"

    def of(self, name: str) -> str:
        return f"{self.place}/{name}"


def parse_object_name(url: str) -> ObjectName:
    scheme, _, path = url.partition("://")
    said = shown(without_secrets(url), 200)
    if "@" in path.partition("/")[0]:
        remedy = "the library of the store finds its own: variables, a profile, a role"
        raise UsageError(f"{said}: a URL holds no name and no password", remedy)
    parts = path.rstrip("/").split("/")
    if scheme == "file" and parts[0]:
        raise UsageError(f"{said} names the host {shown(parts[0])}", "write file:///absolute/path")
    if len(path) > _LONGEST or not path.isprintable() or any(one in path for one in _MEANS_MORE):
        remedy = f"at most {_LONGEST} characters, and none of {_MEANS_MORE}"
        raise UsageError(f"{said} is no plain path", remedy)
    if any(part in ("", ".", "..") for part in parts[scheme == "file" :]):
        raise UsageError(f"{said} names nothing to read from", f"write {scheme}://FOLDER/NAME.tar.gz")
    *above, last = parts
    if path.endswith("/") or not last.endswith(_ENDS) or not above:
        return ObjectName(scheme, "/".join(parts))
    return ObjectName(scheme, "/".join(above), checked_bundle(last))


def is_bundle_name(name: str) -> bool:
    return name.endswith(_ENDS) and _BUNDLE.fullmatch(name) is not None


def checked_bundle(name: str) -> str:
    if not is_bundle_name(name):
        raise UsageError(f"{shown(name)} is no name for a bundle", "letters, digits, and .tar.gz or .tar.zst")
    return name
