"""`sgl-tune env`: describe this machine and its caches, for `verify` on another machine."""

import platform
from dataclasses import asdict
from typing import Annotated

import sgl_tune
from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.fleet.node import Holdings, holdings_json
from sgl_tune.fleet.take import take_holdings
from sgl_tune.units import count
from sgl_tune.verify.environment import Fingerprint, take_fingerprint, target_of
from sgl_tune.verify.stores import machine_of


def env(
    cache_dir: CacheDirOption = None,
    name: Annotated[
        str | None, Option("--name", metavar="NODE", help="Name in a fleet's table. Default: the host name.")
    ] = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Describe this machine, for --target: the environment that FlashInfer writes into cache files, the GPUs
    and versions, and the caches and stores that a server started here would find.

    Takes a few seconds, because torch and FlashInfer are imported. Run it as the server's user, in the
    server's environment.

    Example: sgl-tune env --format json > env.json
    """
    out = Output(sink(format, quiet))
    out.note("Asking torch and FlashInfer; importing them takes a few seconds.")
    fingerprint = take_fingerprint()
    machine = machine_of(ServerFlags(), target_of(fingerprint), None, None)
    with out.progress("reading caches and stores") as progress:
        holdings = take_holdings(cache_dir or default_cache_dir(), machine, progress.advance)
    out.result(
        {
            "name": name or platform.node(),
            "tool": sgl_tune.__version__,
            **asdict(fingerprint),
            **holdings_json(holdings),
        },
        human=lambda: _show(out, fingerprint, holdings),
        quiet=(f"{name}={value}" for name, value in (fingerprint.metadata or {}).items()),
    )
    for what in fingerprint.unknown:
        out.warn(f"not known: {what}")
    for what in holdings.unseen:
        out.warn(f"not looked into: {what}")


def _show(out: Output, fingerprint: Fingerprint, holdings: Holdings) -> None:
    out.line("What FlashInfer compares", style="bold")
    compared = {name: value.replace(";", "; ") for name, value in (fingerprint.metadata or {}).items()}
    out.fields(compared or {"nothing": "FlashInfer cannot be asked here"})
    gpus = {
        f"gpu {number}": f"{gpu.name}, {gpu.arch}, {gpu.mib} MiB, {gpu.uuid}"
        for number, gpu in enumerate(fingerprint.gpus)
    }
    versions = {name: getattr(fingerprint, name) for name in ("driver", "arch", "torch", "sglang")}
    others = {name: value for name, value in {**versions, **gpus}.items() if value is not None}
    if others:
        out.line("What it does not", style="bold")
        out.fields(others)
    out.line()
    stores = ((one.store, count(one.found, "item"), one.path) for one in holdings.stores)
    tactics = ("tactics", count(len(holdings.caches), "cache"), holdings.cache_dir)
    out.table(columns_of("A SERVER WOULD FIND", ">HERE", "WHERE/"), [tactics, *stores])
