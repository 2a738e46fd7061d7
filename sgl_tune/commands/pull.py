"""`sgl-tune pull`: a bundle from where it was pushed to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.errors import UsageError
from sgl_tune.ship.machine import machine_for
from sgl_tune.ship.remote_options import (
    CaOption,
    GpuOption,
    PlainHttpOption,
    PlatformOption,
    TimeoutOption,
    how,
)
from sgl_tune.ship.remotes import PATIENCE_SECONDS, Listing, offer_json, remote
from sgl_tune.ship.trust import vouched
from sgl_tune.ship.trust_options import TrustOption, policy_of
from sgl_tune.units import human_bytes
from sgl_tune.writing import check_place, written

_COLUMNS = (
    Column("GPU"),
    Column("ARCH"),
    Column("PLATFORM"),
    Column("SIZE", right=True),
    Column("PULL", path=True),
)


def pull(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="oci://REGISTRY/NAME:TAG, or @sha256:...; s3://BUCKET/FOLDER/, or a file in it.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Keep the bundle as this file, not unpacked."),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only say what is there; without a tag, the tags.")
    ] = False,
    target: Annotated[
        Path | None,
        typer.Option("--target", metavar="ENV.JSON", help="The serving machine, as its `sgl-tune env` says."),
    ] = None,
    trust: TrustOption = None,
    gpu: GpuOption = None,
    platform: PlatformOption = None,
    plain_http: PlainHttpOption = False,
    ca: CaOption = None,
    timeout: TimeoutOption = PATIENCE_SECONDS,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Get a bundle for this machine from a registry.

    Of several at a tag, it takes the one that is for this machine's GPU and processor. Its digest is checked,
    and what broke off, by Ctrl-C too, is taken up by the next pull.

    Example: sgl-tune pull oci://registry.local/caches/glm:0.5.23 -o glm.tar.gz
    """
    out = Output(sink(format, quiet))
    policy = policy_of(trust)
    place = remote(url, how(out, plain_http, ca, timeout, "pulling"))
    if list_only:
        _list(out, url, place.listing())
        return
    if output is None:
        raise UsageError("where to?", "-o FILE")
    check_place(output)
    folder = output.absolute().parent / ".sgl-tune-pulls"
    with place.pull(folder, machine_for(target, gpu, platform)) as pulled:
        vouched(policy, pulled.signatures, pulled.offer.digest)
        with written(output) as part:
            shutil.copyfile(pulled.file, part)
    out.result(
        {
            "url": url,
            "bundle": offer_json(pulled.offer),
            "received": pulled.received,
            "file": str(output),
        },
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
                one.reference,
            )
            for one in listing.offers
        ]
        out.table(_COLUMNS, rows)
    for name in listing.names:
        out.line(name)
    if not listing.offers and not listing.names:
        out.line(f"Nothing at {url}.")
