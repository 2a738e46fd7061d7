"""`s3://`, `gs://`, `hf://`, `file://`: keep a bundle and its signature there, through fsspec."""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import fsspec
from fsspec.asyn import sync
from fsspec.callbacks import Callback

from sgl_tune.errors import CheckFailed, SglTuneError, UsageError, WorkFailed
from sgl_tune.ship.manifest import LARGEST_BUNDLE
from sgl_tune.ship.remote.described import described, offered
from sgl_tune.ship.remote.partial import arriving
from sgl_tune.ship.remote.remotes import (
    Absent,
    How,
    Listing,
    Machine,
    Offer,
    Pulled,
    Pushed,
    TooSlow,
    checked_bundle,
    is_bundle_name,
    only_fit,
    parse_object_name,
    within,
    without_secrets,
)
from sgl_tune.ship.signing.signature import (
    LARGEST_SIGNATURE,
    SUFFIX,
    parse_signature,
    read_signature,
    signature_of,
)
from sgl_tune.units import human_bytes, shown
from sgl_tune.writing import written

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as PrivateKey

_PIECE = 8 << 20
_READ = 256 << 10
_PAUSES = (0.5, 1.0, 2.0)
_MOST_NAMES = 10_000
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the machine's own account",
    "hf": "HF_TOKEN, or `hf auth login`",
}
_WITHOUT = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "LocalTokenNotFoundError",
    "RefreshError",
)
Answer = TypeVar("Answer")


