"""What `pack` does, and `push` of what is not packed yet: choose, look, and write the bundle."""

from __future__ import annotations

from pathlib import Path

from sgl_tune.cli.out import Output
from sgl_tune.errors import CheckFailed
from sgl_tune.ship.choice import Asked, Choice, choose, not_for, packed_cache
from sgl_tune.ship.compression import codec_of_name
from sgl_tune.ship.contents import Contents, add_cache, add_store
from sgl_tune.ship.manifest import DEFAULT_PLACE
from sgl_tune.ship.pack import Packed, manifest_of, write_bundle
from sgl_tune.verify.environment import Target
from sgl_tune.verify.stores import machine_of

_MOST_OBJECTIONS = 5


def pack_bundle(
    out: Output, asked: Asked, machine: Target, output: Path, at: str = DEFAULT_PLACE, force: bool = False
) -> tuple[Packed, Contents, Choice]:
    """CheckFailed where a server would not use all of it, unless forced."""
    codec = codec_of_name(output)
    choice = choose(asked, machine, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    _show_objections(out, choice, force)
    contents = Contents(at.rstrip("/") or "/")
    with out.progress("reading") as progress:
        for one in choice.checked:
            add_cache(contents, one.cache)
        wanted = not_for(machine_of(asked.flags, machine, None, None))
        for stored in choice.stores:
            add_store(contents, stored, progress.advance, wanted)
    caches = [packed_cache(one) for one in choice.checked]
    with out.progress("hashing") as progress:
        manifest = manifest_of(contents, caches, lambda size: progress.advance())
    with out.progress("packing", len(manifest.files)) as progress:
        packed = write_bundle(manifest, contents, output, codec, lambda size: progress.advance())
    return packed, contents, choice


def _show_objections(out: Output, choice: Choice, force: bool) -> None:
    for text in choice.warnings:
        out.warn(text)
    for note in choice.notes:
        out.note(note)
    for text in choice.objections[:_MOST_OBJECTIONS]:
        out.warn(text)
    more = len(choice.objections) - _MOST_OBJECTIONS
    if more > 0:
        out.warn(f"and {more} more; `sgl-tune verify` prints all of them")
    if choice.objections and not force:
        raise CheckFailed("a server would not use all of this", "mend or warm it, or `pack` it with --force")
