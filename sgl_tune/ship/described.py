"""What a registry is told of a bundle: its digests, and labels by which people and tools find it."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular
from sgl_tune.ship.registry_image import ARCH, GPU, OURS, PLATFORM
from sgl_tune.ship.remotes import Machine

_LARGEST = 64 << 30
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Described:
    digest: str
    diff_id: str
    bytes: int
    compressor: str
    platform: str
    told: Mapping[str, str]
    labels: Mapping[str, str]


def described(bundle: Path, machine: Machine) -> Described:
    packed, plain, size = hashlib.sha256(), hashlib.sha256(), 0
    inflate = zlib.decompressobj(31)
    try:
        with open_regular(bundle, _LARGEST) as file:
            while piece := file.read(_PIECE):
                packed.update(piece)
                size += len(piece)
                while piece:
                    plain.update(inflate.decompress(piece, _PIECE))
                    piece = inflate.unconsumed_tail
    except OSError as error:
        raise UsageError(f"{bundle} cannot be read: {error.strerror}") from None
    except zlib.error:
        raise UsageError(f"{bundle} is no bundle", "`sgl-tune pack` makes one") from None
    digest = f"sha256:{packed.hexdigest()}"
    told = {
        OURS: digest,
        "sgl-tune.bytes": str(size),
        GPU: machine.gpu,
        ARCH: machine.arch,
        PLATFORM: machine.platform,
    }
    known = {name: value for name, value in told.items() if value}
    return Described(digest, f"sha256:{plain.hexdigest()}", size, "gzip", str(machine.platform), known, known)
