"""Options that several commands on bundles share."""

import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cache.disk import check_place
from sgl_tune.cache.folder import Owner
from sgl_tune.cli.format import CacheDirOption, timeout_option
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.versions import gpu_names
from sgl_tune.errors import UsageError
from sgl_tune.ship.remote.registry_name import DIGEST
from sgl_tune.ship.remote.remotes import PATIENCE_SECONDS
from sgl_tune.ship.remote.remotes import How as WayThere
from sgl_tune.ship.signing.keys import read_public_key
from sgl_tune.ship.signing.signature import ALLOW, Guard, Trusted
from sgl_tune.ship.unpack import How
from sgl_tune.stores.places import place_named
from sgl_tune.units import human_bytes
from sgl_tune.verify.access import find_user

SignOption = Annotated[
    Path | None,
    Option(
        "--sign",
        metavar="KEY",
        help="Sign with this private key, as cosign does. Its password comes from COSIGN_PASSWORD, or is"
        " asked for.",
    ),
]
AllowUnsignedCodeOption = Annotated[
    bool, Option(ALLOW, help="Also unpack unsigned kernels. Their author can run code in the server.")
]


def _told(name: str, metavar: str, help: str, **more: Any) -> Any:
    return Option(name, metavar=metavar, help=help, **more)


@dataclass(frozen=True, slots=True)
class LandingOptions:
    """Which bundles are accepted, and how their files land."""

    cache_dir: CacheDirOption = None
    replace: Annotated[
        bool,
        Option(
            "--replace/--merge",
            help="Replace existing caches and stores, or add to them.",
            show_default="--merge",
        ),
    ] = False
    rekey: Annotated[
        list[str] | None,
        _told(
            "--rekey",
            "model_path=PATH",
            "The model path as the deployment's command spells it; the cache gets the key of that path.",
        ),
    ] = None
    at: Annotated[
        str | None,
        _told("--at", "PATH", "The cache directory's path as the server sees it, if not its path here."),
    ] = None
    digest: Annotated[
        str | None,
        _told("--digest", "sha256:...", "Accept only the bundle with this digest, as `pack` prints it."),
    ] = None
    trust: Annotated[
        list[Path] | None,
        _told(
            "--trust",
            "KEY",
            "Accept only bundles signed by this public key. Repeatable: one of the keys is enough.",
        ),
    ] = None
    owner: Annotated[
        str | None,
        _told("--owner", "NAME|UID", "As root: the files' owner. Default: the folder's owner."),
    ] = None
    force: Annotated[bool, Option("--force", help="With --target: also unpack unusable files.")] = False

    def guard(self, allow_unsigned_code: bool = False) -> Guard:
        """Read the public keys, before anything is fetched."""
        if self.digest is not None and not DIGEST.fullmatch(self.digest):
            said = f"--digest {self.digest}: is no digest"
            raise UsageError(said, "write it as `pack` prints it: sha256:4f0c...")
        if self.trust and allow_unsigned_code:
            raise UsageError(f"--trust and {ALLOW} contradict each other", "give one of them")
        keys = tuple(Trusted(path.name, read_public_key(path)) for path in self.trust or ())
        return Guard(self.digest, keys, allowed=allow_unsigned_code)

    def how(self, guard: Guard, dry_run: bool) -> How:
        root = self.cache_dir or default_cache_dir()
        check_place(root)
        place = place_named("--at", self.at) if self.at is not None else str(root.absolute())
        owner = owner_asked(self.owner, root)
        return How(root, place, self.replace, tuple(self.rekey or ()), guard, owner, dry_run)


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """The machine that a bundle is for, and how a registry or a store is reached."""

    gpu: Annotated[
        str | None, _told("--gpu", "NAME", "The GPU that the bundle is for.", autocompletion=gpu_names)
    ] = None
    platform: Annotated[
        str | None,
        _told("--platform", "linux/amd64|linux/arm64", "The processor that the bundle is for."),
    ] = None
    plain_http: Annotated[
        bool, Option("--plain-http", help="For oci: use http, for a registry on this machine only.")
    ] = False
    timeout: Annotated[
        float,
        timeout_option(
            "Longest wait for an answer. Within it, at least 256 KiB of a file must arrive (from an object"
            " store: 8 MiB), or 8 MiB must be sent.",
            0.1,
            86400,
        ),
    ] = PATIENCE_SECONDS

    @contextmanager
    def way(self, out: Output, label: str) -> Iterator[WayThere]:
        with out.progress(label) as line:

            def progress(what: str, done: int, total: int) -> None:
                line.advance(0, f"{what} {human_bytes(done)} of {human_bytes(total)}")
                if done == total:
                    line.clear()

            def cleared(say: Callable[[str], None], text: str) -> None:
                line.clear()
                say(text)

            note, warn = partial(cleared, out.note), partial(cleared, out.warn)
            yield WayThere(self.plain_http, self.timeout, note, warn, progress)


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
