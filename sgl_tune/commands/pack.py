"""`sgl-tune pack`: caches and stores in one file, the same bytes for the same contents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cache.completion import keys
from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.options import ServerFlags, TargetOption
from sgl_tune.deployment.positionals import split_positionals
from sgl_tune.deployment.project_option import DeploymentOption
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.ship.arrival import manifest_json, show_manifest
from sgl_tune.ship.choice import Asked, Choice, choose, not_for, packed_cache
from sgl_tune.ship.compression import codec_of_name
from sgl_tune.ship.contents import Contents, add_cache, add_store
from sgl_tune.ship.manifest import DEFAULT_PLACE
from sgl_tune.ship.options import SignOption
from sgl_tune.ship.pack import Packed, manifest_of, write_bundle
from sgl_tune.ship.signing.keys import read_private_key
from sgl_tune.ship.signing.signature import signature_of, signature_path, write_signature
from sgl_tune.stores.find import STORE_IDS, TACTICS
from sgl_tune.units import human_bytes
from sgl_tune.verify.environment import UNTOLD, read_target
from sgl_tune.verify.stores import machine_of
from sgl_tune.writing import check_place

_MOST_OBJECTIONS = 5


def pack(
    flags: ServerFlags,
    output: Annotated[
        Path, Option("-o", "--output", metavar="FILE", help="The bundle: .tar.gz or .tar.zst.")
    ],
    arguments: Annotated[
        list[str] | None,
        Argument(
            metavar="[PATH|KEY ...] [-- SERVER COMMAND]",
            help="Caches by the beginning of their keys, or folders; after --, a server command.",
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
            help="Repeatable: with what else a start compiles and keeps; tactics: without.",
            autocompletion=lambda: [*STORE_IDS, TACTICS, "all"],
        ),
    ] = None,
    deployment: DeploymentOption = None,
    at: Annotated[
        str,
        Option("--at", metavar="PATH", help="The place for which absolute paths in it are right."),
    ] = DEFAULT_PLACE,
    sign: SignOption = None,
    force: Annotated[bool, Option("--force", help="Pack what a server would not use, too.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Put caches, and stores of compiled kernels, into one file that is also a layer of an image.

    The same contents give the same bytes, whoever packs them, when and where. Tactics are chosen by key, by
    folder or by a deployment's flags; a folder's stores come with it. What `verify` calls bad is
    refused, for --target or else for the machine that the files themselves name. Locks, half-written items
    and what is of this machine alone stay. quiet prints the digest.

    Example: sgl-tune pack 8e60 -o cache.tar.gz
    """
    out = Output(sink(format, quiet))
    codec = codec_of_name(output)
    check_place(output)
    if not at.startswith("/"):
        raise UsageError(f"--at {at} is no absolute path", "give the path as a server will see it")
    key = read_private_key(sign) if sign else None
    paths, command = split_positionals(arguments or ())
    asked = Asked(flags, tuple(paths), tuple(command), deployment, tuple(store or ()))
    machine = read_target(target) if target else UNTOLD
    choice = choose(asked, machine, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    _say(out, choice, force)
    contents = Contents(at.rstrip("/") or "/")
    with out.progress("reading") as progress:
        for one in choice.checked:
            add_cache(contents, one.cache)
        wanted = not_for(machine_of(flags, machine, None, None))
        for stored in choice.stores:
            add_store(contents, stored, progress.advance, wanted)
    caches = [packed_cache(one) for one in choice.checked]
    with out.progress("hashing") as progress:
        manifest = manifest_of(contents, caches, lambda size: progress.advance())
    with out.progress("packing", len(manifest.files)) as progress:
        packed = write_bundle(manifest, contents, output, codec, lambda size: progress.advance())
    signature = write_signature(output, signature_of(key, packed.digest)) if key else None
    if signature is None and signature_path(output).exists():
        out.warn(f"{signature_path(output)} was there before: it is good if this was packed before, too")
    out.result(
        _as_json(packed, contents, choice, signature),
        human=lambda: _show(out, packed, contents, signature),
        quiet=[packed.digest],
    )


def _say(out: Output, choice: Choice, force: bool) -> None:
    for text in choice.warnings:
        out.warn(text)
    for note in choice.notes:
        out.note(note)
    if not choice.objections:
        return
    shown = choice.objections[:_MOST_OBJECTIONS]
    more = len(choice.objections) - len(shown)
    for text in shown:
        out.warn(text)
    if more:
        out.warn(f"and {more} more; `sgl-tune verify` says all of it")
    if not force:
        raise CheckFailed("a server would not use all of this", "mend or warm it, or pack it with --force")


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
