"""Files in a folder or an object store, through fsspec: few calls, each with an end, errors in a line."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import fsspec
from fsspec.asyn import sync
from fsspec.callbacks import Callback

from sgl_tune.errors import SglTuneError, UsageError, WorkFailed
from sgl_tune.ship.remote.deadline import TooSlow, within
from sgl_tune.ship.remote.object_name import ObjectName
from sgl_tune.ship.remote.remotes import How, without_secrets
from sgl_tune.units import shown
from sgl_tune.writing import written

PIECE = 8 << 20
_PART = 8 << 20
_READ = 256 << 10
_MARKS = ("ETag", "mtime")
_PAUSES = (0.5, 1.0, 2.0)
_MOST_NAMES = 10_000
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the machine's own account",
    "hf": "HF_TOKEN, or `hf auth login`",
}
_WITHOUT = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "LocalTokenNotFoundError",
    "RefreshError",
)

Answer = TypeVar("Answer")


class Absent(UsageError):
    """There is no such file, folder or bucket."""


class Found(NamedTuple):
    name: str
    bytes: int


class State(NamedTuple):
    """Two that are equal are of the same content, as far as a store tells."""

    bytes: int
    tag: str
    time: str


class ObjectFiles:
    """Of one folder. Every name is a plain one, of a file right in it."""

    def __init__(self, place: ObjectName, how: How) -> None:
        self._place, self._how = place, how
        self._files: Any = fsspec.filesystem(place.scheme, skip_instance_cache=True, **_settings(place, how))
        self._folder = self._files._strip_protocol(place.place)

    def names(self) -> list[Found]:
        listed = self._ask(str(self._place), lambda: self._files.ls(self._folder, detail=True))
        if len(listed) > _MOST_NAMES:
            raise UsageError(f"{self._place.place}/ holds {len(listed):,} things", "name the bundle")
        rows = [(str(one["name"]).rpartition("/")[2], one) for one in listed if one["type"] == "file"]
        return sorted(Found(name, int(one["size"] or 0)) for name, one in rows if name)

    def state(self, name: str) -> State:
        told = self._ask(self._place.of(name), lambda: self._files.info(self._path(name)))
        if told["type"] != "file":
            raise UsageError(f"{self._place.of(name)} is no file")
        return State(int(told["size"]), *(str(told.get(mark)) for mark in _MARKS))

    def read(self, name: str, start: int, end: int) -> bytes:
        """No more than that, even from a server that sends more."""
        path = self._path(name)
        if self._place.scheme == "s3":
            return self._ask(self._place.of(name), lambda: self._part_of_object(path, start, end))
        return bytes(
            self._ask(self._place.of(name), lambda: self._files.cat_file(path, start=start, end=end))
        )

    def _part_of_object(self, path: str, start: int, end: int) -> bytes:
        """s3fs itself would hold whatever comes."""
        bucket, key, _ = self._files.split_path(path)
        what = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{end - 1}"}

        async def part() -> bytes:
            body = (await self._files._call_s3("get_object", **what))["Body"]
            found = bytearray()
            try:
                while len(found) <= end - start and (piece := await body.read(_READ)):
                    found += piece
            finally:
                body.close()
            return bytes(found)

        return bytes(sync(self._files.loop, part))

    def small(self, name: str, most: int) -> bytes | None:
        """None: there is none. What is longer than `most` comes one byte too long."""
        try:
            size = self.state(name).bytes
        except Absent:
            return None
        return self.read(name, 0, min(size, most + 1)) if size else b""

    def write(self, name: str, file: Path) -> None:
        """Whole or not at all: a put is so where an object is one, and a folder knows renaming."""
        if self._place.scheme != "file":
            self._put(name, file)
            return

        def copy() -> None:
            Path(self._folder).stat()  # it must be there
            with file.open("rb") as source, written(Path(self._path(name))) as target:
                shutil.copyfileobj(source, target, PIECE)

        self._try(self._place.of(name), copy)

    def _put(self, name: str, file: Path) -> None:
        """To S3 each piece has its time. Others send when all is handed over, and say nothing meanwhile."""
        what, path = self._place.of(name), self._path(name)

        def put() -> None:
            if self._place.scheme != "s3":
                self._files.put_file(str(file), path, callback=_Told(self._how, lambda: None))
                return
            with self._patiently(what) as begin:
                told = _Told(self._how, begin)
                parts = {"chunksize": _PART, "max_concurrency": 2}
                self._files.put_file(str(file), path, callback=told, **parts)

        self._try(what, put)

    def remove(self, name: str) -> None:
        with suppress(Absent):
            self._ask(self._place.of(name), lambda: self._files.rm_file(self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _ask(self, what: str, call: Callable[[], Answer]) -> Answer:
        def asked() -> Answer:
            with self._patiently(what):
                return call()

        return self._try(what, asked)

    @contextmanager
    def _patiently(self, what: str) -> Iterator[Callable[[], None]]:
        try:
            with within(self._how.patience) as begin:
                yield begin
        except TooSlow:
            told = f"{what}: no answer in {self._how.patience:g} s"
            raise WorkFailed(told, "--timeout gives more") from None

    def _try(self, what: str, call: Callable[[], Answer]) -> Answer:
        """What fails in a way that may pass is tried again."""
        for pause in (*_PAUSES, None):
            try:
                return call()
            except Exception as error:  # each store's library has errors of its own
                failure = self._told(what, error)
                if isinstance(failure, UsageError) or pause is None:
                    raise failure from None
            time.sleep(pause)
        raise AssertionError

    def _told(self, what: str, error: Exception) -> SglTuneError:
        credentials = _CREDENTIALS.get(self._place.scheme)
        if isinstance(error, SglTuneError):
            return error
        if isinstance(error, FileNotFoundError):
            return Absent(f"{what}: there is no such thing", "is it spelled so?")
        if isinstance(error, (NotADirectoryError, IsADirectoryError)):
            return UsageError(f"{what}: {error.strerror or type(error).__name__}")
        if type(error).__name__ in _WITHOUT:
            return UsageError(f"{what}: no credentials for it ({_first_line(error)})", credentials)
        if isinstance(error, PermissionError):
            return UsageError(f"{what}: access is refused ({_first_line(error)})", credentials)
        return WorkFailed(f"{what}: {type(error).__name__}: {_first_line(error)}", "try again")


class _Told(Callback):
    """fsspec counts what it has sent; whoever waits hears of it."""

    def __init__(self, how: How, begin: Callable[[], None]) -> None:
        super().__init__()
        self._how, self._begin = how, begin

    def call(self, *arguments: Any, **more: Any) -> None:
        self._begin()
        self._how.progress("sent", int(self.value), int(self.size or self.value))


def _settings(place: ObjectName, how: How) -> dict[str, Any]:
    common = {"use_listings_cache": False}
    if place.scheme == "s3":
        waits = {"connect_timeout": min(how.patience, 10.0), "read_timeout": how.patience}
        return {**common, "config_kwargs": {**waits, "retries": {"max_attempts": 1}}}
    return common


def _first_line(error: Exception) -> str:
    text = without_secrets(str(error)).strip().partition("\n")[0]
    return shown(text, 200)[1:-1] if text else "no reason given"