class ObjectStore:
    """One folder of an object store. All names are plain names of files directly in it."""

    def __init__(self, url: str, how: How) -> None:
        self.name, self._how = parse_object_name(url), how
        settings: dict[str, Any] = {"use_listings_cache": False}
        if self.name.scheme == "s3":
            waits = {"connect_timeout": min(how.patience, 10.0), "read_timeout": how.patience}
            settings["config_kwargs"] = {**waits, "retries": {"max_attempts": 1}}
        self._files: Any = fsspec.filesystem(self.name.scheme, skip_instance_cache=True, **settings)
        self._folder = self._files._strip_protocol(self.name.place)

    def push(self, bundle: Path, machine: Machine, alone: bool, key: "PrivateKey | None") -> Pushed:
        name = self.name.bundle or checked_bundle(bundle.name)
        about = described(bundle, machine, self._how.progress)
        signature = signature_of(key, about.digest) if key else read_signature(bundle)
        # A signature of other bytes would have these refused.
        with suppress(Absent):
            self._ask(self.name.of(name + SUFFIX), lambda: self._files.rm_file(self._path(name + SUFFIX)))
        self._write(name, bundle)
        if signature:
            with tempfile.NamedTemporaryFile(prefix="sgl-tune-") as file:
                file.write(signature.text.encode())
                file.flush()
                self._write(name + SUFFIX, Path(file.name))
        offer = Offer(self.name.of(name), about.digest, about.bytes, machine, dict(about.told))
        return Pushed(offer, about.bytes)

    @contextmanager
    def pull(self, folder: Path, machine: Machine) -> Iterator[Pulled]:
        name = self.name.bundle or self._only(machine)
        what, before = self.name.of(name), self._state(name)
        size = int(before["size"])
        if size > LARGEST_BUNDLE:
            most = f"a bundle has {human_bytes(LARGEST_BUNDLE)} at most"
            raise CheckFailed(f"{what} has {human_bytes(size)}; {most}")
        with arriving(folder, hashlib.sha256(what.encode()).hexdigest(), size, False) as partial:
            partial.begin_anew()
            while partial.bytes < size:
                partial.take(self._read(name, partial.bytes, min(size, partial.bytes + _PIECE)))
                self._how.progress("got", partial.bytes, size)
            partial.flush()
            if self._state(name) != before:
                raise WorkFailed(f"{what} changed while it was read", "pull again")
            signature = self._signature(name)
            offer = Offer(what, partial.digest, size, Machine())
            yield Pulled(offer, partial, (signature,) if signature else ())

    def listing(self) -> Listing:
        place = self.name.place
        listed = self._ask(f"{place}/", lambda: self._files.ls(self._folder, detail=True))
        if len(listed) > _MOST_NAMES:
            raise UsageError(f"{place}/ holds {len(listed):,} things", "name the bundle")
        sizes = {str(one["name"]).rpartition("/")[2]: int(one["size"] or 0) for one in listed}
        wanted = [name for name in sorted(sizes) if is_bundle_name(name) and self.name.bundle in (None, name)]
        return Listing(tuple(self._offer(name, sizes[name]) for name in wanted))

    def _offer(self, name: str, size: int) -> Offer:
        """Return a bundle as `pull --list` shows it. Only a file on this machine is opened for it."""
        is_here = self.name.scheme == "file"
        machine, told = offered(Path(self._path(name))) if is_here else (Machine(), {})
        return Offer(self.name.of(name), "", size, machine, told)

    def _only(self, machine: Machine) -> str:
        offers, place = self.listing().offers, f"{self.name.place}/"
        if not offers:
            raise UsageError(f"{place} holds no bundle", "`sgl-tune push` sends one")
        read = [one for one in offers if one.told]
        if len(offers) > 1 and not read:
            several = f"holds {len(offers)} bundles: {', '.join(one.reference for one in offers[:8])}"
            raise UsageError(f"{place} {several}", "name one of them")
        return only_fit(read or offers, machine, place, "").reference.rpartition("/")[2]

    def _state(self, name: str) -> dict[str, Any]:
        """Return a file's state. Equal states mean equal contents, as far as the store can tell."""
        told = self._ask(self.name.of(name), lambda: self._files.info(self._path(name)))
        if told["type"] != "file":
            raise UsageError(f"{self.name.of(name)} is no file")
        return {mark: told.get(mark) for mark in ("size", "ETag", "mtime")}

    def _signature(self, name: str) -> Any:
        try:
            size = int(self._state(name + SUFFIX)["size"])
        except Absent:
            return None
        raw = self._read(name + SUFFIX, 0, size) if 0 < size <= LARGEST_SIGNATURE else b""
        return parse_signature(raw, self.name.of(name + SUFFIX))

    def _read(self, name: str, start: int, end: int) -> bytes:
        what, path = self.name.of(name), self._path(name)
        if self.name.scheme == "s3":
            piece = self._ask(what, lambda: self._part_of_object(path, start, end))
        else:
            piece = bytes(self._ask(what, lambda: self._files.cat_file(path, start=start, end=end)))
        if len(piece) != end - start:
            raise WorkFailed(f"{what}: {len(piece):,} bytes came of {end - start:,}", "pull again")
        return piece

    def _part_of_object(self, path: str, start: int, end: int) -> bytes:
        """Return no more bytes than requested, even if the server sends more: s3fs would keep them all."""
        bucket, key, _ = self._files.split_path(path)
        what = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{end - 1}"}

        async def part() -> bytes:
            body = (await self._files._call_s3("get_object", **what))["Body"]
            found = bytearray()
            try:
                while len(found) <= end - start and (piece := await body.read(_READ)):
                    found += piece
            finally:
                body.close()
            return bytes(found)

        return bytes(sync(self._files.loop, part))

    def _write(self, name: str, file: Path) -> None:
        """Write a file atomically: an object's put is atomic, and a folder uses a rename."""
        what, path = self.name.of(name), self._path(name)

        def put() -> None:
            """Upload a file. S3 gets a time limit per piece; other stores send at the end, and are silent
            until then."""
            if self.name.scheme == "file":
                if not Path(self._folder).is_dir():
                    raise UsageError(f"there is no folder {self._folder}", f"mkdir -p {quote(self._folder)}")
                with file.open("rb") as source, written(Path(path)) as target:
                    shutil.copyfileobj(source, target, _PIECE)
            elif self.name.scheme == "s3":
                with self._patiently(what) as begin:
                    parts = {"chunksize": _PIECE, "max_concurrency": 2}
                    self._files.put_file(str(file), path, callback=_Sent(self._how, begin), **parts)
            else:
                self._files.put_file(str(file), path, callback=_Sent(self._how, lambda: None))

        self._try(what, put)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _ask(self, what: str, call: Callable[[], Answer]) -> Answer:
        def asked() -> Answer:
            with self._patiently(what):
                return call()

        return self._try(what, asked)

    @contextmanager
    def _patiently(self, what: str) -> Iterator[Callable[[], None]]:
        try:
            with within(self._how.patience) as begin:
                yield begin
        except TooSlow:
            told = f"{what}: no answer in {self._how.patience:g} s"
            raise WorkFailed(told, "--timeout gives more") from None

    def _try(self, what: str, call: Callable[[], Answer]) -> Answer:
        """Make a call, and try it again after an error that may pass."""
        for pause in (*_PAUSES, None):
            try:
                return call()
            except Exception as error:  # each store's library has its own errors
                failure = self._explained(what, error)
                if isinstance(failure, UsageError) or pause is None:
                    raise failure from None
            time.sleep(pause)
        raise AssertionError

    def _explained(self, what: str, error: Exception) -> SglTuneError:
        credentials = _CREDENTIALS.get(self.name.scheme)
        if isinstance(error, SglTuneError):
            return error
        if isinstance(error, FileNotFoundError):
            return Absent(f"{what}: there is no such thing", "check its spelling")
        if isinstance(error, (NotADirectoryError, IsADirectoryError)):
            return UsageError(f"{what}: {error.strerror or type(error).__name__}")
        reason = without_secrets(str(error)).strip().partition("\n")[0]
        reason = shown(reason, 200)[1:-1] if reason else "no reason given"
        if type(error).__name__ in _WITHOUT:
            return UsageError(f"{what}: no credentials for it ({reason})", credentials)
        if isinstance(error, PermissionError):
            return UsageError(f"{what}: access is refused ({reason})", credentials)
        return WorkFailed(f"{what}: {type(error).__name__}: {reason}", "try again")


class _Sent(Callback):
    """Reports the bytes that fsspec has sent."""

    def __init__(self, how: How, begin: Callable[[], None]) -> None:
        super().__init__()
        self._how, self._begin = how, begin

    def call(self, *arguments: Any, **more: Any) -> None:
        self._begin()
        self._how.progress("sent", int(self.value), int(self.size or self.value))
