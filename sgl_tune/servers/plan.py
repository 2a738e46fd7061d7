"""What `server add` will install: every wheel of a release, chosen by pip, with its size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sgl_tune.reading import bounded_bytes, object_of
from sgl_tune.servers.installed import normal
from sgl_tune.servers.left_out import is_left_out
from sgl_tune.writing import write_text

_LARGEST = 32 << 20
_CHUNK_BYTES, _CHUNK_WHEELS = 400_000_000, 60


@dataclass(frozen=True, slots=True)
class Wheel:
    """`size`: of the file; `unpacked`: of what is in it; `headers_only`: its libraries are left out."""

    name: str
    version: str
    url: str
    sha256: str
    size: int = 0
    unpacked: int = 0
    headers_only: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """`python`: the version that the wheels are for."""

    release: str
    python: str
    wheels: tuple[Wheel, ...]

    @property
    def kept(self) -> list[Wheel]:
        return [wheel for wheel in self.wheels if not wheel.headers_only]

    @property
    def left_out(self) -> list[Wheel]:
        return [wheel for wheel in self.wheels if wheel.headers_only]


def chosen_by_pip(report: Path) -> list[Wheel]:
    """The wheels of the report that pip wrote; ValueError where one of them is not told exactly."""
    found = []
    for one in object_of(bounded_bytes(report, _LARGEST))["install"]:
        told, download = one["metadata"], one["download_info"]
        digest = download.get("archive_info", {}).get("hashes", {}).get("sha256")
        name = normal(told["name"])
        if not digest:
            raise ValueError(f"the index gives no sha256 of {name} {told['version']}")
        found.append(Wheel(name, told["version"], download["url"], digest, headers_only=is_left_out(name)))
    return found


def chunks(wheels: Sequence[Wheel]) -> Iterator[list[Wheel]]:
    """Installed one after the other, so that not all files lie on the disk twice."""
    chunk: list[Wheel] = []
    for wheel in wheels:
        if chunk and (len(chunk) == _CHUNK_WHEELS or sum(one.size for one in [*chunk, wheel]) > _CHUNK_BYTES):
            yield chunk
            chunk = []
        chunk.append(wheel)
    if chunk:
        yield chunk


def write_plan(path: Path, plan: Plan) -> None:
    write_text(path, json.dumps(asdict(plan)))


def read_plan(path: Path) -> Plan | None:
    """None where there is none that can be gone on with."""
    try:
        held: dict[str, Any] = object_of(bounded_bytes(path, _LARGEST))
        wheels = tuple(Wheel(**wheel) for wheel in held["wheels"])
        return Plan(str(held["release"]), str(held["python"]), wheels)
    except (OSError, ValueError, KeyError, TypeError):
        return None
