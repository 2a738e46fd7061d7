"""Signatures in a registry, where cosign looks for them: at a tag of the image's digest, a layer each."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from sgl_tune.errors import CheckFailed
from sgl_tune.ship import registry_image as image
from sgl_tune.ship.registry_client import Absent, Repository, digest_of
from sgl_tune.ship.registry_download import Blob, small_blob
from sgl_tune.ship.registry_upload import upload
from sgl_tune.ship.signature import (
    ANNOTATION,
    LARGEST_STATEMENT,
    STATEMENT_TYPE,
    Signature,
    parse_signature,
    statement_found,
    statement_tag,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey as PublicKey

CARRIED = "sgl-tune.signature"
_MOST = 20


def signatures(repository: Repository, manifest: Mapping[str, Any], digest: str) -> list[Signature]:
    """Of an image: those at its tag, and the one of the bundle's bytes that was made when it was packed."""
    carried = image.told_by(manifest).get(CARRIED)
    found = [parse_signature(carried.encode(errors="replace"), digest)] if carried else []
    for layer in _layers(repository, digest):
        if layer["size"] > LARGEST_STATEMENT:
            raise CheckFailed(f"a signature of {digest} has {layer['size']:,} bytes")
        statement = small_blob(repository, Blob(layer["digest"], layer["size"]))
        found.append(statement_found(image.told_by(layer).get(ANNOTATION, ""), statement, digest))
    return found


def put_signature(repository: Repository, signature: Signature, digest: str, key: PublicKey) -> None:
    """Beside those that others have put there, of the same statement too; an older one of this key goes."""
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
