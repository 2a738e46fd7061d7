"""`sgl-tune unpack`: a bundle, checked whole, and then where a server looks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.cache_dir import CacheDirOption
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
    owner_asked,
    place_asked,
    policy_of,
    root_asked,
)
from sgl_tune.ship.signing.signature import signatures_beside
from sgl_tune.ship.signing.trust import Guard
from sgl_tune.ship.unpack import How
from sgl_tune.verify.environment import read_target


def unpack(
    bundle: Annotated[Path, Argument(metavar="FILE", help="What `sgl-tune pack` wrote.")],
    cache_dir: CacheDirOption = None,
    replace: ReplaceOption = False,
    rekey: RekeyOption = None,
    target: Annotated[
        Path | None,
        Option("--target", metavar="ENV.JSON", help="Refuse what this machine's server would not use."),
    ] = None,
    at: PlaceOption = None,
    digest: DigestOption = None,
    trust: TrustOption = None,
    owner: OwnerOption = None,
    force: ForceOption = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Check all of it, and only say.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Check a bundle to its last byte, and then put its caches and stores where a server looks.

    Nothing is written before all of it is checked. Caches that are there are added to, or replaced; paths in
    stores are made right for their new place. With --trust, FILE.sig is checked before anything is opened.
    quiet prints the folders of the caches.

    Example: sgl-tune unpack cache.tar.gz --target env.json
    """
    out = Output(sink(format, quiet))
    root = root_asked(cache_dir)
    guard = Guard(digest_asked(digest), policy_of(trust), signatures_beside(bundle))
    machine = read_target(target) if target else None
    how = How(
        root,
        place_asked(at, root),
        replace,
        tuple(rekey or ()),
        guard,
        owner_asked(owner, root),
        dry_run,
    )
    arrived = arrive(out, bundle, str(bundle), how, machine, force)
    out.result(
        arrived_json(arrived),
        human=lambda: show_arrived(out, arrived),
        quiet=(str(root / cache.path) for cache in arrived.done.caches),
    )
