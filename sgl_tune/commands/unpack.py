"""`sgl-tune unpack`: check a whole bundle, then put its contents where a server looks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.pins.check import refuse_another
from sgl_tune.pins.option import LockOption
from sgl_tune.ship.arrival import arrive, arrived_json, show_arrived
from sgl_tune.ship.options import (
    DigestOption,
    ForceOption,
    OwnerOption,
    PlaceOption,
    RekeyOption,
    ReplaceOption,
    TrustOption,
    digest_asked,
    how_asked,
    trusted_keys,
    way,
)
from sgl_tune.ship.pulling import Wanted, is_address, land
from sgl_tune.ship.remote.described import machine_for
from sgl_tune.ship.remote.remotes import PATIENCE_SECONDS
from sgl_tune.ship.signing.signature import signatures_beside
from sgl_tune.ship.signing.trust import Guard
from sgl_tune.verify.environment import read_target


def unpack(
    bundle: Annotated[
        str, Argument(metavar="FILE|URL", help="A file of `sgl-tune pack`, or a URL for `pull`.")
    ],
    cache_dir: CacheDirOption = None,
    replace: ReplaceOption = False,
    rekey: RekeyOption = None,
    target: Annotated[
        Path | None,
        Option("--target", metavar="ENV.JSON", help="Refuse files that this machine's server would not use."),
    ] = None,
    at: PlaceOption = None,
    digest: DigestOption = None,
    trust: TrustOption = None,
    owner: OwnerOption = None,
    lock: LockOption = None,
    force: ForceOption = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check the bundle, and unpack nothing.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Check a whole bundle, then put its caches and stores where a server looks.

    Nothing is written before the whole bundle is checked. Existing caches are added to, or replaced with
    --replace. Paths inside stores are rewritten for their new place. With --trust, the signature (FILE.sig)
    is checked before the bundle is opened. A URL is pulled first. quiet prints the caches' folders.

    Example: sgl-tune unpack cache.tar.gz --target env.json
    """
    out = Output(sink(format, quiet))
    guard = Guard(digest_asked(digest), trusted_keys(trust))
    machine = read_target(target) if target else None
    if lock is not None:
        refuse_another(lock, bundle)
    how = how_asked(cache_dir, at, replace, rekey, owner, dry_run, guard)
    if is_address(bundle):
        there = way(out, False, PATIENCE_SECONDS, "pulling")
        wanted = Wanted(bundle, machine_for(target, None, None), guard, there)
        arrived, _ = land(out, wanted, how, machine, force)
    else:
        file = Path(bundle)
        how = dataclasses.replace(how, guard=dataclasses.replace(guard, signatures=signatures_beside(file)))
        arrived = arrive(out, file, bundle, how, machine, force)
    out.result(
        arrived_json(arrived),
        human=lambda: show_arrived(out, arrived),
        quiet=(str(how.root / cache.path) for cache in arrived.done.caches),
    )
