"""`oci://`: a bundle is an image of one layer; a tag is an index with one entry per GPU. Signatures are
where cosign looks for them: at a tag named after the image's digest, one layer each."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.server.nearest import meant
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.ship.members import media_type
from sgl_tune.ship.remote import registry_image as image
from sgl_tune.ship.remote.described import Described, described
from sgl_tune.ship.remote.registry_blobs import Blob, downloaded, small_blob, upload
from sgl_tune.ship.remote.registry_client import Document, Repository, digest_of
from sgl_tune.ship.remote.registry_image import INDEX
from sgl_tune.ship.remote.registry_name import parse_name
from sgl_tune.ship.remote.remotes import Absent, How, Listing, Machine, Offer, Pulled, Pushed, only_fit
from sgl_tune.ship.signing.signature import (
    ANNOTATION,
    LARGEST_STATEMENT,
    STATEMENT_TYPE,
    Signature,
    parse_signature,
    read_signature,
    signed_statement,
    statement_found,
    statement_tag,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as PrivateKey
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey as PublicKey

SETTLE_SECONDS = 0.3
_WRITES = 3  # attempts, if others write the tag at the same time
CARRIED = "sgl-tune.signature"
_MOST = 20


class RegistryRemote:
    def __init__(self, url: str, how: How) -> None:
        self.name = parse_name(url)
        self._how = how
        self._repository = Repository(self.name, how)

    def push(self, bundle: Path, machine: Machine, alone: bool, key: "PrivateKey | None") -> Pushed:
        if not self.name.tag or self.name.digest:
            raise UsageError(f"{self.name}: a push needs a tag", f"write {self.name.place}:TAG")
        old = [] if alone else self._pushed_before()
        about = described(bundle, machine, self._how.progress)
        entry, sent = self._push_image(bundle, about, key)
        replaced = [one for one in old if image.is_same_place(one, entry)]
        beside = self._write_tag(entry, alone)
        return Pushed(
            self._offer(entry),
            sent,
            tuple(self._offer(one) for one in replaced if one["digest"] != entry["digest"]),
            tuple(map(self._offer, beside)),
        )

    @contextmanager
    def pull(self, folder: Path, machine: Machine) -> Iterator[Pulled]:
        found = self._found()
        entry = self._choose(found, machine)
        document = found if entry["digest"] == found.digest else self._repository.document(entry["digest"])
        what = f"{self.name.place}@{entry['digest']}"
        layer = image.layer_of(document.content, what)
        image.check_line(entry, document.content, what)
        signed = signatures(self._repository, document.content, entry["digest"])
        with downloaded(self._repository, Blob(layer["digest"], layer["size"]), folder) as file:
            told = {**document.content, "digest": document.digest}
            offer = replace(self._offer(told), digest=layer["digest"], bytes=layer["size"])
            yield Pulled(offer, file, tuple(signed))

    def listing(self) -> Listing:
        if self.name.reference is None:
            return Listing(names=tuple(self._tags()))
        return Listing(tuple(map(self._offer, self._entries(self._found()))))

    def _push_image(
        self, bundle: Path, about: Described, key: "PrivateKey | None"
    ) -> tuple[dict[str, Any], int]:
        """Push the image by its digest alone. Its signature is pushed before a tag shows the image."""
        signature = read_signature(bundle)
        layer = Blob(about.digest, about.bytes)
        with bundle.open("rb") as file:
            sent = upload(self._repository, layer, file)
        config = image.make_config([about.diff_id], about.platform, about.labels)
        blob = Blob(digest_of(config), len(config))
        sent += upload(self._repository, blob, BytesIO(config))
        manifest = image.make_manifest(
            image.descriptor(image.CONFIG, *blob),
            [image.descriptor(media_type(bundle), *layer)],
            artifactType=image.ARTIFACT,
            annotations={**about.told, **({CARRIED: signature.text} if signature else {})},
        )
        digest = digest_of(manifest)
        self._repository.put_document(manifest, image.IMAGE, digest)
        if key:
            signed = signed_statement(key, digest, f"{self.name.registry}/{self.name.repository}")
            put_signature(self._repository, signed, digest, key.public_key())
        return image.make_entry(digest, len(manifest), about.platform, about.told), sent

    def _write_tag(self, entry: dict[str, Any], alone: bool) -> list[dict[str, Any]]:
        """Write the tag, and return its other entries. A registry has no lock: a simultaneous push may
        have removed our entry, so the tag is read again after a moment."""
        for _ in range(_WRITES):
            old = [] if alone else self._pushed_before()
            beside = [one for one in old if not image.is_same_place(one, entry)]
            lines = sorted([*beside, entry], key=lambda one: str(one["digest"]))
            index = {
                "schemaVersion": 2,
                "mediaType": INDEX,
                "artifactType": image.ARTIFACT,
                "manifests": lines,
            }
            self._repository.put_document(image.as_bytes(index), INDEX, str(self.name.tag))
            time.sleep(SETTLE_SECONDS)
            now = self._pushed_before()
            if any(one["digest"] == entry["digest"] for one in now):
                return [one for one in now if one["digest"] != entry["digest"]]
        raise CheckFailed(
            f"{self.name}: others write this tag at the same time", "push again when they are done"
        )

    def _pushed_before(self) -> list[dict[str, Any]]:
        try:
            document = self._repository.document(str(self.name.tag))
        except Absent:
            return []
        entries = self._entries(document)
        if not all(map(image.is_ours, entries)):
            raise UsageError(
                f"{self.name} holds images that sgl-tune did not push",
                "push to another tag, or replace its contents with --replace",
            )
        return entries

    def _found(self) -> Document:
        if self.name.reference is None:
            tags = self._tags()
            raise UsageError(f"{self.name} has no tag", f"{self.name.place}:TAG, with {_some(tags)}")
        try:
            return self._repository.document(self.name.reference)
        except Absent:
            raise self._absent() from None

    def _absent(self) -> UsageError:
        tags = self._tags()
        if not tags:
            return UsageError(
                f"{self.name}: the registry has no {self.name.repository}", "check its spelling"
            )
        near = meant(self.name.reference or "", tags)
        return UsageError(f"{self.name}: there is no such thing", near or f"there are {_some(tags)}")

    def _tags(self) -> list[str]:
        """Return the tags, without those that hold signatures."""
        try:
            return sorted(tag for tag in self._repository.tags() if not tag.startswith("sha256-"))
        except Absent:
            return []

    def _entries(self, found: Document) -> list[dict[str, Any]]:
        """Return an index's entries, or an image as a single entry."""
        if found.kind == INDEX:
            return image.entries_of(found.content, str(self.name))
        told = image.told_by(found.content)
        platform = told.get(image.PLATFORM, "")
        return [image.make_entry(found.digest, len(found.raw), platform, told)]

    def _choose(self, found: Document, machine: Machine) -> Mapping[str, Any]:
        entries = self._entries(found)
        if self.name.digest and found.kind != INDEX:
            return entries[0]
        offers = {self._offer(one).reference: one for one in entries if image.is_ours(one)}
        there = [self._offer(one) for one in offers.values()]
        return offers[only_fit(there, machine, str(self.name), "; `push --replace` leaves one").reference]

    def _offer(self, entry: Mapping[str, Any]) -> Offer:
        return image.offer_of(entry, self.name.place)


