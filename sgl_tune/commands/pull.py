"""`sgl-tune pull`: a bundle from where it was pushed to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import Column
from sgl_tune.deployment.cache_dir import CacheDirOption
from sgl_tune.errors import CheckFailed
from sgl_tune.ship.arrival import arrive, arrived_json, show_arrived
from sgl_tune.ship.landing import missing_folders, remove_empty
from sgl_tune.ship.options import (
    AllowUnsignedCodeOption,
    DigestOption,
    ForceOption,
    GpuOption,
    OwnerOption,
    PlaceOption,
    PlainHttpOption,
    PlatformOption,
    RekeyOption,
    ReplaceOption,
    TimeoutOption,
    TrustOption,
    digest_asked,
    owner_asked,
    place_asked,
    policy_of,
    root_asked,
    way,
)
from sgl_tune.ship.remote.described import machine_for
from sgl_tune.ship.remote.remotes import PATIENCE_SECONDS, Listing, Machine, Pulled, offer_json, remote
from sgl_tune.ship.remote.remotes import How as WayThere
from sgl_tune.ship.signing.signature import keep_signature
from sgl_tune.ship.signing.trust import Guard, vouched
from sgl_tune.ship.unpack import How
from sgl_tune.units import human_bytes
from sgl_tune.verify.environment import read_target
from sgl_tune.writing import check_place

_COLUMNS = (
    Column("GPU"),
    Column("ARCH"),
    Column("PLATFORM"),
    Column("SIZE", right=True),
    Column("MODELS"),
    Column("PULL", path=True),
)


def pull(
    url: Annotated[
        str,
        Argument(
            metavar="URL",
            help="oci://REGISTRY/NAME:TAG, or @sha256:...; s3://BUCKET/FOLDER/, or a file in it.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="Keep the bundle as this file, not unpacked."),
    ] = None,
    list_only: Annotated[
        bool, Option("--list", help="Only say what is there; without a tag, the tags.")
    ] = False,
    digest: DigestOption = None,
    trust: TrustOption = None,
    allow_unsigned_code: AllowUnsignedCodeOption = False,
    cache_dir: CacheDirOption = None,
    replace: ReplaceOption = False,
    rekey: RekeyOption = None,
    target: Annotated[
        Path | None,
        Option(
            "--target",
            metavar="ENV.JSON",
            help="What is for this machine, and nothing that its server would not use.",
        ),
    ] = None,
    at: PlaceOption = None,
    owner: OwnerOption = None,
    force: ForceOption = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Fetch and check it, and only say.")] = False,
    gpu: GpuOption = None,
    platform: PlatformOption = None,
    plain_http: PlainHttpOption = False,
    timeout: TimeoutOption = PATIENCE_SECONDS,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Get a bundle for this machine, and put its caches and stores where a server looks.

    Of several at a place, it takes the one for this machine's GPU and processor. Its digest is checked, and
    what broke off, by Ctrl-C too, is taken up by the next pull. Then it is as with `unpack`; but code that
    nobody has signed does not land.

    Example: sgl-tune pull oci://registry.local/caches/glm:0.5.23 --trust cosign.pub
    """
    out = Output(sink(format, quiet))
    policy = policy_of(trust, allow_unsigned_code)
    there = way(out, plain_http, timeout, "pulling")
    if list_only:
        with there as how_there:
            _list(out, url, remote(url, how_there).listing())
        return
    wanted = Wanted(url, machine_for(target, gpu, platform), digest_asked(digest))
    if output:
        check_place(output)
        with _pulled(wanted, there, output.absolute().parent) as pulled:
            vouched(policy, pulled.signatures, pulled.offer.digest)
            pulled.file.keep(output)
            keep_signature(output, pulled.signatures)
        _say_kept(out, url, pulled, output)
        return
    root = root_asked(cache_dir)
    how = How(
        root, place_asked(at, root), replace, tuple(rekey or ()), Guard(), owner_asked(owner, root), dry_run
    )
    machine = read_target(target) if target else None
    missing = missing_folders(root) if dry_run else []
    with _pulled(wanted, there, root) as pulled:
        guard = Guard(pulled.offer.digest, policy, pulled.signatures, True, allow_unsigned_code)
        arrived = arrive(out, pulled.file.path, url, dataclasses.replace(how, guard=guard), machine, force)
    remove_empty(missing)
    out.result(
        {**_as_json(url, pulled), "unpacked": arrived_json(arrived)},
        human=lambda: show_arrived(out, arrived),
        quiet=(str(root / cache.path) for cache in arrived.done.caches),
    )


class Wanted(NamedTuple):
    url: str
    machine: Machine
    digest: str | None


@contextmanager
def _pulled(wanted: Wanted, way_there: AbstractContextManager[WayThere], folder: Path) -> Iterator[Pulled]:
    with (
        way_there as how,
        remote(wanted.url, how).pull(folder / f".sgl-tune-pulls-{os.geteuid()}", wanted.machine) as pulled,
    ):
        if wanted.digest not in (None, pulled.offer.digest):
            told = f"its digest is {pulled.offer.digest}, and not {wanted.digest}"
            raise CheckFailed(told, "this is another bundle: do not use it")
        yield pulled


def _as_json(url: str, pulled: Pulled) -> dict[str, Any]:
    return {"url": url, "bundle": offer_json(pulled.offer), "received": pulled.received}


def _say_kept(out: Output, url: str, pulled: Pulled, output: Path) -> None:
    out.result(
        {**_as_json(url, pulled), "file": str(output)},
        human=lambda: out.line(f"{output}: {human_bytes(pulled.offer.bytes)}, {pulled.offer.digest}"),
        quiet=[str(output)],
    )


def _list(out: Output, url: str, listing: Listing) -> None:
    out.result(
        {
            "url": url,
            "bundles": [offer_json(one) for one in listing.offers],
            "names": list(listing.names),
        },
        human=lambda: _show(out, url, listing),
        quiet=[*(one.reference for one in listing.offers), *listing.names],
    )


def _show(out: Output, url: str, listing: Listing) -> None:
    if listing.offers:
        rows = [
            (
                one.machine.gpu or "-",
                one.machine.arch or "-",
                one.machine.platform or "-",
                human_bytes(one.bytes) if one.digest else "no bundle",
                one.told.get("sgl-tune.models", "-"),
                one.reference,
            )
            for one in listing.offers
        ]
        out.table(_COLUMNS, rows)
    for name in listing.names:
        out.line(name)
    if not listing.offers and not listing.names:
        out.line(f"Nothing at {url}.")
