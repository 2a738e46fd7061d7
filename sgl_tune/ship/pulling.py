"""Fetch a bundle from a URL, and put it where a server looks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cli.out import Output
from sgl_tune.errors import CheckFailed
from sgl_tune.ship.arrival import Arrived, arrive
from sgl_tune.ship.landing import missing_folders, remove_empty
from sgl_tune.ship.remote.remotes import How as WayThere
from sgl_tune.ship.remote.remotes import Machine, Pulled, offer_json, remote
from sgl_tune.ship.signing.trust import Guard
from sgl_tune.ship.unpack import How
from sgl_tune.verify.environment import Target


class Wanted(NamedTuple):
    url: str
    machine: Machine
    guard: Guard
    way: AbstractContextManager[WayThere]


def is_address(text: str) -> bool:
    return "://" in text


@contextmanager
def pulled(wanted: Wanted, folder: Path) -> Iterator[tuple[Pulled, Guard]]:
    """Yield the bundle as a file, and what it must be: its digest is now fixed, and equals a pinned one."""
    with (
        wanted.way as how,
        remote(wanted.url, how).pull(folder / f".sgl-tune-pulls-{os.geteuid()}", wanted.machine) as found,
    ):
        pinned, digest = wanted.guard.pinned, found.offer.digest
        if pinned not in (None, digest):
            told = f"its digest is {digest}, not {pinned}"
            raise CheckFailed(told, "this is another bundle: do not use it")
        guard = dataclasses.replace(wanted.guard, pinned=digest, signatures=found.signatures, pulled=True)
        yield found, guard


def land(
    out: Output, wanted: Wanted, how: How, target: Target | None, force: bool
) -> tuple[Arrived, dict[str, Any]]:
    """Fetch and unpack a bundle; return what landed and what was fetched."""
    missing = missing_folders(how.root) if how.dry_run else []
    with pulled(wanted, how.root) as (found, guard):
        how = dataclasses.replace(how, guard=guard)
        arrived = arrive(out, found.file.path, wanted.url, how, target, force)
    remove_empty(missing)
    return arrived, fetched_json(wanted.url, found)


def fetched_json(url: str, found: Pulled) -> dict[str, Any]:
    return {"url": url, "bundle": offer_json(found.offer), "received": found.received}
