"""`sgl-tune pull`: fetch a bundle that `sgl-tune push` sent."""

from pathlib import Path
from typing import Annotated

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.ship.arrival import Wanted, arrived_json, fetched_json, land, pulled, show_arrived
from sgl_tune.ship.options import AllowUnsignedCodeOption, LandingOptions, RemoteOptions
from sgl_tune.ship.remote.described import machine_for
from sgl_tune.ship.remote.remotes import Listing, offer_json, remote
from sgl_tune.ship.signing.signature import keep_signature
from sgl_tune.units import human_bytes
from sgl_tune.verify.environment import read_target
from sgl_tune.writing import check_place

_COLUMNS = columns_of("GPU", "ARCH", "PLATFORM", ">SIZE", "MODELS", "PULL/")


def pull(
    landing: LandingOptions,
    reached: RemoteOptions,
    url: Annotated[
        str,
        Argument(
            metavar="URL",
            help="oci://REGISTRY/NAME:TAG, or @sha256:...; s3://BUCKET/FOLDER/, file:///FOLDER/, or a file.",
        ),
    ],
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="Keep the bundle as this file, not unpacked."),
    ] = None,
    list_only: Annotated[
        bool, Option("--list", help="Only list the bundles there; without a tag, list the tags.")
    ] = False,
    allow_unsigned_code: AllowUnsignedCodeOption = False,
    target: Annotated[
        Path | None,
        Option(
            "--target",
            metavar="ENV.JSON",
            help="Choose the bundle for this machine, and refuse files that its server would not use.",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only fetch and check the bundle.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Fetch the bundle for this machine, and put its caches and stores where a server looks.

    If a tag holds several bundles, the one for this machine's GPU and processor is taken. Its digest is
    checked. An interrupted pull from a registry continues when the command is run again. Everything else
    works as in `unpack`, but unsigned kernels are refused.

    Example: sgl-tune pull oci://registry.local/caches/glm:0.5.23 --trust cosign.pub
    """
    out = Output(sink(format, quiet))
    there = reached.way(out, "pulling")
    if list_only:
        with there as how_there:
            _list(out, url, remote(url, how_there).listing())
        return
    guard = landing.guard(allow_unsigned_code)
    wanted = Wanted(url, machine_for(target, reached.gpu, reached.platform), guard, there)
    if output:
        _keep(out, wanted, output)
        return
    how = landing.how(guard, dry_run)
    arrived, fetched = land(out, wanted, how, read_target(target) if target else None, landing.force)
    out.result(
        {**fetched, "unpacked": arrived_json(arrived)},
        human=lambda: show_arrived(out, arrived),
        quiet=(str(how.root / cache.path) for cache in arrived.done.caches),
    )


def _keep(out: Output, wanted: Wanted, output: Path) -> None:
    check_place(output)
    with pulled(wanted, output.absolute().parent) as (found, guard):
        guard.signers(found.offer.digest)
        found.file.keep(output)
        keep_signature(output, found.signatures)
    out.result(
        {**fetched_json(wanted.url, found), "file": str(output)},
        human=lambda: out.line(f"{output}: {human_bytes(found.offer.bytes)}, {found.offer.digest}"),
        quiet=[str(output)],
    )


def _list(out: Output, url: str, listing: Listing) -> None:
    out.result(
        {"url": url, "bundles": [offer_json(one) for one in listing.offers], "names": list(listing.names)},
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
                human_bytes(one.bytes) if one.bytes else "no bundle",
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
