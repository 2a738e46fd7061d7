"""`sgl-tune unpack`: check a whole bundle, then put its contents where a server looks."""

import dataclasses
from pathlib import Path
from typing import Annotated

from sgl_tune.cli.format import Format, FormatOption, LockOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.pins.check import refuse_another
from sgl_tune.ship.arrival import Wanted, arrive, arrived_json, is_address, land, show_arrived
from sgl_tune.ship.options import LandingOptions, RemoteOptions
from sgl_tune.ship.remote.described import machine_for
from sgl_tune.ship.signing.signature import read_signature
from sgl_tune.verify.environment import read_target


def unpack(
    bundle: Annotated[
        str, Argument(metavar="FILE|URL", help="A file of `sgl-tune pack`, or a URL for `pull`.")
    ],
    landing: LandingOptions,
    target: Annotated[
        Path | None,
        Option("--target", metavar="ENV.JSON", help="Refuse files that this machine's server would not use."),
    ] = None,
    lock: LockOption = None,
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
    guard = landing.guard()
    machine = read_target(target) if target else None
    if lock is not None:
        refuse_another(lock, bundle)
    how = landing.how(guard, dry_run)
    if is_address(bundle):
        there = RemoteOptions().way(out, "pulling")
        wanted = Wanted(bundle, machine_for(target, None, None), guard, there)
        arrived, _ = land(out, wanted, how, machine, landing.force)
    else:
        file = Path(bundle)
        beside = tuple(filter(None, [read_signature(file)]))
        how = dataclasses.replace(how, guard=dataclasses.replace(guard, signatures=beside))
        arrived = arrive(out, file, bundle, how, machine, landing.force)
    out.result(
        arrived_json(arrived),
        human=lambda: show_arrived(out, arrived),
        quiet=(str(how.root / cache.path) for cache in arrived.done.caches),
    )
