"""`sgl-tune push`: send a bundle to a registry, a folder or an object store, from where others pull it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.layouts.find import keys
from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.processes.scratch import scratch
from sgl_tune.ship.choice import Asked
from sgl_tune.ship.members import SUFFIXES
from sgl_tune.ship.options import RemoteOptions, SignOption
from sgl_tune.ship.pack import pack_bundle
from sgl_tune.ship.remote.described import machine_of
from sgl_tune.ship.remote.remotes import Pushed, fits, offer_json, remote
from sgl_tune.ship.signing.keys import read_private_key
from sgl_tune.units import count, human_bytes
from sgl_tune.verify.environment import UNTOLD


def push(
    reached: RemoteOptions,
    source: Annotated[
        str,
        Argument(
            metavar="FILE|KEY|FOLDER",
            help="A file of `sgl-tune pack`; or what to pack now: a cache, by a prefix of its key,"
            " or a folder and the stores in it.",
            show_default=False,
            autocompletion=keys,
        ),
    ],
    url: Annotated[
        str, Argument(metavar="URL", help="oci://REGISTRY/NAME:TAG, s3://BUCKET/FOLDER/, file:///FOLDER/.")
    ],
    cache_dir: CacheDirOption = None,
    replace: Annotated[
        bool, Option("--replace", help="For oci: remove every other bundle from this tag.")
    ] = False,
    sign: SignOption = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Send a bundle to a registry, to a folder or to an object store.

    A key or a folder is packed first, as `pack` does. In a registry the bundle is an image that any tool can
    pull. A tag holds one bundle per GPU and set of caches: a bundle for a second GPU is added, and a newer
    one for the same GPU replaces the older one. Blobs that the registry already has are not sent again. User
    and password are those of `docker login`. quiet prints the reference that always names this exact bundle.

    Example: sgl-tune push 8e60 oci://registry.local/caches/glm:0.5.23
    """
    out = Output(sink(format, quiet))
    key = read_private_key(sign) if sign else None
    with _bundle(out, source, cache_dir) as bundle, reached.way(out, "pushing") as how:
        machine = machine_of(bundle, reached.gpu, reached.platform)
        pushed = remote(url, how).push(bundle, machine, replace, key)
    _warn_of_rivals(out, url, pushed)
    out.result(
        {
            "url": url,
            "bundle": offer_json(pushed.offer),
            "sent": pushed.sent,
            "replaced": [offer_json(one) for one in pushed.replaced],
            "beside": [offer_json(one) for one in pushed.beside],
        },
        human=lambda: _show(out, url, pushed),
        quiet=[pushed.offer.reference],
    )


@contextmanager
def _bundle(out: Output, source: str, cache_dir: Path | None) -> Iterator[Path]:
    """Yield the bundle that `source` names, or a temporary bundle packed from the cache or folder."""
    if Path(source).is_file() or Path(source).name.endswith(tuple(SUFFIXES)):
        if not Path(source).is_file():
            raise UsageError(f"{source}: no such file", "`sgl-tune pack` writes one")
        yield Path(source)
        return
    flags = ServerFlags.of(cache_dir=str(cache_dir) if cache_dir else None)
    with scratch() as private:
        path = private.folder / f"{Path(source).resolve().name}.tar.gz"
        packed, *_ = pack_bundle(out, Asked(ByServer(flags), (source,)), UNTOLD, path)
        out.note(f"Packed {count(len(packed.manifest.files), 'file')}: {packed.digest}")
        yield path


def _warn_of_rivals(out: Output, url: str, pushed: Pushed) -> None:
    """Warn if a pull of this URL would refuse to choose between several bundles."""
    rivals = [one.reference for one in pushed.beside if fits(one.machine, pushed.offer.machine)]
    if rivals:
        out.warn(
            f"{url} now holds {count(len(rivals) + 1, 'bundle')} that fit one machine: no pull can choose"
            f" (the others: {', '.join(rivals)}); push with --replace, or to another tag"
        )


def _show(out: Output, url: str, pushed: Pushed) -> None:
    sent = f"{human_bytes(pushed.sent)} sent" if pushed.sent else "nothing to send, all of it was there"
    out.line(f"Pushed to {url}, for {pushed.offer.machine}: {sent}.")
    for old in pushed.replaced:
        out.line(f"Replaced {old.reference}.")
    if pushed.beside:
        out.line(f"Beside it: {count(len(pushed.beside), 'bundle')}, for other machines or caches.")
    out.fields({"bundle": pushed.offer.digest, "pull": pushed.offer.reference})
