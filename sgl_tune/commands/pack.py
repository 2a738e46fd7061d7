"""`sgl-tune pack`: put caches and stores into one file; the same contents give the same bytes."""

from pathlib import Path
from typing import Annotated, Any

from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.layouts.find import keys
from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.file_option import FileOption, split_positionals, started_by
from sgl_tune.deployment.options import ServerFlags, TargetOption
from sgl_tune.ship.arrival import manifest_json, show_manifest
from sgl_tune.ship.choice import Asked, Choice
from sgl_tune.ship.contents import Contents
from sgl_tune.ship.manifest import DEFAULT_PLACE
from sgl_tune.ship.options import SignOption
from sgl_tune.ship.pack import Packed, pack_bundle
from sgl_tune.ship.signing.keys import read_private_key
from sgl_tune.ship.signing.signature import signature_of, signature_path, write_signature
from sgl_tune.stores.find import STORE_IDS, TACTICS
from sgl_tune.stores.places import place_named
from sgl_tune.units import human_bytes
from sgl_tune.verify.environment import UNTOLD, read_target
from sgl_tune.writing import check_place


def pack(
    flags: ServerFlags,
    output: Annotated[
        Path, Option("-o", "--output", metavar="FILE", help="The bundle: .tar.gz or .tar.zst.")
    ],
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="[PATH|KEY ...] [-- SERVER COMMAND]",
            help="Caches by a prefix of their keys, or folders; after --, a server command.",
            show_default=False,
            autocompletion=keys,
        ),
    ] = None,
    target: TargetOption = None,
    store: Annotated[
        list[str] | None,
        Option(
            "--store",
            metavar="ID|all",
            help="Add this store of compiled kernels. Repeatable. `tactics`: add no store.",
            autocompletion=lambda: [*STORE_IDS, TACTICS, "all"],
        ),
    ] = None,
    file: FileOption = None,
    at: Annotated[
        str,
        Option(
            "--at",
            metavar="PATH",
            help="The path where servers will see the files; paths inside stores are written for it.",
        ),
    ] = DEFAULT_PLACE,
    sign: SignOption = None,
    force: Annotated[bool, Option("--force", help="Also pack files that a server would not use.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Put caches and stores of compiled kernels into one file, which is also a layer of an image.

    The same contents give the same bytes on every machine and at any time. Choose tactics by key, by folder
    or by a deployment's flags; a folder's stores are packed with it. Files that `verify` calls bad are
    refused, judged for --target or for the machine that the files name. Locks, half-written items and files
    that only this machine can use are left out. quiet prints the digest.

    Example: sgl-tune pack 8e60 -o cache.tar.gz
    """
    out = Output(sink(format, quiet))
    check_place(output)
    key = read_private_key(sign) if sign else None
    paths, command = split_positionals(arguments or ())
    words, deployment = started_by(file, command)
    asked = Asked(ByServer(flags, words, deployment=deployment), tuple(paths), tuple(store or ()))
    machine = read_target(target) if target else UNTOLD
    packed, contents, choice = pack_bundle(out, asked, machine, output, place_named("--at", at), force)
    signature = write_signature(output, signature_of(key, packed.digest)) if key else None
    if signature is None and signature_path(output).exists():
        out.warn(f"{signature_path(output)} was there before: it fits only an equal bundle")
    out.result(
        _as_json(packed, contents, choice, signature),
        human=lambda: _show(out, packed, contents, signature),
        quiet=[packed.digest],
    )


def _as_json(packed: Packed, contents: Contents, choice: Choice, signature: Path | None) -> dict[str, Any]:
    return {
        "path": str(packed.path),
        "signature": str(signature) if signature else None,
        "digest": packed.digest,
        "diff_id": packed.diff_id,
        "bytes": packed.bytes,
        **manifest_json(packed.manifest),
        "left_out": dict(sorted(contents.left_out.items())),
        "objections": list(choice.objections),
    }


def _show(out: Output, packed: Packed, contents: Contents, signature: Path | None) -> None:
    show_manifest(out, packed.manifest)
    for what, many in sorted(contents.left_out.items()):
        out.line(f"left out: {many:,} {what}", style="dim")
    out.line(f"{packed.path}: {human_bytes(packed.bytes)}, {packed.digest}", style="green")
    if signature:
        out.line(f"{signature}: its signature, as cosign makes it")
