"""Whose signatures are good for what: one public key, or a file that names several.

unsigned = "tactics"            # what needs no signature: "nothing", "tactics" or "anything"

[keys.release]
public-key = "release.pub"      # beside this file, or an absolute path
models = ["zai-org/*"]          # what it may sign; what is not said, is not limited
cache-keys = ["4aae*"]
stores = ["tactics", "triton"]
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from runtime.server.stores import BY_ID
from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular
from sgl_tune.ship.signing.keys import WrongKey, need_library, public_key
from sgl_tune.units import shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

Unsigned = Literal["nothing", "tactics", "anything"]
_UNSIGNED = ("nothing", "tactics", "anything")
_LIMITS = {"models": "model", "cache-keys": "cache key", "stores": "store"}
_LARGEST = 64 << 10
_REMEDY = "docs/ship.md shows a policy"


class Contents(NamedTuple):
    """What a bundle says of itself: `stores` is what its files say, whatever its manifest does."""

    models: tuple[str, ...]
    cache_keys: tuple[str, ...]
    stores: tuple[str, ...]

    @property
    def code(self) -> tuple[str, ...]:
        """What a server would run. A store that nobody knows is no exception."""
        return tuple(store for store in self.stores if store not in BY_ID or BY_ID[store].executable)


@dataclass(frozen=True, slots=True)
class Signer:
    """None: no limit."""

    name: str
    key: EllipticCurvePublicKey
    models: tuple[str, ...] | None = None
    cache_keys: tuple[str, ...] | None = None
    stores: tuple[str, ...] | None = None

    def beyond(self, contents: Contents) -> str | None:
        """The first thing in it that this key may not sign, as words."""
        for allowed, found, noun in zip(
            (self.models, self.cache_keys, self.stores), contents, _LIMITS.values(), strict=True
        ):
            if allowed is None:
                continue
            if not found and noun != "store":
                return f"a bundle that names no {noun}"
            odd = [one for one in found if not any(fnmatchcase(one, pattern) for pattern in allowed)]
            if odd:
                return f"{noun} {shown(odd[0])}"
        return None


@dataclass(frozen=True, slots=True)
class Policy:
    where: str
    signers: tuple[Signer, ...]
    unsigned: Unsigned


def read_policy(path: Path) -> Policy:
    """A public key in PEM is a policy too: everything is to be signed with it."""
    need_library("--trust")
    raw = _read(path)
    if b"-----BEGIN" in raw and b"public-key" not in raw:
        return Policy(str(path), (Signer(path.name, _key(path, raw)),), "nothing")
    try:
        content = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is neither a public key in PEM nor TOML: {error}", _REMEDY) from None
    _refuse_unknown(path, "", content, ("unsigned", "keys"))
    unsigned = content.get("unsigned", "tactics")
    if unsigned not in _UNSIGNED:
        raise UsageError(f"{path}: unsigned is {shown(unsigned)}", f"one of {', '.join(_UNSIGNED)}")
    tables = content.get("keys")
    if not isinstance(tables, Mapping) or not tables:
        raise UsageError(f"{path} names no key", "add a table [keys.NAME] with its public-key")
    signers = tuple(_signer(path, name, table) for name, table in tables.items())
    return Policy(str(path), signers, cast(Unsigned, unsigned))


def _signer(path: Path, name: str, table: Any) -> Signer:
    where = f"keys.{name}"
    if not isinstance(table, Mapping):
        raise UsageError(f"{path}: {where} is {shown(table)}: a table is needed", _REMEDY)
    _refuse_unknown(path, f"{where}.", table, ("public-key", *_LIMITS))
    file = table.get("public-key")
    if not isinstance(file, str) or not file or "\0" in file:
        raise UsageError(f"{path}: {where}.public-key is {shown(file)}: the path of a key is needed", _REMEDY)
    key = path.parent / file
    limits = [_patterns(path, f"{where}.{limit}", table.get(limit)) for limit in _LIMITS]
    return Signer(name, _key(key, _read(key)), *limits)


def _patterns(path: Path, where: str, value: Any) -> tuple[str, ...] | None:
    """An empty list would forbid everything, or be meant to allow it."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise UsageError(f"{path}: {where} is {shown(value)}: a list of patterns is needed", _REMEDY)
    return tuple(value)


def _refuse_unknown(path: Path, where: str, found: Iterable[str], known: tuple[str, ...]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise UsageError(f"{path}: {where}{unknown[0]} is unknown", f"it has {', '.join(known)}")


def _key(path: Path, raw: bytes) -> EllipticCurvePublicKey:
    try:
        return public_key(raw)
    except WrongKey as error:
        remedy = "give the public key: cosign.pub, or what `openssl pkey -in KEY -pubout` writes"
        raise UsageError(f"{path} {error}", remedy) from None


def _read(path: Path) -> bytes:
    """Whoever can write it decides whom this machine believes."""
    try:
        with open_regular(path, _LARGEST) as file:
            status = os.fstat(file.fileno())
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                mode = stat.S_IMODE(status.st_mode)
                raise UsageError(f"{path}: others may write it (mode {mode:03o})", f"chmod go-w {path}")
            if status.st_uid not in (0, os.geteuid()):
                told = f"{path} belongs to user {status.st_uid}, who decides what is in it"
                raise UsageError(told, "give a copy of your own, or one of root's")
            return file.read(_LARGEST)
    except OSError as error:
        raise UsageError(f"--trust {path} cannot be read: {error.strerror}") from None
