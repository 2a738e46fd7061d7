"""A bundle as an image, and several as an index: JSON by the image specification, written and read."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sgl_tune.errors import CheckFailed
from sgl_tune.ship.members import MEDIA_TYPES
from sgl_tune.ship.remote.registry_name import DIGEST
from sgl_tune.ship.remote.remotes import Machine, Offer
from sgl_tune.units import shown

ARTIFACT = "application/vnd.sgl-tune.bundle.v1"
IMAGE = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
OURS, BYTES = "sgl-tune.bundle", "sgl-tune.bytes"
GPU, ARCH, PLATFORM, KEYS = "sgl-tune.gpu", "sgl-tune.arch", "sgl-tune.platform", "sgl-tune.keys"
MODELS = "sgl-tune.models"
FOR_WHOM = (GPU, ARCH, PLATFORM, KEYS)
_PLATFORM = re.compile(r"linux/[a-z0-9]{1,16}(?:/[a-z0-9]{1,16})?")
_LARGEST = 1 << 50
_MOST_BUNDLES = 1000


def as_bytes(content: Mapping[str, Any]) -> bytes:
    """Return JSON with equal bytes, and so an equal digest, for equal contents."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def descriptor(kind: str, digest: str, size: int, **more: Any) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size, **more}


def make_config(diff_ids: Sequence[str], platform: str, labels: Mapping[str, str]) -> bytes:
    return as_bytes(
        {
            **platform_json(platform),
            "config": {"Labels": dict(labels)},
            "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
            "history": [{"created_by": "sgl-tune push"} for _ in diff_ids],
        }
    )


def make_manifest(
    config: Mapping[str, Any], layers: Sequence[Mapping[str, Any]], **more: Mapping[str, str] | str
) -> bytes:
    whole = {"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": list(layers)}
    return as_bytes({**whole, **more})


def platform_json(platform: str) -> dict[str, str]:
    return dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))


def make_entry(digest: str, size: int, platform: str, told: Mapping[str, str]) -> dict[str, Any]:
    there = {"platform": platform_json(platform)} if is_platform(platform) else {}
    return descriptor(IMAGE, digest, size, artifactType=ARTIFACT, annotations=dict(told), **there)


def entries_of(index: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    found = index.get("manifests")
    if not isinstance(found, list) or len(found) > _MOST_BUNDLES:
        raise CheckFailed(f"{what} is an index of no images, or of more than {_MOST_BUNDLES}")
    for entry in found:
        checked(entry, what)
    return found


def is_ours(entry: Mapping[str, Any]) -> bool:
    return OURS in told_by(entry)


def told_by(entry: Mapping[str, Any]) -> dict[str, str]:
    told = entry.get("annotations")
    members = told.items() if isinstance(told, dict) else ()
    return {name: value for name, value in members if isinstance(value, str)}


def checked(value: Any, what: str) -> dict[str, Any]:
    """Return a descriptor after checking that its digest and size are well-formed."""
    if not isinstance(value, dict):
        raise CheckFailed(f"{what} names {shown(value)} where an object should be")
    digest, size = value.get("digest"), value.get("size")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise CheckFailed(f"{what} names {shown(digest)} as a digest")
    if type(size) is not int or not 0 <= size < _LARGEST:
        raise CheckFailed(f"{what} says that {digest} has {shown(size)} bytes")
    return value


def layer_of(manifest: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the bundle's layer in an image of ours; refuse other images."""
    layers = manifest.get("layers")
    if not is_ours(manifest) or not isinstance(layers, list) or len(layers) != 1:
        raise CheckFailed(f"{what} is an image that sgl-tune did not push", "`sgl-tune push` makes bundles")
    layer = checked(layers[0], what)
    if layer.get("mediaType") not in MEDIA_TYPES.values():
        raise CheckFailed(f"{what}: its layer is {shown(layer.get('mediaType'))}, which no bundle is")
    if told_by(manifest)[OURS] != layer["digest"]:
        raise CheckFailed(f"{what} says that its bundle is {shown(told_by(manifest)[OURS])}, and has another")
    return layer


def check_line(line: Mapping[str, Any], manifest: Mapping[str, Any], what: str) -> None:
    """Check that an index's entry says the same as its image, because `pull` chose by the entry, and a
    signature covers only the image."""
    said, is_ = told_by(line), told_by(manifest)
    for name in FOR_WHOM:
        if said.get(name) != is_.get(name):
            raise CheckFailed(
                f"{what}: the tag calls its {name} {shown(said.get(name))}, itself {shown(is_.get(name))}"
            )


def offer_of(entry: Mapping[str, Any], place: str) -> Offer:
    """Return the bundle that an index's entry offers, or that an image's own description does."""
    told = told_by(entry)
    size = told.get(BYTES, "")
    return Offer(
        reference=f"{place}@{entry['digest']}",
        digest=told.get(OURS, ""),
        bytes=int(size) if size.isascii() and size.isdigit() and len(size) < 16 else 0,
        machine=Machine(told.get(GPU), told.get(ARCH), told.get(PLATFORM)),
        told=told,
    )


def is_platform(text: str) -> bool:
    return _PLATFORM.fullmatch(text) is not None


def is_same_place(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a new bundle replaces an older one in a tag."""
    a, b = told_by(one), told_by(other)
    return all(a.get(name) == b.get(name) for name in FOR_WHOM)
