"""Options that several commands on bundles share."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from sgl_tune.cache.disk import check_place
from sgl_tune.cache.folder import Owner
from sgl_tune.cli.format import timeout_option
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.versions import gpu_names
from sgl_tune.errors import UsageError
from sgl_tune.ship.remote.registry_name import DIGEST
from sgl_tune.ship.remote.remotes import How as WayThere
from sgl_tune.ship.signing.keys import read_public_key
from sgl_tune.ship.signing.trust import ALLOW, Guard, Trusted
from sgl_tune.ship.unpack import How
from sgl_tune.stores.places import place_named
from sgl_tune.units import human_bytes
from sgl_tune.verify.access import find_user

DigestOption = Annotated[
    str | None,
    Option(
        "--digest", metavar="sha256:...", help="Accept only the bundle with this digest, as `pack` prints it."
    ),
]
ReplaceOption = Annotated[
    bool,
    Option(
        "--replace/--merge",
        help="Replace existing caches and stores, or add to them.",
        show_default="--merge",
    ),
]
ForceOption = Annotated[bool, Option("--force", help="With --target: also unpack unusable files.")]
RekeyOption = Annotated[
    list[str] | None,
    Option(
        "--rekey",
        metavar="model_path=PATH",
        help="The model path as the deployment's command spells it; the cache gets the key of that path.",
    ),
]
PlaceOption = Annotated[
    str | None,
    Option(
        "--at", metavar="PATH", help="The cache directory's path as the server sees it, if not its path here."
    ),
]
OwnerOption = Annotated[
    str | None,
    Option("--owner", metavar="NAME|UID", help="As root: the files' owner. Default: the folder's owner."),
]
PlainHttpOption = Annotated[
    bool, Option("--plain-http", help="For oci: use http, for a registry on this machine only.")
]
TimeoutOption = Annotated[
    float,
    timeout_option(
        "Longest wait for an answer. Within it, at least 256 KiB of a file must arrive (from an object"
        " store: 8 MiB), or 8 MiB must be sent.",
        0.1,
        86400,
    ),
]
GpuOption = Annotated[
    str | None,
    Option("--gpu", metavar="NAME", help="The GPU that the bundle is for.", autocompletion=gpu_names),
]
PlatformOption = Annotated[
    str | None,
    Option("--platform", metavar="linux/amd64|linux/arm64", help="The processor that the bundle is for."),
]
SignOption = Annotated[
    Path | None,
    Option(
        "--sign",
        metavar="KEY",
        help="Sign with this private key, as cosign does. Its password comes from COSIGN_PASSWORD, or is"
        " asked for.",
    ),
]
TrustOption = Annotated[
    list[Path] | None,
    Option(
        "--trust",
        metavar="KEY",
        help="Accept only bundles signed by this public key. Repeatable: one of the keys is enough.",
    ),
]
AllowUnsignedCodeOption = Annotated[
    bool, Option(ALLOW, help="Also unpack unsigned kernels. Their author can run code in the server.")
]


def how_asked(
    cache_dir: Path | None,
    at: str | None,
    replace: bool,
    rekey: list[str] | None,
    owner: str | None,
    dry_run: bool,
    guard: Guard,
) -> How:
    root = cache_dir or default_cache_dir()
    check_place(root)
    place = place_named("--at", at) if at is not None else str(root.absolute())
    return How(root, place, replace, tuple(rekey or ()), guard, owner_asked(owner, root), dry_run)


def digest_asked(text: str | None) -> str | None:
    if text is not None and not DIGEST.fullmatch(text):
        raise UsageError(f"--digest {text}: is no digest", "write it as `pack` prints it: sha256:4f0c...")
    return text


def owner_asked(name: str | None, root: Path) -> Owner | None:
    """Return the owner for new files, or None if they stay with the user who writes them: only root may
    change an owner."""
    if os.geteuid() != 0:
        if name is not None:
            raise UsageError(f"--owner {name}: only root may give files to another user", "leave it out")
        return None
    if name is not None:
        user = find_user(name, "--owner")
        return Owner(user.uid, _group(user.uid))
    try:
        status = root.stat()
    except OSError:
        return None
    return Owner(status.st_uid, status.st_gid) if status.st_uid else None


def _group(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


@contextmanager
def way(out: Output, plain_http: bool, timeout: float, label: str) -> Iterator[WayThere]:
    with out.progress(label) as line:

        def progress(what: str, done: int, total: int) -> None:
            line.advance(0, f"{what} {human_bytes(done)} of {human_bytes(total)}")
            if done == total:
                line.clear()

        def cleared(say: Callable[[str], None], text: str) -> None:
            line.clear()
            say(text)

        note, warn = partial(cleared, out.note), partial(cleared, out.warn)
        yield WayThere(plain_http, timeout, note, warn, progress)


def trusted_keys(paths: list[Path] | None, allow_unsigned_code: bool = False) -> tuple[Trusted, ...]:
    """Read the public keys, before anything is fetched."""
    if paths and allow_unsigned_code:
        raise UsageError(f"--trust and {ALLOW} contradict each other", "give one of them")
    return tuple(Trusted(path.name, read_public_key(path)) for path in paths or ())
