"""`s3://`, `gs://`, `hf://`, `file://`: a file there, and beside it a signature and a record."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sgl_tune.errors import CheckFailed, UsageError, WorkFailed
from sgl_tune.ship.remote.described import described
from sgl_tune.ship.remote.object_files import PIECE, Absent, Found, ObjectFiles
from sgl_tune.ship.remote.object_name import (
    LARGEST_RECORD,
    ObjectName,
    ObjectRecord,
    checked_bundle,
    parse_object_name,
    parse_record,
)
from sgl_tune.ship.remote.object_name import SUFFIX as RECORD
from sgl_tune.ship.remote.partial import Partial, arriving
from sgl_tune.ship.remote.remotes import How, Listing, Machine, Offer, Pulled, Pushed, fits, only_fit
from sgl_tune.ship.signing.signature import (
    LARGEST_SIGNATURE,
    Signature,
    parse_signature,
    read_signature,
    signature_of,
)
from sgl_tune.ship.signing.signature import SUFFIX as SIGNATURE
from sgl_tune.units import human_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as PrivateKey

LARGEST_BUNDLE = 64 << 30
_MOST_BUNDLES = 200


def remote(url: str, how: How) -> ObjectStore:
    return ObjectStore(parse_object_name(url), how)


class ObjectStore:
    def __init__(self, name: ObjectName, how: How) -> None:
        self.name, self._how = name, how
        self._files = ObjectFiles(name, how)

    def push(self, bundle: Path, machine: Machine, alone: bool, key: PrivateKey | None) -> Pushed:
        name = self.name.bundle or checked_bundle(bundle.name)
        record = _recorded(bundle, machine, self._how)
        signature = signature_of(key, record.digest) if key else read_signature(bundle)
        old = None
        with suppress(CheckFailed):  # what describes no bundle is written anew
            old = self._record(name)
        if old and not fits(old.machine, machine) and not alone:
            raise UsageError(
                f"{self.name.of(name)} is for {old.machine}, and this for {machine}",
                "give it another name, or --replace what is there",
            )
        offer = self._offer(name, record)
        there = old == record and self._is_whole(name, record.bytes)
        if not there:
            self._files.write(name, bundle)
        self._write_signature(name, signature)
        if not there:
            self._write_small(name + RECORD, record.to_json())
        replaced = (self._offer(name, old),) if old and old.digest != record.digest else ()
        return Pushed(offer, 0 if there else record.bytes, replaced)

    @contextmanager
    def pull(self, folder: Path, machine: Machine) -> Iterator[Pulled]:
        name = self.name.bundle or self._choose(machine)
        state, record = self._files.state(name), self._record(name)
        size = state.bytes
        self._check_size(name, size, record)
        kept = record.digest if record else hashlib.sha256(self.name.of(name).encode()).hexdigest()
        with arriving(folder, kept.removeprefix("sha256:"), size, self._how.note) as partial:
            received = self._fetch(name, size, record, partial)
            if record is None and self._files.state(name) != state:
                raise WorkFailed(f"{self.name.of(name)} changed while it was read", "pull again")
            found = record or ObjectRecord(partial.digest, size)
            signature = self._signature(name)
            yield Pulled(self._offer(name, found), partial, received, (signature,) if signature else ())

    def listing(self) -> Listing:
        found = {one.name: one.bytes for one in self._files.names()}
        if self.name.bundle:
            found = {name: size for name, size in found.items() if name.startswith(self.name.bundle)}
        bundles = [Found(name, size) for name, size in found.items() if _is_bundle(name)]
        if len(bundles) > _MOST_BUNDLES:
            return Listing(names=tuple(self.name.of(one.name) for one in bundles))
        return Listing(tuple(self._listed(one, f"{one.name}{RECORD}" in found) for one in bundles))

    def _listed(self, found: Found, has_record: bool) -> Offer:
        record = self._record(found.name) if has_record else None
        return self._offer(found.name, record or ObjectRecord("", found.bytes))

    def _choose(self, machine: Machine) -> str:
        listing = self.listing()
        where = f"{self.name.place}/"
        if listing.names:
            raise UsageError(f"{where} holds {len(listing.names)} bundles", "name one of them")
        if not listing.offers:
            raise UsageError(f"{where} holds no bundle", "is it spelled so?")
        return only_fit(listing.offers, machine, where, "").reference.rpartition("/")[2]

    def _fetch(self, name: str, size: int, record: ObjectRecord | None, partial: Partial) -> int:
        """How much came now. What was kept may be spoilt, and is fetched anew once."""
        kept = partial.take_up(size) if record else partial.begin_anew()
        if kept:
            self._how.note(f"{human_bytes(kept)} of it are here from an earlier pull")
        received = self._read_on(name, size, partial)
        if kept and record and partial.digest != record.digest:
            partial.begin_anew()
            received += self._read_on(name, size, partial)
        partial.flush()
        if record and partial.digest != record.digest:
            found = partial.digest
            partial.begin_anew()
            raise CheckFailed(
                f"{self.name.of(name)} is {found}, and {name}{RECORD} says {record.digest}",
                "it is being pushed just now, or was spoilt: pull again, or have it pushed anew",
            )
        return received

    def _read_on(self, name: str, size: int, partial: Partial) -> int:
        before = partial.bytes
        while partial.bytes < size:
            wanted = min(PIECE, size - partial.bytes)
            piece = self._files.read(name, partial.bytes, partial.bytes + wanted)
            if len(piece) != wanted:
                told = f"{self.name.of(name)}: {len(piece):,} bytes came of {wanted:,}"
                raise WorkFailed(told, "pull again")
            partial.take(piece)
            self._how.progress("got", partial.bytes, size)
        return partial.bytes - before

    def _check_size(self, name: str, size: int, record: ObjectRecord | None) -> None:
        what = self.name.of(name)
        if size > LARGEST_BUNDLE:
            most = f"a bundle has {human_bytes(LARGEST_BUNDLE)} at most"
            raise CheckFailed(f"{what} has {human_bytes(size)}; {most}")
        if record and record.bytes != size:
            raise CheckFailed(
                f"{what} has {size:,} bytes, and {name}{RECORD} says {record.bytes:,}",
                "it was cut off, or is being pushed just now: pull again, or have it pushed anew",
            )

    def _is_whole(self, name: str, size: int) -> bool:
        try:
            return self._files.state(name).bytes == size
        except Absent:
            return False

    def _record(self, name: str) -> ObjectRecord | None:
        raw = self._files.small(name + RECORD, LARGEST_RECORD)
        return None if raw is None else parse_record(raw, self.name.of(name + RECORD))

    def _signature(self, name: str) -> Signature | None:
        raw = self._files.small(name + SIGNATURE, LARGEST_SIGNATURE)
        return None if raw is None else parse_signature(raw, self.name.of(name + SIGNATURE))

    def _write_signature(self, name: str, signature: Signature | None) -> None:
        """An older one is of other bytes, and would have these refused."""
        if signature is None:
            self._files.remove(name + SIGNATURE)
        elif self._files.small(name + SIGNATURE, LARGEST_SIGNATURE) != signature.text.encode():
            self._write_small(name + SIGNATURE, signature.text)

    def _write_small(self, name: str, text: str) -> None:
        with tempfile.NamedTemporaryFile(prefix="sgl-tune-") as file:
            file.write(text.encode())
            file.flush()
            self._files.write(name, Path(file.name))

    def _offer(self, name: str, record: ObjectRecord) -> Offer:
        return Offer(self.name.of(name), record.digest, record.bytes, record.machine, dict(record.told))


def _recorded(bundle: Path, machine: Machine, how: How) -> ObjectRecord:
    about = described(bundle, machine, how.progress)
    return ObjectRecord(about.digest, about.bytes, machine.gpu, machine.arch, machine.platform, about.told)


def _is_bundle(name: str) -> bool:
    try:
        return checked_bundle(name) == name
    except UsageError:
        return False