def _some(tags: list[str]) -> str:
    return f"{', '.join(tags[:8])}{' ...' if len(tags) > 8 else ''}" if tags else "no tags at all"


def signatures(repository: Repository, manifest: Mapping[str, Any], digest: str) -> list[Signature]:
    """Return an image's signatures: those at its signature tag, and the one that `pack` made."""
    carried = image.told_by(manifest).get(CARRIED)
    found = [parse_signature(carried.encode(errors="replace"), digest)] if carried else []
    for layer in _layers(repository, digest):
        if layer["size"] > LARGEST_STATEMENT:
            raise CheckFailed(f"a signature of {digest} has {layer['size']:,} bytes")
        statement = small_blob(repository, Blob(layer["digest"], layer["size"]))
        found.append(statement_found(image.told_by(layer).get(ANNOTATION, ""), statement, digest))
    return found


def put_signature(repository: Repository, signature: Signature, digest: str, key: "PublicKey") -> None:
    """Add a signature to those of others, and remove an older one by this key."""
    statement = signature.statement or b""
    blob = Blob(digest_of(statement), len(statement))

    def is_older(layer: Mapping[str, Any]) -> bool:
        text = image.told_by(layer).get(ANNOTATION, "")
        return bool(layer["digest"] == blob.digest) and Signature(text, statement).is_by(key, digest)

    there = [layer for layer in _layers(repository, digest) if not is_older(layer)]
    told = {ANNOTATION: signature.text}
    layers = [*there, image.descriptor(STATEMENT_TYPE, *blob, annotations=told)]
    upload(repository, blob, BytesIO(statement))
    config = image.make_config([layer["digest"] for layer in layers], "linux/amd64", {})
    about = Blob(digest_of(config), len(config))
    upload(repository, about, BytesIO(config))
    manifest = image.make_manifest(image.descriptor(image.CONFIG, *about), layers)
    repository.put_document(manifest, image.IMAGE, statement_tag(digest))


def _layers(repository: Repository, digest: str) -> list[dict[str, Any]]:
    tag = statement_tag(digest)
    try:
        content = repository.document(tag).content
    except Absent:
        return []
    layers = content.get("layers")
    if not isinstance(layers, list) or len(layers) > _MOST:
        raise CheckFailed(f"{tag} holds no signatures, or more than {_MOST}")
    return [layer for layer in layers if image.checked(layer, tag).get("mediaType") == STATEMENT_TYPE]
